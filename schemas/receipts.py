"""Receipts: what a sender learns of its message (Q13).

A client asks with the user property `receipt` of a PUBLISH. The platform answers with a message to the client's inbox,
which has the same correlation data, the content type `application/json`, and what :func:`receipt_payload` gives. It has
the user property `waystation-receipt`, with which nobody but the platform may publish.

| `receipt`   | the sender gets one receipt                                                          |
|-------------|--------------------------------------------------------------------------------------|
| `delivered` | once the first recipient has the message; if it ends without one, then               |
| `completed` | once the message is complete: no recipient is left that may get it                   |
| `failed`    | once the message is complete, and only if no recipient has got it                    |
| `read`      | once the first recipient has read it; if it ends without a recipient, then           |

Other values mean nothing to the platform: the property may be an application's own.

Only a recipient's program knows that a message is read. A message with the receipt `read` has its id with it, as the
user property `message-id`, the last of that name. The recipient publishes to `$read/<id>`; the payload means nothing.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal, get_args

import msgspec

ReceiptKind = Literal["delivered", "completed", "failed", "read"]
KINDS: Final[tuple[ReceiptKind, ...]] = get_args(ReceiptKind)

RECEIPT_PROPERTY: Final = "receipt"
"""The user property with which a client asks."""

RECEIPT_MARK: Final = "waystation-receipt"
"""The user property of receipts: which one it is. Gateways refuse it from clients, so recipients can rely on it."""

MESSAGE_ID_PROPERTY: Final = "message-id"
READ_START: Final = "$read/"
"""How the topics begin to which recipients publish what they have read."""

_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

RECEIPTS_SOURCE: Final = "$receipts"
"""The sender of receipts."""

MOST_CORRELATION_BYTES: Final = 1_024
"""The longest correlation data of a message with a receipt: the platform keeps it until the receipt is sent."""

HAS_IT: Final = ("delivered", "sent")
"""Outcomes (:class:`schemas.events.RecipientOutcome`) of recipients that have got a message."""


class ReceiptRequest(msgspec.Struct, frozen=True, kw_only=True):
    """In an `asked` event on `progress`: the client `to` asks for a receipt. `properties` is the MQTT 5.0 property
    section of the receipt, as on the wire, in base64."""

    kind: ReceiptKind
    to: str
    properties: str


def read_message(topic: str) -> str | None:
    """The id of the message that a client says it has read by publishing to `topic`; None if there is no such id."""
    message_id = topic.removeprefix(READ_START)
    return message_id if _ID.fullmatch(message_id) else None


def receipt_payload(
    message_id: str, kind: ReceiptKind, outcomes: Mapping[str, int], readers: int, *, is_complete: bool
) -> dict[str, object]:
    """The receipt, for JSON: the id of the message; the receipt asked for; how many recipients have got it so far, and
    have read it; whether it is complete; how many recipients had which outcome."""
    recipients = sum(outcomes.get(outcome, 0) for outcome in HAS_IT)
    counts = {"recipients": recipients, "read": readers}
    return {"message_id": message_id, "receipt": kind, **counts, "complete": is_complete, "outcomes": dict(outcomes)}
