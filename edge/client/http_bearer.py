"""HTTP as a bearer of the client library (G11, G13): an event stream in, requests out, to a gateway's HTTP listener.

The stream is the connection: the gateway keeps the client's session and its presence by it, and it carries the client's
inbox and its subscriptions. It has the client connected as long as it is open. Messages go out as requests on
connections of their own (:mod:`edge.client.http_posts`).

A gateway gives HTTP clients client ids of their own, `http-<user>:<client_id>` or `http:<client_id>`
(:mod:`gateway.http.identity`); the stream's answer names it. A stream has its subscriptions from the beginning, so
another subscription is another stream: the gateway continues the session, and what is unacknowledged comes again, but
not to the application (:mod:`edge.client.http_events`). If the gateway no longer allows one of them, that one ends.
"""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from edge.client.bearer_client import BearerHooks
from edge.client.connect_points import ConnectPoint
from edge.client.errors import NotSupported
from edge.client.event_stream import EventParser, decode_end, decode_message
from edge.client.http_answers import CLIENT_ID_HEADER, check_message, judge_acknowledged, stream_refused, stream_target
from edge.client.http_connection import HttpConnection, HttpStream
from edge.client.http_events import EventKey, UnacknowledgedEvents
from edge.client.http_posts import HttpPosts
from edge.client.in_flight import InFlightMessages
from edge.client.limits import Limits
from edge.client.message import IncomingMessage
from edge.client.one_connection import NO_CONNECTION, OneConnection
from edge.client.options import Options
from edge.client.outbox import Outbox
from edge.client.sending_window import SendingWindow
from edge.client.store import Recovered, StoredMessage
from edge.client.take_over import take_over
from edge.errors import AnswerFault, ConnectionLost, ConnectRefused, MqttClientError, SubscribeRefused, Unreachable
from edge.link import CLOSE_TIMEOUT_S
from mqtt.client_events import Closed, EndedBy
from mqtt.client_publish import check_publish
from mqtt.codes import ReasonCode
from mqtt.errors import LocalProtocolError
from mqtt.packets import Properties, Publish, Subscription
from mqtt.topics import is_topic_filter
from schemas.identity import inbox_of

_log: Final = logging.getLogger("waystation.client")


class HttpBearer(OneConnection):
    """Implements :class:`edge.client.bearer_client.BearerClient`."""

    def __init__(self, options: Options, limits: Limits, outbox: Outbox, found: Recovered, hooks: BearerHooks) -> None:
        super().__init__(hooks)
        self._options, self._limits = options, limits
        self._tls = options.tls
        found = take_over(outbox, found)
        self.in_flight = InFlightMessages(outbox, found)
        self._posts = HttpPosts(
            outbox,
            limits,
            SendingWindow(limits, found.session.last_packet_id, found.open_ids),
            options.backoff,
            options.http_in_order,
            hooks.on_published,
            self._lost_by,
        )
        self._posts.restore(found.in_flight)
        self._events = UnacknowledgedEvents(limits.inbox_messages)
        self._filters: list[str] = []
        self._subscribing = asyncio.Lock()
        self._failure: Exception | None = None
        self._connection: HttpConnection | None = None
        self._stream: HttpStream | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._is_paused = self._is_ended = False
        self._told: str | None = None  # the event id that the gateway was told last
        self.connections = 0

    # -- connections ---------------------------------------------------------------------------------------------------

    async def connect(self, point: ConnectPoint) -> None:
        if point.uses_tls and self._tls is None:
            self._tls = ssl.create_default_context()
        fields = [(CLIENT_ID_HEADER, self._options.client_id)]
        credentials = self._options.http_credentials
        fields += [("Authorization", credentials)] if credentials is not None else []
        self._connection = HttpConnection(
            str(point),
            fields,
            tls=self._tls if point.uses_tls else None,
            server_hostname=self._options.server_hostname,
            connections=self._limits.http_connections,
            answer_s=self._limits.answer_timeout_s,
        )
        self.connections += 1
        try:
            stream, self._filters, refused = await self._open_allowed(self._connection, self._filters)
        except AnswerFault as error:
            self._drop_connection()
            raise Unreachable(str(error)) from error
        except BaseException:
            self._drop_connection()
            raise
        self._not_subscribed(refused)
        self._opened()
        self._is_paused = False
        self._begin(stream)
        self._tasks.append(asyncio.create_task(self._acknowledge()))
        self._posts.start(stream.answer.client_id, self._connection.post)
        self._hooks.on_connected()
        self._changes.wake()

    async def disconnect(self, *, ends_session: bool) -> None:
        """The gateway keeps the session until `gateway.http.stream_expiry_s`, whoever leaves."""
        self._is_ended = True
        if self.is_connected:
            with contextlib.suppress(MqttClientError, TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await self._tell()
        self._lost(Closed(ReasonCode.NORMAL_DISCONNECTION, "the client has disconnected", EndedBy.CLIENT))
        if self._closing:
            await asyncio.wait(self._closing)

    def fail(self, error: Exception) -> None:
        self._failure, self._is_ended = error, True
        self.abort()
        self._changes.wake()

    async def network_changed(self) -> None:
        """Nothing to do: a dead connection is found by its silence."""

    # -- messages to send ----------------------------------------------------------------------------------------------

    @property
    def held(self) -> int:
        return len(self._posts)

    def has_capacity(self, payload_bytes: int) -> bool:
        return self._posts.has_capacity(payload_bytes)

    def check(self, packet: Publish) -> None:
        check_publish(packet)
        check_message(packet)

    def send(self, message: StoredMessage, properties: Properties | None) -> int:
        """`properties` are those of the message, whose lifetime is computed for each request anew."""
        check_message(Publish(message.topic, b"", properties=properties))  # another bearer may have taken it
        return self._posts.add(message)

    def may_be_sent(self, packet_id: int) -> bool:
        return self._posts.may_be_sent(packet_id)

    def remove(self, packet_id: int) -> None:
        self._posts.remove(packet_id)

    # -- messages to receive -------------------------------------------------------------------------------------------

    def pause_reading(self, is_paused: bool) -> None:
        self._is_paused = is_paused
        self._changes.wake()

    async def subscribe(self, *filters: str | Subscription, qos: int = 1) -> list[ReasonCode]:
        """Grants QoS 1 at most: events are acknowledged, whatever was asked for."""
        wanted = [Subscription(one, qos) if isinstance(one, str) else one for one in filters]
        for one in wanted:
            if not is_topic_filter(one.filter):
                raise LocalProtocolError(f"{one.filter!r:.100} is not a topic filter")
            if one.filter.startswith("$share/") or one.no_local:
                raise NotSupported("over HTTP there are no shared subscriptions, and no_local is not possible")
        names = [one.filter for one in wanted]
        await self._change_filters(lambda now: list(dict.fromkeys([*now, *names])), names)
        return [ReasonCode.GRANTED_QOS_1] * len(wanted)

    async def unsubscribe(self, *filters: str) -> None:
        await self._change_filters(lambda now: [one for one in now if one not in filters], [])

    async def open_inbox(self) -> str:
        """A gateway delivers to the inbox without a subscription."""
        await self._wait_connected()
        assert self._stream is not None
        return inbox_of(self._stream.answer.client_id)

    # -- inside: the stream --------------------------------------------------------------------------------------------

    async def _open_allowed(
        self, connection: HttpConnection, filters: list[str]
    ) -> tuple[HttpStream, list[str], dict[str, ReasonCode]]:
        """A stream with those of the filters that the gateway allows; these filters; the reasons of the others. Raises
        AnswerFault, ConnectRefused, Unreachable."""
        refused: dict[str, ReasonCode] = {}
        while True:
            try:
                return await self._open_stream(connection, filters), filters, refused
            except SubscribeRefused as error:
                refused |= error.reasons
                filters = [one for one in filters if one not in refused]

    def _not_subscribed(self, refused: dict[str, ReasonCode]) -> None:
        """The gateway no longer allows what it has granted, and would refuse the next stream too: the rest goes on."""
        if refused:
            _log.error("a subscription has ended: %s", SubscribeRefused(refused, None))

    async def _open_stream(self, connection: HttpConnection, filters: list[str]) -> HttpStream:
        """Raises AnswerFault, also if the connection has ended meanwhile; ConnectRefused, Unreachable,
        SubscribeRefused."""
        last = self._events.last
        stream = await connection.open_stream(stream_target(filters), last, self._limits.connect_timeout_s)
        if self._connection is not connection:
            stream.close()
            raise AnswerFault("the connection has ended")
        if (error := stream_refused(stream.answer, filters)) is not None:
            stream.close()
            raise error
        self._events.begin_stream()
        self._told = last
        return stream

    def _begin(self, stream: HttpStream) -> None:
        self._stream = stream
        self._reading = asyncio.create_task(self._read(stream))

    async def _read(self, stream: HttpStream) -> None:
        parser = EventParser()
        keep_alive_s = self._options.keep_alive_s
        silence_s = keep_alive_s + self._limits.ping_timeout_s if keep_alive_s else None
        try:
            while data := await stream.receive(silence_s):
                for event in parser.receive(data):
                    if (reason := decode_end(event)) is not None:
                        self._lost(Closed(reason, f"the gateway ended the stream: {reason.name}", EndedBy.SERVER))
                        return
                    if (received := decode_message(event)) is not None:
                        key = self._events.received(received) if received.event_id else None
                        if key is not None or not received.event_id:
                            self._hooks.on_message(IncomingMessage(received.packet, partial(self._accept, key)))
                self._changes.wake()
                await self._changes.until(lambda: not self._is_paused)
            self._lost(Closed(ReasonCode.UNSPECIFIED_ERROR, "the stream has ended", EndedBy.TRANSPORT))
        except Exception as error:
            self._lost_by(error)

    def _accept(self, key: EventKey | None, _: Publish) -> None:
        if key is not None:
            self._events.acknowledged(key)
            self._changes.wake()

    async def _acknowledge(self) -> None:
        try:
            while True:
                await self._changes.until(lambda: self._events.last != self._told)
                await self._tell()
        except Exception as error:
            self._lost_by(error)

    async def _tell(self) -> None:
        """Acknowledges everything up to the last event that is done."""
        last = self._events.last
        if last is None or last == self._told or self._connection is None:
            return
        body = msgspec.json.encode({"last_event_id": last})
        answer = await self._connection.post("/v1/stream/ack", [("Content-Type", "application/json")], body)
        judge_acknowledged(answer)
        self._told = last

    async def _change_filters(self, change: Callable[[list[str]], list[str]], names: list[str]) -> None:
        """Opens another stream in the place of the present one, on the same connection; if that ends, asks the next
        one. Raises SubscribeRefused, and what ended the client."""
        async with self._subscribing:
            while True:
                connection = await self._wait_connected()
                wanted = change(self._filters)
                if wanted == self._filters:
                    return
                before = self._stream
                failure: SubscribeRefused | None = None
                try:
                    self._reading.cancel()
                    await asyncio.wait([self._reading])
                    try:
                        stream, granted, refused = await self._open_allowed(connection, wanted)
                    except ConnectRefused as error:
                        if not names:
                            raise
                        failure = _subscribe_refused(names, error)
                        # Perhaps the old one has lost its session.
                        stream, granted, refused = await self._open_allowed(connection, self._filters)
                except MqttClientError as error:
                    if self._connection is connection:
                        self._lost_by(error)
                    continue
                except BaseException:
                    if self._connection is connection:
                        self.abort()
                    raise
                if before is not None:
                    before.close()
                self._begin(stream)
                self._filters = granted
                self._not_subscribed({one: reason for one, reason in refused.items() if one not in names})
                if failure is None and not refused.keys().isdisjoint(names):
                    reasons = {one: refused.get(one, ReasonCode.GRANTED_QOS_1) for one in names}
                    failure = SubscribeRefused(reasons, None)
                if failure is not None:
                    raise failure
                return

    async def _wait_connected(self) -> HttpConnection:
        await self._changes.until(lambda: self.is_connected or self._is_ended)
        if self._connection is None or not self.is_connected:
            raise self._failure or ConnectionLost(self._closed or NO_CONNECTION)
        return self._connection

    # -- inside: the end -----------------------------------------------------------------------------------------------

    def _lost_by(self, error: Exception) -> None:
        self._lost(Closed(ReasonCode.UNSPECIFIED_ERROR, str(error), EndedBy.TRANSPORT))

    def _release(self) -> None:
        self._posts.stop()
        for task in (*self._tasks, self._reading):
            if task is not asyncio.current_task():
                task.cancel()
        self._tasks = []
        self._drop_connection()

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
        if connection is not None:
            task = asyncio.create_task(connection.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def _subscribe_refused(names: list[str], error: ConnectRefused) -> SubscribeRefused:
    reason = error.reason if isinstance(error.reason, ReasonCode) else ReasonCode.UNSPECIFIED_ERROR
    return SubscribeRefused(dict.fromkeys(names, reason), {"reason_string": str(error)})
