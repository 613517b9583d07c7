"""Message presence at an agent: what is known of one message, as a join, and what is still to be published (M9-M13).

Two records of a message merge into what both know: `merge` is commutative, associative and idempotent, so records may
arrive in any order and any number of copies (a state-based CRDT: Shapiro et al., 2011). Each field is a join of its
own: of reports about an agent the newest counts; of deliveries the earliest; `kept_until_us` only grows. A message goes
held < claimed < delivered < retired and never back, except that a claim is a lease: it ends by itself.

Who has the claim follows from the record and the time: of the leases that run, the one asked for first, then the lower
agent. The server grants claims in the order of its log (:mod:`pipelines.presence.custody`); between agents that cannot
reach it this rule stands in. Two halves of a mesh may each grant a claim, and both deliver: **claims only spare
duplicates; the recipient's memory (:mod:`bundles.seen`) is the guarantee.**

`retired` is a mark, not a deletion: a record may be forgotten only when no copy of the message can be alive, or a late
proxy would find no record and deliver again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto
from typing import NamedTuple, TypeVar

from schemas.events import MessagePresenceEvent


class Stage(IntEnum):
    """How far a message is."""

    HELD = 0
    CLAIMED = 1
    DELIVERED = 2
    RETIRED = 3


class Standing(IntEnum):
    """What an agent does with a message, of reports of the same time the higher one counts."""

    HOLDS = 0
    ATTEMPTS = 1
    REFUSED = 2


class Report(NamedTuple):
    """The newest report about an agent."""

    at_us: int
    standing: Standing


class Lease(NamedTuple):
    """A claim: when it was asked for, and until when it runs. A later request replaces it; a renewal keeps `asked_us`;
    one that is given up has an end in the past."""

    asked_us: int
    until_us: int


V = TypeVar("V", Report, Lease)


class Delivery(NamedTuple):
    """When a message was delivered, by whom and to whom."""

    at_us: int
    by: str
    to: str


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of one message. Times are microseconds since the epoch."""

    reports: Mapping[str, Report] = field(default_factory=dict)
    leases: Mapping[str, Lease] = field(default_factory=dict)
    delivery: Delivery | None = None
    expired: bool = False
    retired: bool = False
    kept_until_us: int = 0

    def claimant(self, now_us: int) -> str | None:
        """The agent that has the claim now."""
        running = [(lease.asked_us, agent) for agent, lease in self.leases.items() if lease.until_us > now_us]
        return min(running)[1] if running else None

    def stage(self, now_us: int) -> Stage:
        """How far the message is now."""
        if self.retired:
            return Stage.RETIRED
        if self.delivery is not None:
            return Stage.DELIVERED
        return Stage.HELD if self.claimant(now_us) is None else Stage.CLAIMED

    def is_forgettable(self, now_us: int) -> bool:
        """Whether no copy can be alive any more, so that nobody will ask."""
        return now_us > self.kept_until_us


def merge(one: Record, other: Record) -> Record:
    """What both know."""
    deliveries = [record.delivery for record in (one, other) if record.delivery is not None]
    return Record(
        reports=_newest(one.reports, other.reports),
        leases=_newest(one.leases, other.leases),
        delivery=min(deliveries, default=None),
        expired=one.expired or other.expired,
        retired=one.retired or other.retired,
        kept_until_us=max(one.kept_until_us, other.kept_until_us),
    )


def record_of(event: MessagePresenceEvent, copies_live_until_us: int) -> Record:
    """What one event says. `copies_live_until_us` is when the last copy expires, by the bundle's lifetime: the record
    is kept at least as long, whatever the event asks for."""
    reports: dict[str, Report] = {}
    leases: dict[str, Lease] = {}
    delivery = None
    match event.event:
        case "attempting":
            reports[event.agent] = Report(event.at_us, Standing.ATTEMPTS)
        case "propagated":
            reports[event.peer] = Report(event.at_us, Standing.HOLDS)
        case "claimed":
            leases[event.agent] = Lease(event.at_us, event.until_us)
        case "refused":
            reports[event.agent] = Report(event.at_us, Standing.REFUSED)
            leases[event.agent] = Lease(event.at_us, 0)
        case "delivered":
            delivery = Delivery(event.at_us, event.agent, event.peer)
        case "expired" | "retired":
            pass
    asked_us = 0 if event.event == "claimed" else event.until_us
    return Record(
        reports=reports,
        leases=leases,
        delivery=delivery,
        expired=event.event == "expired",
        retired=event.event == "retired",
        kept_until_us=max(asked_us, copies_live_until_us),
    )


class Decision(Enum):
    """What an agent that could deliver a message does about it (M11)."""

    CLAIM = auto()  # ask for the claim first
    DELIVER = auto()
    WAIT = auto()  # another agent has the claim
    ASK_FOR_RECEIPT = auto()  # it is delivered: drop the copy as soon as there is a receipt
    LEAVE = auto()  # its time is over


def decide(known: Record | None, agent: str, now_us: int) -> Decision:
    """What `agent` does, given what presence knows. None, an unknown message, means claim and never drop: a gateway
    remembers a limited number of messages."""
    if known is None:
        return Decision.CLAIM
    if known.delivery is not None or known.retired:
        return Decision.ASK_FOR_RECEIPT
    if known.expired:
        return Decision.LEAVE
    claimant = known.claimant(now_us)
    if claimant is None:
        return Decision.CLAIM
    return Decision.DELIVER if claimant == agent else Decision.WAIT


def decide_without_presence(waited_s: float, patience_s: float) -> Decision:
    """What an agent does while message presence is out of reach: a while later it may be back, and spare a duplicate;
    after `patience_s` seconds the message is delivered without a claim, and that is published later (M10)."""
    return Decision.DELIVER if waited_s >= patience_s else Decision.WAIT


def _newest(one: Mapping[str, V], other: Mapping[str, V]) -> dict[str, V]:
    return {agent: max(of[agent] for of in (one, other) if agent in of) for agent in one.keys() | other.keys()}
