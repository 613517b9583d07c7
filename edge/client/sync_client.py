"""The client for programs without asyncio: the same client, on an event loop in a thread of its own.

with SyncClient(client_id="van-7", connect_points=["mqtt://gateway:1883"], store="van-7.outbox") as client:
    message = client.publish("vans/7/position", b"52.1 13.4")
    message.wait(timeout_s=60)
"""

import asyncio
import math
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack

from edge.client.client import Client
from edge.client.errors import ClientClosed
from edge.client.limits import Limits
from edge.client.message import IncomingMessage, Message, MessageState
from edge.client.options import ClientOptions, MessageOptions, RequestOptions
from edge.client.sending import OnFailed
from edge.loop_thread import LoopThread
from mqtt.codes import ReasonCode
from mqtt.packets import Subscription
from schemas.errors import WaystationError

T = TypeVar("T")
_CLOSED: Final = "the client is closed"


class SyncMessage:
    """A :class:`Message` whose end a thread can wait for."""

    def __init__(self, message: Message, client: "SyncClient") -> None:
        self._message, self._client = message, client

    @property
    def state(self) -> MessageState:
        return self._message.state

    @property
    def sequence(self) -> int:
        return self._message.sequence

    @property
    def topic(self) -> str:
        return self._message.topic

    def wait(self, timeout_s: float | None = None) -> None:
        """Returns once the gateway has the message. Raises as `await message.acknowledged`, and TimeoutError."""

        async def wait() -> None:
            async with asyncio.timeout(timeout_s):
                await self._message.acknowledged

        self._client.call(wait())


class SyncClient:
    """A context manager; any thread may call it. Arguments are those of :class:`Client`, and so are errors; without
    `with`, call :meth:`close`."""

    def __init__(
        self,
        *,
        store: str | Path | None = None,
        limits: Limits | None = None,
        on_failed: OnFailed | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self._client = Client(store=store, limits=limits, on_failed=on_failed, **options)
        self._loop = LoopThread("waystation-client", lambda: ClientClosed(_CLOSED))
        self._callbacks: list[threading.Thread] = []
        try:
            self.call(self._client.__aenter__())
        except BaseException:
            self._loop.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """See :meth:`Client.close`. Waits for callbacks that are running, unless called by one."""
        if self._loop.is_stopped:
            return
        self.call(self._client.close())
        for thread in self._callbacks:
            if thread is not threading.current_thread():
                thread.join()
        self._loop.stop()

    @property
    def is_connected(self) -> bool:
        return self._client.is_connected

    def connected(self) -> None:
        """See :meth:`Client.connected`."""
        self.call(self._client.connected())

    def publish(
        self, topic: str, payload: bytes | str = b"", *, retain: bool = False, **options: Unpack[MessageOptions]
    ) -> SyncMessage:
        """See :meth:`Client.publish`."""
        return SyncMessage(self.call(self._client.publish(topic, payload, retain=retain, **options)), self)

    def send(self, client_id: str, payload: bytes | str = b"", **options: Unpack[MessageOptions]) -> SyncMessage:
        """See :meth:`Client.send`."""
        return SyncMessage(self.call(self._client.send(client_id, payload, **options)), self)

    def drained(self) -> None:
        """See :meth:`Client.drained`."""
        self.call(self._client.drained())

    def subscribe(self, *filters: str | Subscription, qos: int = 1) -> list[ReasonCode]:
        """See :meth:`Client.subscribe`."""
        return self.call(self._client.subscribe(*filters, qos=qos))

    def unsubscribe(self, *filters: str) -> None:
        """See :meth:`Client.unsubscribe`."""
        self.call(self._client.unsubscribe(*filters))

    def subscribe_presence(self, client_id: str) -> None:
        """See :meth:`Client.subscribe_presence`."""
        self.call(self._client.subscribe_presence(client_id))

    def messages(self) -> Iterator[IncomingMessage]:
        """See :meth:`Client.messages`; blocks until the next one arrives."""
        stream = self._client.messages()

        async def following() -> IncomingMessage:
            return await anext(stream)

        while True:
            try:
                message = self.call(following())
            except StopAsyncIteration:
                return
            yield message.on_thread(self._loop.soon)

    def on_message(self, callback: Callable[[IncomingMessage], None]) -> None:
        """Calls `callback` with each message that arrives, in a thread of its own, one at a time. A message is
        acknowledged when the callback has returned; if it raises, the thread ends, and the message comes again in the
        next process."""

        def run() -> None:
            stream = self.messages()
            while True:
                try:
                    message = next(stream)
                except (StopIteration, WaystationError):
                    return  # closed, or ended by an error that every other call raises too
                callback(message)

        thread = threading.Thread(target=run, name="waystation-messages", daemon=True)
        self._callbacks.append(thread)
        thread.start()

    def request(
        self,
        topic: str,
        payload: bytes | str = b"",
        *,
        timeout_s: float,
        again_after_s: float = math.inf,
        **options: Unpack[RequestOptions],
    ) -> IncomingMessage:
        """See :meth:`Client.request`."""
        return self.call(
            self._client.request(topic, payload, timeout_s=timeout_s, again_after_s=again_after_s, **options)
        )

    def request_all(
        self, topic: str, payload: bytes | str = b"", *, timeout_s: float, **options: Unpack[RequestOptions]
    ) -> Iterator[IncomingMessage]:
        """See :meth:`Client.request_all`."""
        replies = self._client.request_all(topic, payload, timeout_s=timeout_s, **options)
        try:
            while (reply := self.call(_next(replies))) is not None:
                yield reply
        finally:
            self.call(_end(replies))

    def reply(
        self, message: IncomingMessage, payload: bytes | str = b"", **options: Unpack[MessageOptions]
    ) -> SyncMessage:
        """See :meth:`Client.reply`."""
        return SyncMessage(self.call(self._client.reply(message, payload, **options)), self)

    def tell_read(self, message: IncomingMessage) -> SyncMessage:
        """See :meth:`Client.tell_read`."""
        return SyncMessage(self.call(self._client.tell_read(message)), self)

    def call(self, action: Coroutine[Any, Any, T]) -> T:
        """Runs `action` on the client's loop; its result."""
        return self._loop.call(action)


async def _next(replies: AsyncGenerator[IncomingMessage, None]) -> IncomingMessage | None:
    return await anext(replies, None)


async def _end(replies: AsyncGenerator[IncomingMessage, None]) -> None:
    await replies.aclose()
