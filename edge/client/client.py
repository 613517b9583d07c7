"""The client that applications use: publish and subscribe, whether a gateway is reachable or not (M2, G3, G10, G13).

    async with Client(client_id="van-7", access_points=["https://access.example.org"], store="van-7.outbox") as client:
        message = await client.publish("vans/7/position", b"52.1 13.4")  # it is on disk
        await message.acknowledged  # the gateway has it, in Kafka

Guarantees, as long as the file and the gateway's session exist: what `publish` has returned is sent, however often the
process is killed, or it expires, or the gateway refuses it; at QoS 2 it is sent once. What :meth:`Client.messages`
yields is acknowledged when the application asks for the next one; at QoS 2 it is then never given again.

The parts: :mod:`.outbox` (disk), :mod:`.sending` (from disk to bearer), :mod:`.bearer_client` (what a bearer does),
:mod:`.connection_loop` (connections), :mod:`.inbox`, :mod:`.requests`.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar, Unpack

from edge.answers import Changes
from edge.client import access_point
from edge.client.access_point import AccessPoint
from edge.client.asking import Asking, Question
from edge.client.bearer_client import BearerHooks
from edge.client.bearers import make_bearer
from edge.client.connect_points import ConnectPoint
from edge.client.connection_loop import ConnectionLoop
from edge.client.errors import ClientClosed, ClientError, NotReachable
from edge.client.inbox import Inbox
from edge.client.limits import Limits
from edge.client.memory_store import MemoryStore
from edge.client.message import IncomingMessage, Message
from edge.client.options import ClientOptions, MessageOptions, Options, RequestOptions, message_properties
from edge.client.outbox import Outbox
from edge.client.requests import Requests
from edge.client.sending import OnFailed, Sending
from edge.client.sqlite_store import SqliteStore
from edge.client.store import Store
from edge.client.store_clock import running_s
from edge.completion import completed
from mqtt.codes import ReasonCode
from mqtt.errors import LocalProtocolError
from mqtt.packets import Publish, Subscription
from schemas.identity import inbox_of
from schemas.presence_topics import presence_topic
from schemas.receipts import READ_START

EXPIRY_CHECK_S: Final = 1.0
T = TypeVar("T")


class Client:
    """An asynchronous context manager; inside it the client connects by itself, and stays connected.

    `options` are the fields of :class:`.options.Options`: `client_id` and `access_points` or `connect_points` at least.
    `store`: the outbox's file, made if there is none, or a store, or what opens one on its thread; None keeps messages
    in memory only, and they end with the process. `on_failed` is called for each message that is refused or expires,
    also for those of earlier processes. Raises ValueError; entering raises StoreError.
    """

    def __init__(
        self,
        *,
        store: str | Path | Store | Callable[[], Store] | None = None,
        limits: Limits | None = None,
        on_failed: OnFailed | None = None,
        wall_s: Callable[[], float] = time.time,
        running_s: Callable[[], float] = running_s,
        **options: Unpack[ClientOptions],
    ) -> None:
        self._options = Options(**options)
        self._limits = limits or Limits()
        self._store, self._on_failed = store, on_failed
        self._wall_s, self._running_s = wall_s, running_s
        self._changes = Changes()
        self._requests = Requests(self._limits.requests)
        self._asking = Asking(self._requests, self.open_inbox, self.publish)
        self._tasks: list[asyncio.Task[None]] = []
        self._closing: asyncio.Task[None] | None = None
        self._failure: Exception | None = ClientClosed("the client is not open: use `async with`")
        self._was_opened = False
        self._rounds = 0
        self.last_error: NotReachable | None = None

    # -- life ----------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        options, limits = self._options, self._limits
        if self._was_opened:
            raise ClientClosed("a client can be opened once: make another one")
        self._was_opened = True
        self._outbox = Outbox(
            self._open_store,
            limits,
            self._wall_s,
            self._running_s,
            on_refused=lambda sequences: self._sending.refused(sequences),
            on_failure=self._fail,
        )
        found = await self._outbox.open()
        hooks = BearerHooks(
            on_connected=self._connected,
            on_published=lambda event: self._sending.published(event),
            on_capacity=lambda: self._sending.pump(),
            on_closed=lambda: self._sending.disconnected(),
            on_message=self._received,
        )
        try:
            self._bearer = make_bearer(options, limits, self._outbox, found, hooks)
        except BaseException:
            await self._outbox.close()
            raise
        self._sending = Sending(self._outbox, self._bearer, limits, self._on_failed)
        self._inbox = Inbox(limits.inbox_messages, self._bearer.pause_reading)
        self._loop = ConnectionLoop(
            options.machine(), self._bearer, ask=self._ask, on_exhausted=self._exhausted, fail=self._fail
        )
        self._failure = None
        self._tasks = [asyncio.create_task(self._loop.run()), asyncio.create_task(self._expire())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def network_changed(self) -> None:
        """The device has another network: a connection over QUIC moves there at once and goes on (RFC 9000, 9). Over
        other bearers a dead connection is noticed by keep alive. Without a connection the next attempt begins now, or
        as soon as the present one has failed."""
        if self._failure is None:
            self._loop.hurry()
            await self._bearer.network_changed()

    async def close(self) -> None:
        """Disconnects and releases the file. Messages that are not acknowledged stay in it. It ends even if the caller
        is cancelled, and may be called again: all return once the file is released."""
        if self._closing is None and self._tasks:
            self._closing = asyncio.create_task(self._close(self._tasks))
        if self._closing is not None:
            await completed(self._closing)

    async def _close(self, tasks: list[asyncio.Task[None]]) -> None:
        closed = ClientClosed("the client is closed; what it has accepted is in its store")
        self._failure = self._failure or closed
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await self._sending.stop()
        await self._bearer.disconnect(ends_session=self._store is None)  # without a file nobody will resume it
        self._sending.fail(closed)
        self._requests.fail(closed)
        self._inbox.end()
        self._changes.wake()
        await self._outbox.close()

    @property
    def is_connected(self) -> bool:
        """Whether a gateway has accepted the connection and it has not ended."""
        return self._failure is None and self._bearer.is_connected

    async def connected(self) -> None:
        """Returns once connected. Raises NotReachable when every connect point has been tried in vain (the client goes
        on trying), and the gateway's refusal if it is final."""
        rounds = self._rounds
        await self._changes.until(lambda: self.is_connected or self._failure is not None or self._rounds > rounds)
        if not self.is_connected:
            raise self._failure or self.last_error or ClientClosed("the client is closed")

    # -- messages ------------------------------------------------------------------------------------------------------

    async def publish(
        self,
        topic: str,
        payload: bytes | str = b"",
        *,
        qos: int = 1,
        retain: bool = False,
        lifetime_s: float | None = None,
        content_type: str | None = None,
        user_properties: Iterable[tuple[str, str]] = (),
        response_topic: str | None = None,
        correlation: bytes | None = None,
    ) -> Message:
        """Returns once the message is on disk. `lifetime_s`: it is not sent, nor delivered, after that many seconds.

        Raises NotAccepted (StoreFull, MessageTooLarge, LifetimeNotAllowed), LocalProtocolError (MQTT does not allow
        it), StoreFailed, or the error that ended the client. If cancelled, the message may have been accepted.
        """
        self._check_open()
        self._limits.lifetime(lifetime_s)
        properties = message_properties(lifetime_s, content_type, user_properties, response_topic, correlation)
        if isinstance(payload, str):
            payload = payload.encode()
        return await self.put(Publish(topic, payload, qos, retain, properties=properties), lifetime_s)

    async def put(
        self, packet: Publish, lifetime_s: float | None, on_stored: Callable[[int], None] | None = None
    ) -> Message:
        """As :meth:`publish`, with the properties of MQTT 5.0. `on_stored` is called with the message's sequence before
        it is committed: for programs that bring a store, and keep more in the same transaction."""
        self._check_open()
        self._bearer.check(packet)
        stored = self._outbox.add(
            packet.topic, packet.payload, packet.qos, packet.retain, packet.properties, lifetime_s
        )
        if on_stored is not None:
            on_stored(stored.sequence)
        message = self._sending.offer(stored)
        await self._outbox.durable()
        return message

    async def send(self, client_id: str, payload: bytes | str = b"", **options: Unpack[MessageOptions]) -> Message:
        """Publishes to another client's inbox; see :meth:`publish` for the options."""
        return await self.publish(inbox_of(client_id), payload, **options)

    async def ended(self) -> None:
        """Returns never while the client is open; raises the error that ended it."""
        await self._changes.until(lambda: self._failure is not None)
        self._check_open()

    async def drained(self) -> None:
        """Returns once every accepted message has ended: acknowledged, refused or expired."""
        self._check_open()
        await self._sending.drained()

    async def on_store(self, call: Callable[[Store], T]) -> T:
        """Runs `call` with the open store on the store's thread, after all changes so far. For programs that bring a
        store of their own. Raises DiskFull; another error of the call ends the client."""
        self._check_open()
        return await self._outbox.on_store(call)

    @property
    def usage(self) -> tuple[int, int]:
        """Messages and bytes in the outbox."""
        return self._outbox.messages, self._outbox.size

    def messages(self) -> AsyncIterator[IncomingMessage]:
        """The messages that arrive, in order; ends when the client is closed, and raises the error that ended it.

        A message is acknowledged when the next one is asked for, or by its own `acknowledge()`. All iterators of a
        client are one: each message goes to one of those who ask.
        """
        return self._inbox

    async def take_message(self) -> IncomingMessage:
        """The next message that arrives. It is acknowledged by its own `acknowledge()` only: for programs that ask for
        more before they are done with it. At most `limits.inbox_messages` of QoS 1 and 2 come unacknowledged. Raises
        the error that ended the client, and StopAsyncIteration once it is closed."""
        return await self._inbox.take()

    async def subscribe(self, *filters: str | Subscription, qos: int = 1) -> list[ReasonCode]:
        """Returns the granted QoS of each filter, once the gateway has granted them; waits while disconnected. Raises
        SubscribeRefused, LocalProtocolError. If the gateway loses the session the client subscribes again."""
        self._check_open()
        return await self._bearer.subscribe(*filters, qos=qos)

    async def open_inbox(self) -> str:
        """The destination by which other clients reach this one, `@client-id`, once its messages arrive here. Over HTTP
        the gateway chooses the client id. Waits while disconnected. Raises as :meth:`subscribe`."""
        self._check_open()
        return await self._bearer.open_inbox()

    async def unsubscribe(self, *filters: str) -> None:
        """Returns once the gateway has answered; waits while disconnected."""
        self._check_open()
        await self._bearer.unsubscribe(*filters)

    async def subscribe_presence(self, client_id: str) -> None:
        """Subscribes to whether a client is online; see :attr:`IncomingMessage.presence` (R12)."""
        await self.subscribe(presence_topic(client_id), qos=1)

    # -- requests ------------------------------------------------------------------------------------------------------

    async def request(
        self,
        topic: str,
        payload: bytes | str = b"",
        *,
        timeout_s: float,
        again_after_s: float = math.inf,
        **options: Unpack[RequestOptions],
    ) -> IncomingMessage:
        """Sends a request to a topic, or to a client's inbox (`@client-id`), and returns the first reply.

        The request is not delivered after `timeout_s`. Whenever a gateway has had it for `again_after_s` without a
        reply, the client sends it again. If several receivers share the topic, the next one gets it, and finds
        `incoming.is_repeated`.

        Raises NoReply, NotReceived once a gateway of Waystation says that nobody has got it, TooManyRequests,
        PublishRefused, ValueError unless `again_after_s` is above 0, and what :meth:`publish` raises. Needs MQTT 5.0.
        """
        self._check_requests()
        if not again_after_s > 0:
            raise ValueError(f"again_after_s must be above 0, not {again_after_s}")
        return await self._asking.one(Question.of(topic, payload, options), timeout_s, again_after_s)

    def request_all(
        self, topic: str, payload: bytes | str = b"", *, timeout_s: float, **options: Unpack[RequestOptions]
    ) -> AsyncGenerator[IncomingMessage, None]:
        """As :meth:`request`, for the replies of all receivers, as they come: an asynchronous generator. It ends once
        there are as many as have got the request, which a gateway of Waystation says, or after `timeout_s`. Raises
        NotReceived if nobody has got it."""
        self._check_requests()
        return self._asking.all(Question.of(topic, payload, options), timeout_s)

    def _check_requests(self) -> None:
        self._check_open()
        if not self._options.is_v5:
            raise LocalProtocolError("requests need MQTT 5.0: MQTT 3.1.1 has no response topic")

    async def reply(
        self, message: IncomingMessage, payload: bytes | str = b"", **options: Unpack[MessageOptions]
    ) -> Message:
        """Answers a request. Raises ClientError if the message expects no reply, and what :meth:`publish` raises."""
        if message.response_topic is None:
            raise ClientError(f"the message to {message.topic!r} expects no reply: it has no response topic")
        return await self.publish(message.response_topic, payload, correlation=message.correlation, **options)

    async def tell_read(self, message: IncomingMessage) -> Message:
        """Says that the application's user has read the message, if its sender asked for that receipt
        (:attr:`IncomingMessage.id_to_read`). Raises ClientError if not, and what :meth:`publish` raises (Q13)."""
        if message.id_to_read is None:
            raise ClientError(f"the sender of the message to {message.topic!r} asks for no receipt that it is read")
        return await self.publish(READ_START + message.id_to_read)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _open_store(self) -> Store:
        if self._store is None:
            return MemoryStore(self._options.client_id)
        if isinstance(self._store, str | Path):
            return SqliteStore(self._store, self._options.client_id)
        return self._store() if callable(self._store) else self._store

    def _check_open(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _ask(self, where: AccessPoint) -> list[ConnectPoint]:
        options = self._options
        return await access_point.ask(
            where,
            options.asked_bearer,
            options.client_id,
            options.tls,
            self._limits.connect_timeout_s,
            options.authorization(where),
        )

    async def _expire(self) -> None:
        while self._failure is None:
            with contextlib.suppress(ClientError):  # the disk is full; or the outbox has failed, and the client with it
                if self._outbox.next_expiry_s <= self._outbox.now_s:
                    await self._sending.expire()
            await asyncio.sleep(EXPIRY_CHECK_S)

    def _connected(self) -> None:
        self._inbox.pause_if_full()
        self._sending.pump()
        self._changes.wake()

    def _received(self, message: IncomingMessage) -> None:
        if not self._requests.take(message):
            self._inbox.put(message)

    def _exhausted(self, error: NotReachable) -> None:
        self.last_error = error
        self._rounds += 1
        self._changes.wake()

    def _fail(self, error: Exception) -> None:
        """The client has ended: whoever waits gets the error."""
        if self._failure is None:
            self._failure = error
            if self._outbox.failure is not None:
                self._bearer.abort()
            self._bearer.fail(error)
            self._sending.fail(error)
            self._requests.fail(error)
            self._inbox.end(error)
            self._changes.wake()
