"""Message presence as a fold: what all agents together know of one message, and how an event changes it (M9, M11, M12).

All but the claim is a join semilattice: the same in whatever order events come, and however many copies of them. The
earliest delivery is kept; of what was said of an agent the newest counts; the record is kept for the longest time asked
for. `most` bounds the agents of a message: beyond it those are forgotten of whom nothing new was heard for longest.

A claim is granted in the order of the log: all events of a message stand on one partition, and a claim that was judged
is not judged again. It is granted if there is something to deliver and nobody else has a claim that is not over, and
holds until the time asked for, at most `claim_s`; the broker's clock decides. Whoever refuses the message later gives
its claim up. An agent may ask again: a copy of what it asked before takes nothing away from what it was granted since.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec

from schemas.states import Claim, MessagePresenceState, Word

HOLDS, ATTEMPTS, REFUSED = 0, 1, 2
_WORDS: tuple[Literal["propagated", "attempting", "refused"], ...] = ("propagated", "attempting", "refused")
"""The event by its rank."""


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
    """What is known of a message; `judged` is the offset of the last claim that was judged, `judged_ms` when it was
    appended, the latest of all."""

    origin: str = ""
    delivery: Delivery | None = None
    expired: bool = False
    retired: bool = False
    agents: dict[str, Standing] = {}
    claim: Claim | None = None
    kept_until_ms: int = 0
    judged: int = -1
    judged_ms: int = 0

    def is_judged(self, event: Told) -> bool:
        """Whether it is a claim, or what came with one, that is replayed. A greater time tells what stands on a topic
        that was made anew, where offsets begin anew: on one and the same it grows with them."""
        return event.offset <= self.judged and event.appended_ms <= self.judged_ms


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
        judged_ms=known.judged_ms,
        said=[
            Word(agent=agent, event=_WORDS[standing.rank], at_us=standing.at_us, reason=standing.reason)
            for agent, standing in sorted(known.agents.items())
        ],
    )


def known_from(told: MessagePresenceState) -> Custody:
    """What is known of a message by what others have been told: all that changes what they are told next."""
    delivery = Delivery(told.delivered_us, told.delivered_by, told.delivered_to)
    return Custody(
        origin=told.origin,
        delivery=delivery if told.state == "delivered" else None,
        expired=told.state == "expired",
        retired=told.retired,
        agents={word.agent: Standing(word.at_us, _WORDS.index(word.event), word.reason) for word in told.said},
        claim=told.claim,
        kept_until_ms=told.kept_until_ms,
        judged=told.judged,
        judged_ms=told.judged_ms,
    )


def _merged(known: Custody, event: Told, limits: Limits) -> Custody:
    delivery = Delivery(event.at_us, event.agent, event.peer) if event.event == "delivered" else None
    origins = [name for name in (known.origin, event.origin) if name]
    is_new_claim = event.event == "claimed" and not known.is_judged(event)
    return Custody(
        origin=min(origins, default=""),
        delivery=min([one for one in (known.delivery, delivery) if one], default=None),
        expired=known.expired or event.event == "expired",
        retired=known.retired or event.event == "retired",
        agents=_agents(known.agents, event, limits.most),
        claim=_claim(known, event, limits.claim_s),
        kept_until_ms=max(known.kept_until_ms, _kept_until_ms(event, limits.kept_s)),
        judged=event.offset if is_new_claim else known.judged,
        judged_ms=max(known.judged_ms, event.appended_ms) if is_new_claim else known.judged_ms,
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
    """The claim after an event that was not judged yet."""
    claim = known.claim
    if known.is_judged(event):
        return claim
    if event.event == "refused":
        is_given_up = claim is not None and claim.agent == event.agent and event.at_us > claim.at_us
        return None if is_given_up else claim
    if event.event != "claimed" or known.delivery is not None or known.expired or known.retired:
        return claim
    standing = known.agents.get(event.agent)
    if standing is not None and standing.rank == REFUSED and standing.at_us > event.at_us:  # a copy of what it gave up
        return claim
    longest_ms = event.appended_ms + int(claim_s * 1000)
    until_ms = min(longest_ms, event.until_us // 1000) if event.until_us else longest_ms
    if until_ms <= event.appended_ms:
        return claim
    if claim is not None and claim.until_ms > event.appended_ms:
        return _again(claim, event, until_ms) if claim.agent == event.agent else claim
    return Claim(agent=event.agent, at_us=event.at_us, until_ms=until_ms)


def _again(claim: Claim, event: Told, until_ms: int) -> Claim:
    """A claim whose holder asks once more. What it asked before it asked for this one counts no more."""
    if event.at_us < claim.at_us:
        return claim
    if event.at_us == claim.at_us:
        until_ms = max(until_ms, claim.until_ms)
    return Claim(agent=event.agent, at_us=event.at_us, until_ms=until_ms)


def _kept_until_ms(event: Told, kept_s: float) -> int:
    longest_ms = event.at_us // 1000 + int(kept_s * 1000)
    is_asked = event.until_us and event.event != "claimed"
    return min(longest_ms, event.until_us // 1000) if is_asked else longest_ms
