"""Requests that are sent again because no reply has come (R6).

They have the user property `request-repeated` with the value `true`: another receiver, or this one, may have had the
request before. In a share group the next member gets it.
"""

from collections.abc import Iterable
from typing import Final

REPEATED: Final = "request-repeated"


def repeated(user_properties: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The user properties of a request that is sent again: those that it had the first time, and the mark."""
    return [*user_properties, (REPEATED, "true")]
