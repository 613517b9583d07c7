"""User properties with which nobody but the platform may publish: recipients can rely on them (Q13, R6). Pure."""

from typing import Final

from mqtt.packets import Properties
from schemas.conversations import RECEIVER
from schemas.receipts import RECEIPT_MARK

_MARKS: Final = frozenset({RECEIPT_MARK, RECEIVER})


def is_forged(properties: Properties) -> bool:
    """Whether a message of a client with these properties would pass for one of the platform."""
    return any(name in _MARKS for name, _ in properties.get("user_property", ()))


def is_receipt(properties: Properties) -> bool:
    """Whether a message with these properties is a receipt."""
    return any(name == RECEIPT_MARK for name, _ in properties.get("user_property", ()))
