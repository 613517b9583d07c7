"""Requests that wait for a reply: correlation data on the way out and back (MQTT 5.0, 4.10).

The reply goes to the client's own inbox. It is recognised by its correlation data: 16 random bytes that nobody else can
guess, behind a prefix. A reply that comes too late has the prefix, is acknowledged and counted, and goes to nobody.
"""

import asyncio
import os
from typing import Final

from edge.client.errors import TooManyRequests
from edge.client.message import IncomingMessage

_PREFIX: Final = b"waystation-request:"


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
        reply = self._waiting.pop(correlation, None)
        message.acknowledge()
        if reply is None or reply.done():
            self.late += 1
        else:
            reply.set_result(message)
        return True

    def fail(self, error: Exception) -> None:
        """No reply will come."""
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(error)
                reply.exception()
