"""Events for message presence, as the agent and the uplink report them (M6, M9, M11-M13). Pure.

| event | who reports it | when |
|---|---|---|
| propagated | the agent | a peer has stored a copy |
| attempting | the uplink | it begins to deliver another's message |
| claimed | the uplink | it asks for the claim, and renews it; never logged: a claim is of no use later |
| delivered | the uplink | there is a receipt for a message of which others have copies |
| refused | the uplink | the gateway refuses a message that was claimed: this ends the claim |
| retired | whichever of both gets the receipt | a message of this agent, of which others have copies, is delivered |
| expired | the agent | the lifetime of its own message, of which others have copies, is over |

Records are kept as long as any copy can live: `until_us`, by the originator's clock.
"""

from typing import Literal

from bundles.bundle import Header
from schemas.events import MessagePresenceEvent
from schemas.mesh_api import ReportedEvent

Kind = Literal["propagated", "attempting", "delivered", "refused", "retired", "expired"]
KEPT_S = 86_400
"""For how long a record is kept after the last copy has expired: clocks differ."""


def propagated(header: Header, agent: str, peer: str, at_us: int) -> MessagePresenceEvent:
    """The agent has given a copy to the peer."""
    return _event(header, "propagated", agent, at_us, peer=peer)


def attempting(header: Header, agent: str, at_us: int) -> MessagePresenceEvent:
    """The agent tries to deliver on behalf of the originator."""
    return _event(header, "attempting", agent, at_us)


def claimed(header: Header, agent: str, at_us: int) -> MessagePresenceEvent:
    """The agent asks for the claim. How long it lasts, the platform says (`claim_s`): an end by the clock of a device
    that is late would be over already."""
    return MessagePresenceEvent(
        id=header.message_id, event="claimed", agent=agent, at_us=at_us, origin=header.originator
    )


def delivered(header: Header, agent: str, peer: str, at_us: int) -> MessagePresenceEvent:
    """The agent has delivered it to the peer, whose receipt it has."""
    return _event(header, "delivered", agent, at_us, peer=peer)


def refused(header: Header, agent: str, reason: str, at_us: int) -> MessagePresenceEvent:
    """The agent does not deliver it any more."""
    return _event(header, "refused", agent, at_us, reason=reason[:1024])


def retired(header: Header, agent: str, at_us: int) -> MessagePresenceEvent:
    """The originator knows what became of it."""
    return _event(header, "retired", agent, at_us)


def expired(header: Header, agent: str, at_us: int) -> MessagePresenceEvent:
    """Its lifetime is over."""
    return _event(header, "expired", agent, at_us)


def reported(event: MessagePresenceEvent) -> ReportedEvent:
    """The event as it is sent: the gateway knows the agent."""
    return ReportedEvent(
        id=event.id,
        event=event.event,
        at_us=event.at_us,
        origin=event.origin,
        peer=event.peer,
        reason=event.reason,
        until_us=event.until_us,
    )


def _event(
    header: Header, kind: Kind, agent: str, at_us: int, *, peer: str = "", reason: str = ""
) -> MessagePresenceEvent:
    until_us = header.created_ms * 1000 + (header.lifetime_s + KEPT_S) * 1_000_000
    return MessagePresenceEvent(
        id=header.message_id,
        event=kind,
        agent=agent,
        at_us=at_us,
        origin=header.originator,
        peer=peer,
        reason=reason,
        until_us=min(until_us, 253_402_300_799_000_000),
    )
