"""Which members are alive, judged by one of them (Q6, G6, R12). Pure: the time comes in.

**Life is progress in the log.** Each member writes to `members` every 200 ms, and whoever reads that is progress
believes that it lives. A link (a TCP connection) between owner and standbys only makes the judgement faster: it ends
within milliseconds when a process is killed. But links end for other reasons too, so losing one is not death.

| what the observer sees                                                      | verdict                              |
|-----------------------------------------------------------------------------|--------------------------------------|
| `members` has a higher boot of the name, or the member said that it is gone | dead                                 |
| the link ends, and a new connection is refused                              | dead, at once                        |
| the link is silent, and no record for 600 ms                                | suspect: stopped, cut off, or gone   |
| the link is silent, but records come                                        | alive                                |
| the link is alive, but no record for 600 ms                                 | suspect: cut off from Kafka          |

Silence is measured in what the observer itself reads. While it reads nothing at all, its own records included, it is
the one that is cut off, and nobody becomes suspect. When reading begins again, everyone has 600 ms again. An observer
whose own loop stood still for more than 150 ms trusts no silence for a second (Dadgar et al., Lifeguard, 2017): what
it missed is its own fault. A refused connection, a higher boot and a last word are not silence, and count all the same.
"""

from collections.abc import Collection, Iterator
from typing import Final, Literal, NamedTuple

from gateway.cluster.placement import Candidate
from gateway.cluster.timings import LifeTimings
from schemas.leases import Claimant
from schemas.members import GatewayLoad, MemberState

Verdict = Literal["alive", "suspect", "dead"]

MEMORY_S: Final = 60.0
"""How long it is remembered that a start made progress: longer than the longest patience with one that makes none."""

Redialled = Literal["connected", "refused", "timeout"]


class Heard(NamedTuple):
    """A record on `members` was read, progress or not, the observer's own included. `is_old`: it was on the topic
    before the observer began to read, so it proves no life. `starting`: shards whose start has made progress."""

    name: str
    boot: int
    seq: int
    state: MemberState
    zone: str = ""
    load: GatewayLoad = GatewayLoad()
    is_old: bool = False
    starting: Collection[int] = ()


class Claimed(NamedTuple):
    """A claim was read on `leases`, just written: its claimant may not have been heard of yet."""

    claimant: Claimant


class LinkHeard(NamedTuple):
    """Something came over the link to a member, or the link was made. `boot`, here and below: of the process to which
    the link leads; what is known of one process says nothing about another. None: the one that is known."""

    name: str
    boot: int | None = None


class LinkEnded(NamedTuple):
    """The link to a member ended or was reset."""

    name: str
    boot: int | None = None


class RedialResult(NamedTuple):
    """`connected`: the process has answered; `refused`: its machine says that nobody listens there."""

    name: str
    result: Redialled
    boot: int | None = None


class Passed(NamedTuple):
    """Time has passed: to be given several times within `stall_s`."""


LifeEvent = Heard | Claimed | LinkHeard | LinkEnded | RedialResult | Passed


class Redial(NamedTuple):
    """Connect to the member once, and report the result."""

    name: str


class _Member:
    """What the observer knows of one name. Only :class:`Life` assigns these. `heard_at`: when the last progress was
    read; `refused_at`: when a connection was refused, None if none was since; `progress`: when it said last that the
    start of a shard made progress, by shard, of the last MEMORY_S."""

    def __init__(self, boot: int) -> None:
        self.boot = boot
        self.seq = -1
        self.state: MemberState = "joining"
        self.zone = ""
        self.load = GatewayLoad()
        self.heard_at: float | None = None
        self.refused_at: float | None = None
        self.link_heard_at: float | None = None
        self.is_redialling = False
        self.progress: dict[int, float] = {}


class Life:
    """The judgement of the member `me`, at most about `limit` others; times are monotonic seconds."""

    def __init__(self, me: Claimant, timings: LifeTimings, limit: int = 1_000) -> None:
        self._me = me
        self._timings = timings
        self._limit = limit
        self._members: dict[str, _Member] = {}
        self._read_at: float | None = None
        self._reading_since: float | None = None
        self._stepped_at: float | None = None
        self._distrusts_until = float("-inf")

    def step(self, event: LifeEvent, now: float) -> list[Redial]:
        """Takes what happened; returns what to do."""
        self._notice_stall(now)
        match event:
            case Heard():
                self._heard(event, now)
            case Claimed(claimant):
                self._claimed(claimant, now)
            case LinkHeard(name, boot):
                self._link_heard(name, boot, now)
            case LinkEnded(name, boot):
                return self._link_ended(name, boot)
            case RedialResult(name, result, boot):
                self._redialled(name, result, boot, now)
        return []

    def verdict(self, of: Claimant, now: float) -> Verdict:
        """What the observer takes a claimant for."""
        if of == self._me:
            return "alive"
        member = self._members.get(of.name)
        if self._is_superseded(of, member):
            return "dead"
        if member is not None and member.boot == of.boot and (member.state == "gone" or member.refused_at is not None):
            return "dead"
        return "suspect" if self.is_trusting(now) and self._is_silent(of, member) else "alive"

    def _is_superseded(self, of: Claimant, member: _Member | None) -> bool:
        """Whether a later process of the name is known."""
        return (of.name == self._me.name and of.boot < self._me.boot) or (member is not None and member.boot > of.boot)

    def is_trusting(self, now: float) -> bool:
        """Whether the observer may take silence for the silence of others: it reads, and has not stood still."""
        return self.is_reading(now) and now >= self._distrusts_until

    def is_reading(self, now: float) -> bool:
        """Whether the topic `members` reaches the observer."""
        return self._read_at is not None and now - self._read_at <= self._timings.reading_gap_s

    def has_link(self, name: str, now: float) -> bool:
        """Whether the link to a member is alive; for people, nothing is decided by it."""
        member = self._members.get(name)
        heard = None if member is None else member.link_heard_at
        return heard is not None and now - heard <= self._timings.silent_s

    def progressed_at(self, of: Claimant, shard: int) -> float | None:
        """When a claimant said last that its start of a shard made progress; None if it has not lately."""
        member = self._members.get(of.name)
        return None if member is None or member.boot != of.boot else member.progress.get(shard)

    def candidates(self, now: float) -> list[Candidate]:
        """The members that may own shards: up, and not taken for dead or suspect. Ordered by name."""
        return sorted(self._candidates(now))

    def _candidates(self, now: float) -> Iterator[Candidate]:
        for name, member in self._members.items():
            claimant = Claimant(name, member.boot)
            if member.heard_at is not None and member.state == "up" and self.verdict(claimant, now) == "alive":
                yield Candidate(name, member.zone, cpu=member.load.cpu)

    def _heard(self, event: Heard, now: float) -> None:
        if not event.is_old:
            if not self.is_reading(now):
                self._reading_since = now
            self._read_at = now
        member = self._members.get(event.name)
        if member is not None and (event.boot, event.seq) <= (member.boot, member.seq):
            return
        if member is None or event.boot > member.boot:
            member = self._begin(Claimant(event.name, event.boot))
        elif member.refused_at is not None and now - member.refused_at > self._timings.silent_s:
            member.refused_at = None  # it was not on its way when the connection was refused
        member.seq, member.state = event.seq, event.state
        member.zone, member.load = event.zone, event.load
        if not event.is_old:
            member.heard_at = now
            if event.starting or member.progress:
                known = {shard: at for shard, at in member.progress.items() if now - at <= MEMORY_S}
                member.progress = known | dict.fromkeys(event.starting, now)

    def _claimed(self, claimant: Claimant, now: float) -> None:
        member = self._members.get(claimant.name)
        if member is None or claimant.boot > member.boot:
            self._begin(claimant).heard_at = now

    def _begin(self, claimant: Claimant) -> _Member:
        """Another process of this name; if there are too many names, the one not heard of for longest is forgotten."""
        if claimant.name not in self._members and len(self._members) >= self._limit:
            del self._members[min(self._members, key=lambda other: self._members[other].heard_at or 0.0)]
        self._members[claimant.name] = member = _Member(claimant.boot)
        return member

    def _link_heard(self, name: str, boot: int | None, now: float) -> None:
        member = self._members.get(name)
        if member is not None and boot in (None, member.boot):
            member.link_heard_at, member.refused_at = now, None

    def _link_ended(self, name: str, boot: int | None) -> list[Redial]:
        member = self._members.get(name)
        if member is None or member.is_redialling or boot not in (None, member.boot):
            return []
        member.link_heard_at, member.is_redialling = None, True
        return [Redial(name)]

    def _redialled(self, name: str, result: Redialled, boot: int | None, now: float) -> None:
        member = self._members.get(name)
        if member is None or not member.is_redialling:
            return
        member.is_redialling = False
        if boot not in (None, member.boot):
            return
        if result == "connected":
            member.link_heard_at = now
        elif result == "refused":
            member.refused_at = now

    def _is_silent(self, of: Claimant, member: _Member | None) -> bool:
        """Whether no record of the claimant has come for too long, measured in the observer's own reading. A link that
        is alive does not help: then the member is cut off from Kafka."""
        if self._read_at is None or self._reading_since is None:
            return False
        heard = member.heard_at if member is not None and member.boot == of.boot else None
        since = self._reading_since if heard is None else max(heard, self._reading_since)
        return self._read_at - since >= self._timings.silent_s

    def _notice_stall(self, now: float) -> None:
        if self._stepped_at is not None and now - self._stepped_at > self._timings.stall_s:
            self._distrusts_until = now + self._timings.distrust_s
        self._stepped_at = now
