"""Requests that wait for a reply: correlation data on the way out and back (MQTT 5.0, 4.10).

The reply goes to the client's own inbox. It is recognised by its correlation data: 16 random bytes that nobody else can
guess, behind a prefix. A reply that comes too late has the prefix, is acknowledged and counted, and goes to nobody.

A gateway of Waystation sends a receipt with the same correlation data if nobody has got the request (Q13). It cannot be
forged; other servers send none.
"""

import asyncio
import os
from collections.abc import Iterable
from typing import Final

from edge.client.errors import NotReceived, TooManyRequests
from edge.client.message import IncomingMessage, Receipt
from schemas.receipts import RECEIPT_PROPERTY, ReceiptKind

_PREFIX: Final = b"waystation-request:"
ASKED: Final[ReceiptKind] = "failed"


class Requests:
    """Read-only: `late`, the number of replies that came too late."""

    def __init__(self, requests_max: int) -> None:
        self._requests_max = requests_max
        self._waiting: dict[bytes, asyncio.Future[IncomingMessage]] = {}
        self.late = 0

    def begin(self) -> tuple[bytes, asyncio.Future[IncomingMessage]]:
        """Correlation data for a request, and the reply. Call :meth:`end` afterwards. Raises TooManyRequests."""
        if len(self._waiting) >= self._requests_max:
            raise TooManyRequests(f"{self._requests_max} requests wait for a reply: send more when some have one")
        correlation = _PREFIX + os.urandom(16)
        reply: asyncio.Future[IncomingMessage] = asyncio.get_running_loop().create_future()
        self._waiting[correlation] = reply
        return correlation, reply

    def end(self, correlation: bytes) -> None:
        """Nobody waits for the reply any more."""
        self._waiting.pop(correlation, None)

    def take(self, message: IncomingMessage) -> bool:
        """Whether the message is a reply: then it is acknowledged, and whoever waits for it has it."""
        correlation = message.correlation
        if correlation is None or not correlation.startswith(_PREFIX) or message.response_topic is not None:
            return False
        receipt = message.receipt
        if receipt is not None and receipt.receipt != ASKED:
            return False  # the application has asked for it
        reply = self._waiting.pop(correlation, None)
        message.acknowledge()
        if reply is None or reply.done():
            self.late += 1
        elif receipt is not None:
            reply.set_exception(NotReceived(f"nobody has got the request ({_in_words(receipt)})"))
        else:
            reply.set_result(message)
        return True

    def fail(self, error: Exception) -> None:
        """No reply will come."""
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(error)
                reply.exception()


def with_receipt(user_properties: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The user properties of a request: it asks for a receipt, unless the application does."""
    pairs = list(user_properties)
    return pairs if any(name == RECEIPT_PROPERTY for name, _ in pairs) else [*pairs, (RECEIPT_PROPERTY, ASKED)]


def _in_words(receipt: Receipt) -> str:
    return ", ".join(f"{outcome}: {count}" for outcome, count in receipt.outcomes.items()) or "nobody wanted it"
