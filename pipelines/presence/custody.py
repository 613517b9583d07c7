"""Message presence as a fold: what all agents together know of one message, and how an event changes it (M9, M11, M12).

Everything except the claim is a join semilattice: the result does not depend on order or copies. The earliest delivery
is kept, the newest report about each agent counts, and the record is kept for the longest time any agent asked for,
counted by the broker's clock, and while there is a claim.
`most` bounds the agents of a message; beyond it, those with the oldest reports are forgotten. So are those that do not
fit into `AGENTS_BYTES`, which only happens if agents have very long names; then which ones are left may depend on the
order.

A claim is granted in log order: all events of a message are on one partition, and a claim that was judged is not judged
again. It is granted if there is something to deliver and no other agent has a running claim. It holds until the time
asked for, at most for `claim_s`, by the broker's clock. An agent that refuses the message later gives up its claim. An
agent may ask again; a copy of an earlier request takes nothing from what the agent was granted since.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec

from schemas.states import Claim, LastReport, MessagePresenceState

HOLDS, ATTEMPTS, REFUSED = 0, 1, 2
_REPORTED: tuple[Literal["propagated", "attempting", "refused"], ...] = ("propagated", "attempting", "refused")
"""Event names by rank."""


AGENTS_BYTES = 800_000
"""The most that the agents of a message take in its published state; the rest is at most six names
(`schemas.events.NAME_CHARACTERS`), of which each character takes up to 6 bytes.
Kafka's client refuses a record above 1,000,000 bytes, and brokers refuse one above 1 MiB (`message.max.bytes`)."""
REASON_CHARACTERS = 100
"""How much of a reason is kept; the history has all of it."""
_REPORT_BYTES = 100 + 6 * REASON_CHARACTERS
"""The largest report of an agent as JSON, without the agent's name. An escaped character takes 6 bytes."""
_MENTIONS = 3
"""How often the published state names an agent: in its report, as a holder, and as attempting."""


class AgentReport(NamedTuple):
    """An event, as in :class:`schemas.events.MessagePresenceEvent`, with its offset and append time."""

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
    """`kept_s` is how long the record of a message is kept after an event: the default, and the most an event may ask
    for."""

    claim_s: float
    kept_s: float
    most: int


class Standing(NamedTuple):
    """The newest report about an agent."""

    at_us: int
    rank: int
    reason: str


class Delivery(NamedTuple):
    """By whom and to whom a message was delivered, and when."""

    at_us: int
    by: str
    to: str


class Custody(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a message. `judged` is the offset of the last claim that was judged; `judged_ms` is the latest
    append time of any judged claim."""

    origin: str = ""
    delivery: Delivery | None = None
    expired: bool = False
    retired: bool = False
    agents: dict[str, Standing] = {}
    claim: Claim | None = None
    kept_until_ms: int = 0
    judged: int = -1
    judged_ms: int = 0

    def is_judged(self, event: AgentReport) -> bool:
        """Whether the event is a claim that was judged, or came with one, and is re-read. A later append time marks an
        event on a recreated topic, where offsets start again; on the same topic, append times grow with offsets."""
        return event.offset <= self.judged and event.appended_ms <= self.judged_ms


def after(known: Custody, events: Iterable[AgentReport], limits: Limits) -> Custody:
    """What is known after `events`, given in any order; equal to `known` if they add nothing."""
    for event in sorted(events):
        known = _merged(known, event, limits)
    return known


def is_news(old: Custody, new: Custody) -> bool:
    """Whether there is a change to report."""
    return old != new


def state_of(message_id: str, known: Custody) -> MessagePresenceState:
    """The published state of a message."""

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
        reports=[
            LastReport(agent=agent, event=_REPORTED[standing.rank], at_us=standing.at_us, reason=standing.reason)
            for agent, standing in sorted(known.agents.items())
        ],
    )


def known_from(published: MessagePresenceState) -> Custody:
    """What is known of a message, rebuilt from its published state: everything that affects later states."""
    delivery = Delivery(published.delivered_us, published.delivered_by, published.delivered_to)
    return Custody(
        origin=published.origin,
        delivery=delivery if published.state == "delivered" else None,
        expired=published.state == "expired",
        retired=published.retired,
        agents={
            report.agent: Standing(report.at_us, _REPORTED.index(report.event), report.reason[:REASON_CHARACTERS])
            for report in published.reports
        },
        claim=published.claim,
        kept_until_ms=published.kept_until_ms,
        judged=published.judged,
        judged_ms=published.judged_ms,
    )


def _merged(known: Custody, event: AgentReport, limits: Limits) -> Custody:
    delivery = Delivery(event.at_us, event.agent, event.peer) if event.event == "delivered" else None
    origins = [name for name in (known.origin, event.origin) if name]
    claim = _claim(known, event, limits.claim_s)
    is_new_claim = event.event == "claimed" and not known.is_judged(event)
    return Custody(
        origin=min(origins, default=""),
        delivery=min([one for one in (known.delivery, delivery) if one], default=None),
        expired=known.expired or event.event == "expired",
        retired=known.retired or event.event == "retired",
        agents=_agents(known.agents, event, limits.most),
        claim=claim,
        kept_until_ms=max(
            known.kept_until_ms, _kept_until_ms(event, limits.kept_s), 0 if claim is None else claim.until_ms
        ),
        judged=event.offset if is_new_claim else known.judged,
        judged_ms=max(known.judged_ms, event.appended_ms) if is_new_claim else known.judged_ms,
    )


def _agents(agents: dict[str, Standing], event: AgentReport, most: int) -> dict[str, Standing]:
    match event.event:
        case "attempting":
            agent, standing = event.agent, Standing(event.at_us, ATTEMPTS, "")
        case "propagated":
            agent, standing = event.peer, Standing(event.at_us, HOLDS, "")
        case "refused":
            agent, standing = event.agent, Standing(event.at_us, REFUSED, event.reason[:REASON_CHARACTERS])
        case _:
            return agents
    newest = {**agents, agent: max(standing, agents.get(agent, standing))}
    is_new = agent not in agents  # only then do their names take more
    while len(newest) > most or (is_new and sum(map(_published_bytes, newest)) > AGENTS_BYTES):
        del newest[min(newest, key=lambda name: (newest[name], name))]
    return newest


def _published_bytes(agent: str) -> int:
    """The most that an agent of this name takes in a published state."""
    return _MENTIONS * (len(msgspec.json.encode(agent)) + 1) + _REPORT_BYTES


def _claim(known: Custody, event: AgentReport, claim_s: float) -> Claim | None:
    """The claim after an event that may not have been judged yet."""
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


def _again(claim: Claim, event: AgentReport, until_ms: int) -> Claim:
    """A claim that its holder asks for again. A request made before the one that was granted no longer counts."""
    if event.at_us < claim.at_us:
        return claim
    if event.at_us == claim.at_us:
        until_ms = max(until_ms, claim.until_ms)
    return Claim(agent=event.agent, at_us=event.at_us, until_ms=until_ms)


def _kept_until_ms(event: AgentReport, kept_s: float) -> int:
    """By the broker's clock: an agent's may be wrong by more than `kept_s`. So what the agent asks for counts as a
    time from its report on."""
    kept_ms = int(kept_s * 1000)
    if event.until_us and event.event != "claimed":
        kept_ms = min(kept_ms, (event.until_us - event.at_us) // 1000)
    return event.appended_ms + kept_ms
