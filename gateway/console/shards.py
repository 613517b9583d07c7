"""The shards that this gateway has: their sessions, queues, positions and spools.

A row is of one shard and says only what its home knows. If several gateways share the shards, the page shows the others
too (:mod:`gateway.console.all_shards`).
"""

from collections.abc import Sequence
from typing import NamedTuple

from gateway.console.parts import UNKNOWN, Cell, Page, Section, Table, name
from gateway.console.text import bytes_words, number
from gateway.observe.session_stats import SessionStats

PATH = "/console/shards"
LEAD = (
    "A client's session is in one shard. Lag: records for the shard on Kafka that are not applied yet; the end that it "
    "is measured from is up to 5 s old. Parked: instructions that wait for direct deliveries."
)


class ShardFacts(NamedTuple):
    """`end` is that of the shard's partition of `egress`, None before Kafka's client has said it. `fault`: why its
    spool fails, "" if it works."""

    number: int
    owner: str
    stats: SessionStats
    applied_to: int
    end: int | None
    is_catching_up: bool
    parked: int
    spool_rows: int
    spool_bytes: int
    fault: str


_HEADINGS = (
    "shard",
    "owner",
    "connected",
    "offline",
    "share groups",
    "queued",
    "bytes",
    "unacknowledged",
    "applied to",
    "lag",
    "parked",
    "catch-up reader",
    "spool rows",
    "on disk",
    "state",
)


def page(shards: Sequence[ShardFacts]) -> Page:
    return Page(PATH, "Shards", (Section("", LEAD, tables=[table(shards)]),))


def table(shards: Sequence[ShardFacts]) -> Table:
    rows = [_row(one) for one in sorted(shards, key=lambda one: one.number)]
    return Table("Shards of this gateway", _HEADINGS, rows, "this gateway has no shard")


def _row(one: ShardFacts) -> tuple[Cell, ...]:
    stats = one.stats
    lag = Cell(UNKNOWN, "number") if one.end is None else number(max(0, one.end - one.applied_to))
    return (
        number(one.number),
        name(one.owner),
        number(stats.connected),
        number(stats.offline),
        number(stats.share_groups),
        number(stats.queued_messages),
        Cell(bytes_words(stats.queued_bytes), "number"),
        number(stats.unacknowledged),
        number(one.applied_to),
        lag,
        number(one.parked),
        Cell("reads" if one.is_catching_up else "idle"),
        number(one.spool_rows),
        Cell(bytes_words(one.spool_bytes), "number"),
        Cell(one.fault, "bad") if one.fault else Cell("ok", "good"),
    )
