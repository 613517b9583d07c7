"""The shards page of a cluster's gateway: all shards with their owners, the changes of owners, and what is here."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gateway.cluster.lease_table import Lease
from gateway.console import shards
from gateway.console.owner_changes import OwnerChange, Reason
from gateway.console.parts import ROWS, UNKNOWN, Cell, Page, Section, Table, link, name
from gateway.console.shards import PATH, ShardFacts
from gateway.console.text import age, bytes_words, moment, number, plain_number, seconds_words
from gateway.observe.session_stats import SessionStats
from gateway.observe.shard_owners import OwnerState
from gateway.observe.standby_metrics import Followed
from schemas.leases import Claimant

_HEADINGS = ("shard", "owner", "epoch", "standbys", "state", "here", "connected", "offline", "queued", "bytes")
_OF_CHANGES = ("when", "shard", "from", "to", "epoch", "reason", "serves after")
_STATES: dict[OwnerState, Cell] = {
    "served": Cell("served", "good"),
    "starting": Cell("owner starts"),
    "owner_silent": Cell("owner is silent", "bad"),
    "no_owner": Cell("no owner", "bad"),
}
_REASONS: dict[Reason, str] = {
    "planned": "planned",
    "lost": "owner lost",
    "first": "first owner",
    "again": "claimed again",
}


class OneShard(NamedTuple):
    """`standbys` are their names, each with what it is; `is_alone`: none of them is up. `lag`: of this gateway, if it
    is one of them. `stats`: of its sessions if it is here, else None. `href`: the same page at its owner, "" if there
    is none."""

    lease: Lease
    state: OwnerState
    standbys: Sequence[str]
    is_alone: bool
    phase: str
    lag: Followed | None
    stats: SessionStats | None
    href: str


class ChangeSeen(NamedTuple):
    """A change of owner, and how many seconds ago this gateway has read it."""

    change: OwnerChange
    age_s: float


class AllShardsFacts(NamedTuple):
    """`shown` are the shards of one page, the first of them `first` of `total`. `states`: of all shards. `owned` and
    `followed`: how many this gateway owns, and how many it is a standby of."""

    shown: Sequence[OneShard]
    first: int
    total: int
    states: dict[OwnerState, int]
    owned: int
    followed: int
    changes: Sequence[ChangeSeen]
    here: Sequence[ShardFacts]


def page(facts: AllShardsFacts, now: float) -> Page:
    """`now`: seconds since the epoch."""
    figures = {
        "shards": facts.total,
        "served": facts.states.get("served", 0),
        "owner starts": facts.states.get("starting", 0),
        "owner is silent": facts.states.get("owner_silent", 0),
        "without owner": facts.states.get("no_owner", 0),
        "owned here": facts.owned,
        "standby here": facts.followed,
    }
    after = facts.first + len(facts.shown)
    all_shards = Table(
        f"Shards {facts.first} to {after - 1} of {facts.total}" if facts.shown else "Shards",
        _HEADINGS,
        [_row(one) for one in facts.shown],
        "there is no such shard",
        after < facts.total,
        link(PATH, first=str(after)) if after < facts.total else "",
    )
    changes = Table("Changes of owners", _OF_CHANGES, [_change(one, now) for one in facts.changes[:ROWS]], "none yet")
    return Page(
        PATH,
        "Shards",
        (
            Section(
                "",
                "A client's session is in one shard, and the shard's owner serves it. Owners, epochs and standbys are "
                "as this gateway has read them on Kafka. A standby is warm if a takeover by it would have little to "
                "read; how far behind it is, its own page says. Sessions and queues are known only of shards here.",
                figures=[(label, plain_number(value)) for label, value in figures.items()],
                tables=[all_shards],
            ),
            Section(
                "Takeovers",
                "Changes of owners that this gateway has read since its start, the newest first. Serves after: from "
                "the claim to the new owner's word that its fences are in force.",
                tables=[changes],
            ),
            Section("Here", shards.LEAD, tables=[shards.table(facts.here)]),
        ),
    )


def _row(one: OneShard) -> tuple[Cell, ...]:
    lease, stats = one.lease, one.stats
    standbys = name(", ".join(one.standbys))
    state = _STATES[one.state]
    if lease.owner is None and lease.successor is not None:
        state = state._replace(text=f"{state.text}: {name(lease.successor).text} is to claim it")
    return (
        number(lease.shard),
        _claimant(lease.owner, one.href),
        number(lease.epoch),
        standbys._replace(kind="bad") if one.is_alone else standbys,
        state,
        _here(one),
        number(None if stats is None else stats.connected),
        number(None if stats is None else stats.offline),
        number(None if stats is None else stats.queued_messages),
        Cell(UNKNOWN if stats is None else bytes_words(stats.queued_bytes), "number"),
    )


def _here(one: OneShard) -> Cell:
    """What this gateway does with the shard; as a standby, how far behind it is."""
    lag = one.lag
    if one.phase != "standby" or lag is None or lag.behind is None or lag.behind_s is None:
        return Cell(UNKNOWN if one.phase == "idle" else one.phase)
    records = "1 record" if lag.behind == 1 else f"{plain_number(lag.behind)} records"
    text = f"standby, {records} and {lag.behind_s:.1f} s behind"
    return Cell(text, "text" if lag.is_warm else "bad")


def _change(one: ChangeSeen, now: float) -> tuple[Cell, ...]:
    change = one.change
    took = change.served_after_s
    is_restart = change.previous is not None and change.previous.name == change.owner.name and change.reason != "again"
    reason = f"{_REASONS[change.reason]}, same gateway restarted" if is_restart else _REASONS[change.reason]
    return (
        Cell(f"{age(one.age_s)} ago", "time", moment(now - one.age_s)),
        number(change.shard),
        _claimant(change.previous),
        _claimant(change.owner),
        number(change.epoch),
        Cell(reason, "bad" if change.reason == "lost" else "text"),
        Cell(UNKNOWN if took is None else seconds_words(took), "number"),
    )


def _claimant(claimant: Claimant | None, href: str = "") -> Cell:
    if claimant is None:
        return Cell(UNKNOWN)
    found = name(claimant.name, href)
    return found._replace(title=found.title or f"process {claimant.boot}")


def of_page(leases: Iterable[Lease], first: int) -> list[Lease]:
    """The shards of the page that begins with the shard `first`."""
    return [lease for lease in leases if first <= lease.shard < first + ROWS]
