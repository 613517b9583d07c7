"""Requests that wait for replies: correlation data on the way out and back (MQTT 5.0, 4.10).

Replies go to the client's own inbox. They are recognised by their correlation data: 16 random bytes that nobody else
can guess, behind a prefix. A reply that comes too late has the prefix, is acknowledged and counted, and goes to nobody.

A gateway of Waystation sends a receipt with the same correlation data (Q13): that nobody has got the request, or how
many have got it. It cannot be forged; other servers send none.
"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from edge.client.errors import TooManyRequests
from edge.client.message import IncomingMessage, Message, Receipt
from schemas.receipts import ReceiptKind

_PREFIX: Final = b"waystation-request:"

Answer = IncomingMessage | Receipt
"""A reply, which is not acknowledged yet, or the receipt of the request."""


class Request:
    """One that waits; `receipt` is the one that it asks for. Only :class:`Requests` makes it."""

    def __init__(self, receipt: ReceiptKind) -> None:
        self.receipt = receipt
        self.correlation = _PREFIX + os.urandom(16)
        self._answers: asyncio.Queue[Answer | Exception] = asyncio.Queue()
        self._sending: asyncio.Task[None] | None = None

    def sent(self, message: Message) -> None:
        """The client has accepted the request: if the gateway refuses it, no answer comes."""
        self._sending = asyncio.ensure_future(_done(message))
        self._sending.add_done_callback(self._sent)

    def put(self, answer: Answer | Exception) -> None:
        self._answers.put_nowait(answer)

    async def answer(self) -> Answer:
        """The next one. Raises PublishRefused, and what ended the client."""
        found = await self._answers.get()
        if isinstance(found, Exception):
            raise found
        return found

    def end(self) -> None:
        """Nobody takes any more."""
        if self._sending is not None:
            self._sending.cancel()
        while not self._answers.empty():
            left = self._answers.get_nowait()
            if isinstance(left, IncomingMessage):
                left.acknowledge()

    def _sent(self, sending: asyncio.Task[None]) -> None:
        error = None if sending.cancelled() else sending.exception()
        if isinstance(error, Exception):
            self.put(error)


class Requests:
    """Read-only: `late`, the number of replies that came too late."""

    def __init__(self, requests_max: int) -> None:
        self._requests_max = requests_max
        self._waiting: dict[bytes, Request] = {}
        self.late = 0

    @contextmanager
    def begin(self, receipt: ReceiptKind) -> Iterator[Request]:
        """A request that takes answers inside the context. Raises TooManyRequests."""
        if len(self._waiting) >= self._requests_max:
            raise TooManyRequests(f"{self._requests_max} requests wait for a reply: send more when some have one")
        request = Request(receipt)
        self._waiting[request.correlation] = request
        try:
            yield request
        finally:
            del self._waiting[request.correlation]
            request.end()

    def take(self, message: IncomingMessage) -> bool:
        """Whether the message is an answer: then whoever waits for it has it. The notice that the receiver of a
        conversation is gone is none: the next receiver has the request, and may reply."""
        correlation = message.correlation
        if correlation is None or not correlation.startswith(_PREFIX) or message.response_topic is not None:
            return False
        if message.conversation_gone is not None:
            return False
        request, receipt = self._waiting.get(correlation), message.receipt
        if receipt is not None and request is not None and receipt.receipt != request.receipt:
            return False  # the application has asked for it
        if receipt is not None or request is None:
            message.acknowledge()
        if request is None:
            self.late += receipt is None
        else:
            request.put(message if receipt is None else receipt)
        return True

    def fail(self, error: Exception) -> None:
        """No reply will come."""
        for request in self._waiting.values():
            request.put(error)


async def _done(message: Message) -> None:
    await message.acknowledged
