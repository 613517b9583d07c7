"""What the merges of presence tell: states as they stand on the compacted topics, for tests of those who read them."""

from typing import Any

from schemas.states import Attachment, MessagePresenceState, PresenceState


def attachment(live: bool, at_us: int) -> Attachment:
    return Attachment(
        gateway="g",
        attachment="",
        boot=1,
        epoch=2,
        seq=0,
        event="connected",
        live=live,
        since_us=at_us,
        at_us=at_us,
        peer="p",
        protocol="mqtt5",
        reason="",
        user="",
    )


def client_state(client: str, online: bool, at_us: int) -> PresenceState:
    reason = "" if online else "why"
    return PresenceState(
        client=client, online=online, at_us=at_us, reason=reason, attachments=[attachment(online, at_us)]
    )


def mesh_state(message_id: str, kept_until_ms: int, **known: Any) -> MessagePresenceState:
    """Of a message that `a` tries to deliver; `known` beside that: `state`, `delivered_…`, `claim`."""
    undelivered = {"state": "pending", "delivered_by": "", "delivered_to": "", "delivered_us": 0, "claim": None}
    return MessagePresenceState(
        id=message_id,
        origin="a",
        holders=["a"],
        attempting=["a"],
        refused=[],
        retired=False,
        kept_until_ms=kept_until_ms,
        judged=0,
        **undelivered | known,
    )
