"""An MQTT client on asyncio: a thin layer of input and output over :mod:`mqtt.client_connection`.

Guarantees: a message published with QoS 1 or 2 stays in the session until the server has acknowledged it, and is sent
again after each :meth:`MqttClient.connect`. QoS 1 arrives at least once; QoS 2 exactly once while the server keeps the
session. A received message is acknowledged only when the application is done with it: when `on_message` has returned,
when the iterator is asked for the next one, or, with `manual=True`, when `acknowledge` is called. Everything runs on
one event loop; the client starts no task.

    client = MqttClient(Address("127.0.0.1", 1883), Connect("sensor-7", keep_alive=60))
    await client.connect()
    await client.subscribe("weather/+", qos=1)
    reason = await client.publish("flights/JFK", b"late", qos=1)  # raises PublishRefused for a failure
    async for message in client.messages():
        print(message.topic, message.payload)

:class:`edge.reconnect.StayConnected` keeps such a client connected.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any, Final

from edge.answers import Answers, Changes
from edge.driver import Driver, Journal
from edge.errors import ConnectionLost, ConnectRefused, ReceivedTooLarge, SubscribeRefused
from edge.hooks import Hooks
from edge.link import Address, open_link
from edge.subscriptions import Subscriptions
from mqtt.client_connection import ClientConnection
from mqtt.client_events import Closed, EndedBy, Event, Published, SessionLost
from mqtt.client_limits import ClientLimits
from mqtt.client_session import ClientSession
from mqtt.client_state import State
from mqtt.codes import ReasonCode
from mqtt.errors import ProtocolError
from mqtt.packets import Connack, Connect, Disconnect, LargePublish, Properties, Publish, Suback, Subscription, Unsuback

INBOX_MAX: Final = 1_000  # messages waiting for the iterator before reading stops
_FAILURE: Final = ReasonCode.UNSPECIFIED_ERROR
_NO_CONNECTION: Final = Closed(_FAILURE, "there is no connection", EndedBy.TRANSPORT)


class MqttClient:
    """One client of one server, over any number of connections, one at a time.

    `address` and `connect` (the CONNECT packet: client id, version, keep alive, credentials, will, properties) may be
    functions, called for each connection; `connect` gets the number of the connection, from 1. `session` may be one
    restored from disk. `on_message` gets each message; without it, use :meth:`messages`. `resubscribe`: whether to
    subscribe again when the server has lost the session. `journal` makes the session's changes durable before the bytes
    that depend on them are written (:mod:`edge.driver`).
    """

    def __init__(
        self,
        address: Address | Callable[[], Address],
        connect: Connect | Callable[[int], Connect],
        *,
        session: ClientSession | None = None,
        limits: ClientLimits | None = None,
        on_message: Callable[[Publish], None] | None = None,
        manual: bool = False,
        resubscribe: bool = True,
        hooks: Hooks | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.session = session or ClientSession()
        self.connections = 0  # network connections so far
        self.connack: Connack | None = None  # of the last accepted connection
        self.closed: Closed | None = _NO_CONNECTION  # how the last connection ended; None while one is open
        self.subscriptions = Subscriptions()
        self.keeps_waiting = False  # whether a lost connection is replaced: calls wait for the next one
        self._address, self._connect = address, connect
        self._limits, self._hooks = limits or ClientLimits(), hooks or Hooks()
        self._on_message, self._manual, self._resubscribe = on_message, manual, resubscribe
        self._journal = journal
        self._driver: Driver | None = None  # of the last connection
        self._answers = Answers()
        self._changes = Changes()
        self._inbox: deque[Publish] = deque()
        self._given: Publish | None = None  # by `messages`, and not acknowledged yet
        self._failure: Exception | None = None

    # -- connections ---------------------------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        """Whether the server has accepted the connection and it has not ended."""
        return self._driver is not None and self.closed is None and self._driver.connection.state is State.CONNECTED

    async def connect(self) -> Connack:
        """Connects and sends (again) what the session holds. Raises Unreachable, ConnectRefused, ConnectionLost, and
        LocalProtocolError (already connected, or a CONNECT that MQTT does not allow)."""
        address = self._address if isinstance(self._address, Address) else self._address()
        driver = Driver(self._handle, self._journal, self._hooks.on_writable)
        link = await open_link(address, driver, self._limits)
        self.connections += 1
        try:
            packet = self._connect if isinstance(self._connect, Connect) else self._connect(self.connections)
            connection = ClientConnection(self.session, packet, self._limits, driver.now, self._hooks.observe)
            self._driver, self.closed, self._failure = driver, None, None
            driver.begin(link, connection)
            await self._changes.until(lambda: connection.state is not State.AWAIT_CONNACK)
        except BaseException:
            if self._driver is driver:
                self.abort()
            link.abort()
            raise
        if connection.state is State.CLOSED:
            assert connection.closed is not None
            kind = ConnectRefused if connection.closed.by is EndedBy.REFUSED else ConnectionLost
            raise kind(connection.closed)
        assert self.connack is not None
        return self.connack

    async def disconnect(
        self, reason: ReasonCode = ReasonCode.NORMAL_DISCONNECTION, properties: Properties | None = None
    ) -> None:
        """Ends the connection with DISCONNECT; returns once everything written is sent and the link is closed. Callers
        waiting for an answer get ConnectionLost; unacknowledged messages stay in the session."""
        self.keeps_waiting = False
        driver = self._driver
        if driver is None or self.closed is not None:
            self._end_waiting()
            return
        self._handle([driver.connection.disconnect(reason, properties)])
        await driver.ended()

    def abort(self) -> None:
        """Breaks the connection at once, without DISCONNECT; the server then publishes the will."""
        if self._driver is not None:
            self._driver.abort()

    async def network_changed(self) -> None:
        """Call it when the device has another network. Over QUIC the connection goes on over a new socket, and nothing
        is lost. Over other bearers nothing changes: a dead connection is found by its keep alive."""
        if self._driver is not None:
            await self._driver.move()

    async def wait_closed(self) -> Closed:
        """Waits for the connection to end; returns how it ended."""
        await self._changes.until(lambda: self.closed is not None)
        assert self.closed is not None
        return self.closed

    async def wait_connected(self) -> None:
        """Returns once the server has accepted a connection. Raises ConnectionLost if no connection will follow."""
        await self._changes.until(lambda: self.is_connected or not self._may_come)
        if not self.is_connected:
            raise self._error()

    # -- messages ------------------------------------------------------------------------------------------------------

    def publish(
        self,
        topic: str,
        payload: bytes = b"",
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> asyncio.Future[ReasonCode]:
        """Sends a message; await the result for the server's reason code (SUCCESS at QoS 0, once sent).

        The message is sent or queued when this returns, awaited or not: see :attr:`has_capacity` and :meth:`drain`.
        Awaiting raises PublishRefused (a failure from the server), ConnectionLost (the message stays in the session).
        Raises at once: QueueFullError, ServerLimitError, LocalProtocolError, ConnectionLost (QoS 0, no connection).
        """
        return self._answers.to_publish(self.send(topic, payload, qos, retain, properties))

    def send(
        self, topic: str, payload: bytes, qos: int = 0, retain: bool = False, properties: Properties | None = None
    ) -> int:
        """As :meth:`publish`, without a future: returns the packet id, with which `on_published` is called."""
        driver = self._driver
        if not qos and not self.is_connected:
            raise self._error()
        if driver is None:
            return self.session.publish(topic, payload, qos, retain, properties)
        packet_id = driver.connection.publish(topic, payload, qos, retain, properties)
        driver.flush_soon()
        return packet_id

    @property
    def has_capacity(self) -> bool:
        """Whether the session's queue of unacknowledged messages has capacity for another one."""
        return self.session.outbound.has_capacity(0)

    def pause_reading(self, is_paused: bool) -> None:
        """Pauses or resumes reading from the server, for applications with `on_message`; a new connection reads."""
        if self._driver is not None and self.closed is None:
            self._driver.pause_reading(is_paused)

    async def drain(self) -> None:
        """Returns once the network accepts more data, or the connection has ended; for much traffic at QoS 0."""
        if self._driver is not None:
            await self._driver.drain()

    async def messages(self) -> AsyncIterator[Publish]:
        """Yields messages in order, over any number of connections. Each is acknowledged when the next one is
        requested, from this iterator or another one, unless `manual`. Ends with :meth:`disconnect`; raises
        ConnectionLost if the connection is lost and no other follows. Reading stops while 1,000 messages wait."""
        while True:
            given, self._given = self._given, None
            if given is not None:
                self.acknowledge(given)
            await self._changes.until(lambda: bool(self._inbox) or not self._may_come)
            if not self._inbox:
                if self._failure is None and self.closed is not None and self.closed.by is EndedBy.CLIENT:
                    return  # the application has disconnected
                raise self._error()
            message = self._inbox.popleft()
            if len(self._inbox) < INBOX_MAX // 2 and self._driver is not None:
                self._driver.pause_reading(False)
            if not self._manual:
                self._given = message
            yield message

    def acknowledge(self, message: Publish, reason: ReasonCode = ReasonCode.SUCCESS) -> None:
        """The application has accepted `message`; a `reason` of 0x80 and above refuses it (5.0 only)."""
        if self._driver is not None:
            self._driver.connection.acknowledge(message, reason)
            self._driver.flush_soon()

    # -- subscriptions -------------------------------------------------------------------------------------------------

    async def subscribe(
        self, *filters: str | Subscription, qos: int = 1, properties: Properties | None = None
    ) -> list[ReasonCode]:
        """Subscribes; returns the granted QoS of each filter, in order. `qos` applies to filters given as strings.

        Raises SubscribeRefused (filters whose reason is below 0x80 are in force), ConnectionLost, ServerLimitError,
        LocalProtocolError (not a topic filter).
        """
        wanted = [Subscription(name, qos) if isinstance(name, str) else name for name in filters]
        answer = await self._ask(lambda connection: connection.subscribe(wanted, properties))
        self.subscriptions.granted(wanted, properties, answer)
        return answer.reason_codes

    async def unsubscribe(self, *filters: str, properties: Properties | None = None) -> list[ReasonCode]:
        """Unsubscribes; returns each filter's reason code, none on 3.1.1. Raises as :meth:`subscribe`."""
        answer = await self._ask(lambda connection: connection.unsubscribe(filters, properties))
        self.subscriptions.remove(filters)
        return answer.reason_codes

    async def _ask(self, send: Callable[[ClientConnection], int]) -> Suback | Unsuback:
        """Sends a request and waits for its answer; sends it again on the next connection if one follows."""
        while True:
            if self.keeps_waiting:
                await self.wait_connected()
            if not self.is_connected or self._driver is None:
                raise self._error()
            packet_id = send(self._driver.connection)
            self._driver.flush_soon()
            try:
                return await self._answers.to_request(packet_id)
            except ConnectionLost:
                if not self.keeps_waiting:
                    raise

    # -- inside: events ------------------------------------------------------------------------------------------------

    def _handle(self, events: list[Event]) -> None:
        """Handles what the connection reports. If `on_message` raises, the connection is broken, and the server sends
        that message and the following ones again."""
        assert self._driver is not None
        connection, failure = self._driver.connection, None
        for event in events:
            kind = type(event)
            if kind is Publish:
                if failure is None:
                    try:
                        self._give(connection, event)  # type: ignore[arg-type]
                    except Exception as error:
                        failure = error
                if failure is not None:
                    connection.forget(event)  # type: ignore[arg-type]
            elif kind is Published:
                self._published(event)  # type: ignore[arg-type]
            else:
                _HANDLERS[kind](self, event)
        if failure is not None:
            self._driver.flush()  # earlier acknowledgements
            self.abort()
            raise failure

    def _give(self, connection: ClientConnection, message: Publish) -> None:
        if self._on_message is not None:
            self._on_message(message)
            if not self._manual and message.qos:
                connection.acknowledge(message)
            return
        self._inbox.append(message)
        self._changes.wake()
        if len(self._inbox) > INBOX_MAX and self._driver is not None:
            self._driver.pause_reading(True)

    def _too_large(self, packet: LargePublish) -> None:
        """Acknowledges it, once somebody knows: the server would send it again on each connection."""
        error = ReceivedTooLarge(packet.topic, packet.size)
        if self._hooks.on_too_large is None:
            self.fail(error)
            return
        self._hooks.on_too_large(error)
        self.acknowledge(packet)

    def _connected(self, connack: Connack) -> None:
        self.connack = connack
        if self._driver is not None:
            self._driver.set_timer()
        if connack.session_present and self._resubscribe:  # one that an earlier connection began without subscriptions
            self._subscribe_again()
        if self._hooks.on_connected is not None:
            self._hooks.on_connected(connack)
        self._changes.wake()

    def _published(self, event: Published) -> None:
        self._answers.published(event)
        if self._hooks.on_published is not None:
            self._hooks.on_published(event)

    def _lost_session(self, event: SessionLost) -> None:
        dropped = Closed(_FAILURE, "the server lost the session and the message with it", EndedBy.SERVER)
        self._answers.drop(event.dropped, ConnectionLost(dropped))
        self.subscriptions.lost()
        if self._resubscribe:
            self._subscribe_again()
        if self._hooks.on_session_lost is not None:
            self._hooks.on_session_lost(event)

    def _subscribe_again(self) -> None:
        assert self._driver is not None
        for wanted, properties in self.subscriptions.missing():
            try:
                packet_id = self._driver.connection.subscribe(wanted, properties)
            except ProtocolError as error:
                self._not_subscribed([one.filter for one in wanted], error)
                if self.closed is not None:
                    return
                continue
            self._answers.to_request(packet_id).add_done_callback(partial(self._subscribed_again, wanted, properties))

    def _subscribed_again(
        self, wanted: list[Subscription], properties: Properties | None, future: "asyncio.Future[Suback | Unsuback]"
    ) -> None:
        if future.cancelled() or future.exception() is not None:
            return  # the connection is lost: the next one subscribes again
        try:
            self.subscriptions.granted(wanted, properties, future.result())
        except SubscribeRefused as error:
            self._not_subscribed([name for name, reason in error.reasons.items() if reason >= _FAILURE], error)

    def _not_subscribed(self, filters: list[str], error: Exception) -> None:
        """The server does not grant these again: it would not do so on the next connection either."""
        self.subscriptions.remove(filters)
        if self._hooks.on_not_subscribed is None:
            self.fail(error)
        else:
            self._hooks.on_not_subscribed(error)

    def _closed(self, closed: Closed) -> None:
        self.closed = closed
        if self._hooks.on_closed is not None:
            self._hooks.on_closed(closed)
        self._end_waiting()

    # -- inside: waiting -----------------------------------------------------------------------------------------------

    @property
    def _may_come(self) -> bool:
        """Whether a connection is open or will follow."""
        return self.closed is None or self.keeps_waiting

    def fail(self, error: Exception) -> None:
        """Ends the connection for good: callers waiting for an answer or a message get `error`."""
        self._failure, self.keeps_waiting = error, False
        if self._driver is not None and self.closed is None:
            self._handle([self._driver.connection.disconnect()])
            self._driver.flush_soon()
        else:
            self._end_waiting()

    def _error(self) -> Exception:
        return self._failure or ConnectionLost(self.closed or _NO_CONNECTION)

    def _end_waiting(self) -> None:
        """The connection has ended: wakes callers whose answer will not come."""
        self._answers.fail(self._error(), published_too=not self.keeps_waiting)
        self._changes.wake()


_HANDLERS: Final[Mapping[type, Callable[[MqttClient, Any], None]]] = {
    LargePublish: MqttClient._too_large,
    Connack: MqttClient._connected,
    Suback: lambda client, answer: client._answers.answered(answer),
    Unsuback: lambda client, answer: client._answers.answered(answer),
    SessionLost: MqttClient._lost_session,
    Disconnect: lambda client, packet: None,  # Closed follows and has the same reason
    Closed: MqttClient._closed,
}
