"""Message presence as a fold: what all agents together know of one message, and how an event changes it (M9, M11, M12).

All but the claim is a join semilattice: the same in whatever order events come, and however many copies of them. The
earliest delivery is kept; of what was said of an agent the newest counts; the record is kept for the longest time asked
for. `most` bounds the agents of a message: beyond it those are forgotten of whom nothing new was heard for longest.

A claim is granted in the order of the log: all events of a message stand on one partition, and a claim that was judged
is not judged again. It is granted if nobody else has one that is not over, and holds until the time asked for, at most
`claim_s`; the broker's clock decides. Whoever refuses the message later gives its claim up.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from schemas.states import Claim, MessagePresenceState

HOLDS, ATTEMPTS, REFUSED = 0, 1, 2


class Told(NamedTuple):
    """An event, as :class:`schemas.events.MessagePresenceEvent` has it, and where and when it was appended."""

    offset: int
    appended_ms: int
    event: str
    agent: str
    at_us: int
    origin: str
    peer: str
    reason: str
    until_us: int


class Limits(NamedTuple):
    """`kept_s` is how long the record of a message is kept after an event: the most it may ask for, and usual."""

    claim_s: float
    kept_s: float
    most: int


class Standing(NamedTuple):
    """The newest that was said of an agent."""

    at_us: int
    rank: int
    reason: str


class Delivery(NamedTuple):
    """By whom and to whom, and when."""

    at_us: int
    by: str
    to: str


class Custody(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a message; `judged` is the offset of the last claim that was judged."""

    origin: str = ""
    delivery: Delivery | None = None
    expired: bool = False
    retired: bool = False
    agents: dict[str, Standing] = {}
    claim: Claim | None = None
    kept_until_ms: int = 0
    judged: int = -1


def after(known: Custody, events: Iterable[Told], limits: Limits) -> Custody:
    """What is known after `events`, in whatever order they are given; equal to `known` if they bring nothing new."""
    for event in sorted(events):
        known = _merged(known, event, limits)
    return known


def is_news(old: Custody, new: Custody) -> bool:
    """Whether others have to be told."""
    return old != new


def state_of(message_id: str, known: Custody) -> MessagePresenceState:
    """What others are told of a message."""

    def of_rank(*ranks: int) -> list[str]:
        return sorted(agent for agent, standing in known.agents.items() if standing.rank in ranks)

    delivery = known.delivery or Delivery(0, "", "")
    return MessagePresenceState(
        id=message_id,
        state="delivered" if known.delivery else "expired" if known.expired else "pending",
        origin=known.origin,
        delivered_by=delivery.by,
        delivered_to=delivery.to,
        delivered_us=delivery.at_us,
        holders=of_rank(HOLDS, ATTEMPTS),
        attempting=of_rank(ATTEMPTS),
        refused=of_rank(REFUSED),
        claim=known.claim,
        retired=known.retired,
        kept_until_ms=known.kept_until_ms,
        judged=known.judged,
    )


def known_from(told: MessagePresenceState) -> Custody:
    """What is known of a message by what others have been told, as far as that says it: of agents not when, so that
    whatever is heard of them counts more."""
    delivery = Delivery(told.delivered_us, told.delivered_by, told.delivered_to)
    ranks = {HOLDS: told.holders, ATTEMPTS: told.attempting, REFUSED: told.refused}
    return Custody(
        origin=told.origin,
        delivery=delivery if told.state == "delivered" else None,
        expired=told.state == "expired",
        retired=told.retired,
        agents={agent: Standing(0, rank, "") for rank, agents in ranks.items() for agent in agents},
        claim=told.claim,
        kept_until_ms=told.kept_until_ms,
        judged=told.judged,
    )


def _merged(known: Custody, event: Told, limits: Limits) -> Custody:
    delivery = Delivery(event.at_us, event.agent, event.peer) if event.event == "delivered" else None
    origins = [name for name in (known.origin, event.origin) if name]
    return Custody(
        origin=min(origins, default=""),
        delivery=min([one for one in (known.delivery, delivery) if one], default=None),
        expired=known.expired or event.event == "expired",
        retired=known.retired or event.event == "retired",
        agents=_agents(known.agents, event, limits.most),
        claim=_claim(known, event, limits.claim_s),
        kept_until_ms=max(known.kept_until_ms, _kept_until_ms(event, limits.kept_s)),
        judged=max(known.judged, event.offset) if event.event == "claimed" else known.judged,
    )


def _agents(agents: dict[str, Standing], event: Told, most: int) -> dict[str, Standing]:
    match event.event:
        case "attempting":
            agent, standing = event.agent, Standing(event.at_us, ATTEMPTS, "")
        case "propagated":
            agent, standing = event.peer, Standing(event.at_us, HOLDS, "")
        case "refused":
            agent, standing = event.agent, Standing(event.at_us, REFUSED, event.reason)
        case _:
            return agents
    newest = {**agents, agent: max(standing, agents.get(agent, standing))}
    if len(newest) > most:
        del newest[min(newest, key=lambda name: (newest[name], name))]
    return newest


def _claim(known: Custody, event: Told, claim_s: float) -> Claim | None:
    claim = known.claim
    is_later = event.offset > known.judged  # but for events that are replayed
    if claim is not None and event.event == "refused" and claim.agent == event.agent and event.at_us > claim.at_us:
        return None if is_later else claim
    if event.event != "claimed" or not is_later or known.delivery is not None or known.retired:
        return claim
    longest_ms = event.appended_ms + int(claim_s * 1000)
    until_ms = min(longest_ms, event.until_us // 1000) if event.until_us else longest_ms
    is_free = claim is None or claim.agent == event.agent or claim.until_ms <= event.appended_ms
    granted = Claim(agent=event.agent, at_us=event.at_us, until_ms=until_ms)
    return granted if is_free and until_ms > event.appended_ms else claim


def _kept_until_ms(event: Told, kept_s: float) -> int:
    longest_ms = event.at_us // 1000 + int(kept_s * 1000)
    is_asked = event.until_us and event.event != "claimed"
    return min(longest_ms, event.until_us // 1000) if is_asked else longest_ms
