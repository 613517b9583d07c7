"""Messages that wait for the application, bounded (G13).

The gateway sends no more QoS 1 and 2 messages than the client's Receive Maximum, which is the inbox's limit, and goes
on when the application has acknowledged some. So an application that never reads can still publish. QoS 0 messages, and
those of servers of MQTT 3.1.1, have no such limit: reading from the network stops while the inbox has more.
"""

from collections import deque
from collections.abc import Callable

from edge.answers import Changes
from edge.client.message import IncomingMessage


class Inbox:
    """An asynchronous iterator, one for the whole client. `pause` is called with True when the inbox has too many, and
    with False when it is half empty."""

    def __init__(self, messages_max: int, pause: Callable[[bool], None]) -> None:
        self._messages_max, self._pause = messages_max, pause
        self._waiting: deque[IncomingMessage] = deque()
        self._given: IncomingMessage | None = None
        self._changes = Changes()
        self._is_paused = self._has_ended = False
        self._error: Exception | None = None

    def put(self, message: IncomingMessage) -> None:
        """A message has arrived."""
        self._waiting.append(message)
        self.pause_if_full()
        self._changes.wake()

    def pause_if_full(self) -> None:
        """Call it when a new connection begins, which reads."""
        if len(self._waiting) > self._messages_max:
            self._is_paused = True
            self._pause(True)

    def end(self, error: Exception | None = None) -> None:
        """No more messages arrive; what waits is not given, and comes again with the next connection."""
        self._has_ended, self._error = True, error
        self._changes.wake()

    def __aiter__(self) -> "Inbox":
        return self

    async def __anext__(self) -> IncomingMessage:
        given, self._given = self._given, None
        if given is not None:
            given.acknowledge()
        self._given = await self.take()
        return self._given

    async def take(self) -> IncomingMessage:
        """The next one, which the caller acknowledges. Raises StopAsyncIteration at the end."""
        await self._changes.until(lambda: bool(self._waiting) or self._has_ended)
        if self._has_ended:
            if self._error is not None:
                raise self._error
            raise StopAsyncIteration
        taken = self._waiting.popleft()
        if self._is_paused and len(self._waiting) <= self._messages_max // 2:
            self._is_paused = False
            self._pause(False)
        return taken
