"""Futures for the server's answers, by packet id, and a way to wait until a client's state changes."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from edge.errors import PublishRefused
from mqtt.client_events import Published
from mqtt.codes import ReasonCode
from mqtt.packets import Publish, Suback, Unsuback

_FAILURE: Final = ReasonCode.UNSPECIFIED_ERROR
Answer: TypeAlias = Suback | Unsuback


class Answers:
    """Futures by packet id. Those of messages survive a reconnect; those of requests belong to one connection."""

    def __init__(self) -> None:
        self._messages: dict[int, asyncio.Future[ReasonCode]] = {}
        self._requests: dict[int, asyncio.Future[Answer]] = {}

    def to_publish(self, packet_id: int) -> asyncio.Future[ReasonCode]:
        """The server's reason code for a message; done at once if `packet_id` is 0 (QoS 0)."""
        future: asyncio.Future[ReasonCode] = asyncio.get_running_loop().create_future()
        if packet_id:
            self._messages[packet_id] = future
        else:
            future.set_result(ReasonCode.SUCCESS)
        return future

    def to_request(self, packet_id: int) -> asyncio.Future[Answer]:
        """The answer to SUBSCRIBE or UNSUBSCRIBE."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._requests[packet_id] = future
        return future

    def published(self, event: Published) -> None:
        """The exchange of a message has ended: sets the reason code, or PublishRefused for a failure."""
        future = self._messages.pop(event.packet_id, None)
        if future is None or future.done():
            return
        if event.reason_code < _FAILURE:
            future.set_result(event.reason_code)
        else:
            future.set_exception(PublishRefused(event.reason_code, event.properties))

    def answered(self, answer: Answer) -> None:
        """SUBACK or UNSUBACK has arrived."""
        future = self._requests.pop(answer.packet_id, None)
        if future is not None and not future.done():
            future.set_result(answer)

    def drop(self, messages: Iterable[Publish], error: Exception) -> None:
        """These messages will not be sent again: their futures raise `error`."""
        for message in messages:
            _fail(self._messages.pop(message.packet_id, None), error)

    def fail(self, error: Exception, *, published_too: bool) -> None:
        """No open request will be answered, and if `published_too` no message either: their futures raise `error`."""
        requests, self._requests = self._requests, {}
        for request in requests.values():
            _fail(request, error)
        if published_too:
            messages, self._messages = self._messages, {}
            for message in messages.values():
                _fail(message, error)


def _fail(future: asyncio.Future[Any] | None, error: Exception) -> None:
    if future is not None and not future.done():
        future.set_exception(error)
        future.exception()  # nobody has to await it: the client reports the end of the connection as well


class Changes:
    """Lets any number of tasks wait until a condition on a client's state holds."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Returns once the condition holds; it is checked again after each :meth:`wake`."""
        while not condition():
            change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(change)
            try:
                await change
            finally:
                self._waiting.discard(change)

    def wake(self) -> None:
        """The state has changed."""
        for change in self._waiting:
            if not change.done():
                change.set_result(None)
