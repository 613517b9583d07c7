"""Requests that are sent again because no reply has come (R6).

They have the user property `request-repeated` with the value `true`: another receiver, or this one, may have had the
request before. In a share group the next member gets it. They ask for no receipt: the first one may still be answered.
"""

from collections.abc import Iterable
from typing import Final

from schemas.receipts import KINDS, RECEIPT_PROPERTY

REPEATED: Final = "request-repeated"


def repeated(user_properties: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The user properties of a request that is sent again, from those that it had the first time."""
    kept = [(name, value) for name, value in user_properties if name != RECEIPT_PROPERTY or value not in KINDS]
    return [*kept, (REPEATED, "true")]
