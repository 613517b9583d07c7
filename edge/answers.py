"""Those who wait: for answers of the server by packet id, and for changes of a client's state."""

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
    """Futures by packet id: of messages, over any number of connections; of requests, on one."""

    def __init__(self) -> None:
        self._messages: dict[int, asyncio.Future[ReasonCode]] = {}
        self._requests: dict[int, asyncio.Future[Answer]] = {}

    def to_publish(self, packet_id: int) -> asyncio.Future[ReasonCode]:
        """The server's reason code for a message; at once where there is no packet id."""
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
        """A message is done with; PublishRefused for a failure."""
        future = self._messages.pop(event.packet_id, None)
        if future is None or future.done():
            return
        if event.reason_code < _FAILURE:
            future.set_result(event.reason_code)
        else:
            future.set_exception(PublishRefused(event.reason_code, event.properties))

    def answered(self, answer: Answer) -> None:
        """A request is."""
        future = self._requests.pop(answer.packet_id, None)
        if future is not None and not future.done():
            future.set_result(answer)

    def drop(self, messages: Iterable[Publish], error: Exception) -> None:
        """These messages are not sent any more."""
        for message in messages:
            _fail(self._messages.pop(message.packet_id, None), error)

    def fail(self, error: Exception, *, published_too: bool) -> None:
        """No answer to a request comes any more; none to messages either if `published_too`."""
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
        future.exception()  # nobody has to look: the client reports the end of the connection as well


class Changes:
    """Lets any number of tasks wait until a condition on a client's state holds."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Returns once the condition holds, which is looked at after each :meth:`wake`."""
        while not condition():
            change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(change)
            try:
                await change
            finally:
                self._waiting.discard(change)

    def wake(self) -> None:
        """Something has changed."""
        for change in self._waiting:
            if not change.done():
                change.set_result(None)
