"""One connection of a local MQTT client: the server core of `mqtt` behind a socket (M16; MQTT 5.0 and 3.1.1).

A PUBLISH of QoS 1 or 2 is answered once it is on disk. If it is not taken, a 5.0 client gets the reason; a 3.1.1 client
gets no answer, and its connection ends, so that it keeps the message. Whatever the bytes, only this connection ends.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, cast

from edge.agent.errors import SessionRefused
from edge.agent.mqtt.hub import Hub, reason_of
from edge.agent.mqtt.outgoing import Outgoing
from edge.agent.mqtt.sessions import Attached
from edge.agent.mqtt.settings import ListenerSettings
from edge.agent.mqtt.store import Taken
from edge.agent.mqtt.subscribing import subscribe_all, unsubscribe_all
from edge.client.errors import NotAccepted
from mqtt import codes
from mqtt.codes import ReasonCode
from mqtt.limits import RECEIVE_MAXIMUM_DEFAULT, ConnectionLimits
from mqtt.packets import (
    Connect,
    Disconnect,
    Packet,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from mqtt.server_connection import ServerConnection
from mqtt.server_events import Closed
from mqtt.server_state import State
from mqtt.topics import may_subscribe
from schemas.visible import visible

CLIENT_ID_BYTES_MAX: Final = 1_024
LINGER_S: Final = 2.0
EXPIRY: Final = "session_expiry_interval"

Authenticate = Callable[[Connect], Awaitable[str]]
"""The user, empty if there are no users. Raises SessionRefused."""

_log: Final = logging.getLogger("waystation.agent")


class Connection(asyncio.Protocol):
    """`ended` is called with it when the network connection has ended."""

    def __init__(
        self, settings: ListenerSettings, hub: Hub, authenticate: Authenticate, ended: "Callable[[Connection], None]"
    ) -> None:
        self._settings, self._hub, self._authenticate, self._ended = settings, hub, authenticate, ended
        self._loop = asyncio.get_running_loop()
        limits = ConnectionLimits(
            max_packet_size=settings.packet_bytes,
            receive_maximum=settings.inflight,
            keep_alive_max_s=settings.keep_alive_most_s,
            connect_timeout_s=settings.connect_timeout_s,
        )
        self._core = ServerConnection(limits, self._loop.time())
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._welcoming: asyncio.Task[None] | None = None
        self._outgoing: Outgoing | None = None
        self._client_id = self.user = ""
        self._is_attached = False
        self._session = 0
        self._expiry_s = 0
        self._pending = 0  # changes of the store that this client waits for
        self._is_paused = self._is_over = self._has_ended = False
        self._is_writable = True
        self._unread_bytes = 0  # of answers, while it is not

    # -- asyncio.Protocol ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._settings.write_buffer_bytes)
        self._set_timer()

    def data_received(self, data: bytes) -> None:
        if not self._is_over:
            self._guarded(lambda: self._core.receive(data, self._loop.time()))

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._guarded(self._core.eof)
        if self._timer is not None:
            self._timer.cancel()
        self._ended(self)

    def pause_writing(self) -> None:
        self._is_writable = False
        if self._outgoing is not None:
            self._outgoing.writable(False)

    def resume_writing(self) -> None:
        self._is_writable, self._unread_bytes = True, 0
        if self._outgoing is not None:
            self._outgoing.writable(True)

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    # -- the hub's part ------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        if self._outgoing is not None:
            self._outgoing.wake()

    def send_live(self, packet: Publish) -> bool:
        return self._outgoing is not None and self._outgoing.send_live(packet)

    def end(self, reason: ReasonCode, detail: str) -> None:
        """Ends the connection from this side."""
        if self._core.closed is None:
            self._closed(self._core.disconnect(reason, {"reason_string": detail}, detail))
            self._flush()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- packets -------------------------------------------------------------------------------------------------------

    def _guarded(self, call: Callable[[], list[Any]]) -> None:
        """Handles events; an error, which is a bug, ends this connection only."""
        try:
            self._handle(call())
            self._flush()
        except Exception:
            _log.exception("the connection of an MQTT client has failed")
            self.end(ReasonCode.UNSPECIFIED_ERROR, "internal error")
            self.abort()

    def _handle(self, events: list[Any]) -> None:
        for event in events:
            _HANDLERS[type(event)](self, event)

    def _connect(self, packet: Connect) -> None:
        self._welcoming = asyncio.ensure_future(self._welcome(packet))

    async def _welcome(self, packet: Connect) -> None:
        """Answers CONNECT."""
        try:
            self._check(packet)
            self.user = user = await self._authenticate(packet)
            if self._core.closed is not None:
                return
            self._client_id = packet.client_id or f"auto-{secrets.token_hex(12)}"
            self._expiry_s = self._expiry_of(packet)
            self._hub.attach(self._client_id, user, self)
            self._is_attached = True
            client_id, expiry_s, is_clean = self._client_id, self._expiry_s, packet.clean_start
            attached = await self._hub.changes.make(
                lambda store: store.sessions.attach(client_id, user, expiry_s, is_clean=is_clean)
            )
            self._guarded(lambda: self._accept(packet, attached))
        except SessionRefused as error:
            self._refuse(error.reason, str(error))
        except Exception as error:
            if self._core.closed is None:
                _log.error("an MQTT client could not be connected: %s", error)
            self._refuse(ReasonCode.SERVER_UNAVAILABLE, "the agent cannot use its store")

    def _check(self, packet: Connect) -> None:
        """Raises SessionRefused."""
        if len(packet.client_id.encode()) > CLIENT_ID_BYTES_MAX:
            raise SessionRefused(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "the client id is too long")
        if packet.will is not None and self._hub.route(packet.will.topic) is None:
            raise SessionRefused(ReasonCode.NOT_AUTHORIZED, "there is no route for the topic of the will")

    def _refuse(self, reason: ReasonCode, detail: str) -> None:
        self._leave()
        if self._core.state is State.CONNECTING:
            _log.warning("the MQTT client %s is refused: %s", visible(self._client_id), detail)
            self._closed(self._core.refuse(reason, {"reason_string": detail}))
            self._flush()

    def _accept(self, packet: Connect, attached: Attached) -> list[Any]:
        self._session = attached.number
        self._hub.began(self._client_id, attached)
        if self._core.closed is not None:
            self._leave()
            return []
        asked = packet.properties or {}
        properties: Properties = {"shared_subscription_available": 0}
        if asked.get(EXPIRY, 0) > self._settings.session_expiry_s:
            properties[EXPIRY] = self._settings.session_expiry_s
        assigned = None if packet.client_id else self._client_id
        events = self._core.accept(
            self._loop.time(),
            session_present=attached.is_present,
            assigned_client_id=assigned,
            properties=properties,
        )
        window = min(asked.get("receive_maximum", RECEIVE_MAXIMUM_DEFAULT), self._settings.inflight)
        self._outgoing = Outgoing(self._hub.changes, self._core, attached.number, window, self._flush, self._fail)
        self._outgoing.wake()
        self._set_timer()
        return events

    def _publish(self, packet: Publish) -> None:
        future = self._hub.publish(self._client_id, packet, self._session)
        self._wait_for(future, partial(self._published, packet))

    def _published(self, packet: Publish, future: "asyncio.Future[Taken]") -> None:
        error = future.exception()
        if error is None:
            if packet.qos:
                self._send(Puback(packet.packet_id) if packet.qos == 1 else Pubrec(packet.packet_id))
            return
        if not packet.qos:
            self._hub.dropped += 1
            return
        client = visible(self._client_id)
        if not isinstance(error, NotAccepted | SessionRefused):
            _log.error("a message of the MQTT client %s was not taken: %s", client, error)
        if self._core.version == codes.VERSION_5:
            kind = Puback if packet.qos == 1 else Pubrec
            self._send(kind(packet.packet_id, reason_of(error), {"reason_string": str(error)}))
        else:
            _log.warning("the connection of %s ends: MQTT 3.1.1 cannot refuse a message, but %s", client, error)
            self.end(reason_of(error), str(error))

    def _pubrel(self, packet: Pubrel) -> None:
        session, packet_id = self._session, packet.packet_id

        def done(was_there: bool) -> None:
            reason = ReasonCode.SUCCESS if was_there else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
            self._send(Pubcomp(packet_id, reason))

        change = self._hub.changes.make(lambda store: store.sessions.ends(session, packet_id))
        self._wait_for(change, self._or_end(done))

    def _answer(self, packet: Puback | Pubrec | Pubcomp) -> None:
        if self._outgoing is not None:
            self._outgoing.answered(packet)

    def _subscribe(self, packet: Subscribe) -> None:
        is_v5, session, client_id = self._core.version == codes.VERSION_5, self._session, self._client_id
        if not all(may_subscribe(wanted.filter, is_v5) for wanted in packet.filters):
            self.end(ReasonCode.TOPIC_FILTER_INVALID, "a topic filter is not valid")
            return

        def done(reasons: list[ReasonCode], given: list[Taken]) -> None:
            self._send(Suback(packet.packet_id, reasons))
            for taken in given:
                self._hub.distribute(taken)
            self._hub.filters_changed.set()

        change = self._hub.changes.make(lambda store: subscribe_all(store, session, client_id, packet, is_v5=is_v5))
        self._wait_for(change, self._or_end(lambda result: done(*result)))

    def _unsubscribe(self, packet: Unsubscribe) -> None:
        session, filters = self._session, packet.filters

        def done(reasons: list[ReasonCode]) -> None:
            self._send(Unsuback(packet.packet_id, reasons if self._core.version == codes.VERSION_5 else []))
            self._hub.filters_changed.set()

        change = self._hub.changes.make(lambda store: unsubscribe_all(store, session, filters))
        self._wait_for(change, self._or_end(done))

    def _disconnect(self, packet: Disconnect) -> None:
        expiry_s = (packet.properties or {}).get(EXPIRY)
        if expiry_s is not None:
            self._expiry_s = min(expiry_s, self._settings.session_expiry_s)

    def _closed(self, closed: Closed) -> None:
        """Once, whatever has ended the connection."""
        self._has_ended = True
        will = self._core.connect.will if self._core.connect is not None else None
        if self._session:  # else `_accept` leaves it once it is known
            self._leave()
        if closed.send_will and will is not None:
            delay_s = (will.properties or {}).get("will_delay_interval", 0)
            self._hub.publish_will(self._client_id, will, min(delay_s, self._expiry_s))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _leave(self) -> None:
        """The session has no connection any more."""
        sent = self._outgoing.sent if self._outgoing is not None else 0
        if self._outgoing is not None:
            self._outgoing.end()
        if self._is_attached:
            self._is_attached = False
            if not self._hub.detach(self._client_id, self):
                return  # the session has another connection already
            self._hub.leave(self._client_id, self._session, self._expiry_s, sent)

    def _expiry_of(self, packet: Connect) -> int:
        if packet.version == codes.VERSION_5:
            return min(int((packet.properties or {}).get(EXPIRY, 0)), self._settings.session_expiry_s)
        return 0 if packet.clean_start else self._settings.session_expiry_s

    def _or_end(self, done: Callable[[Any], None]) -> "Callable[[asyncio.Future[Any]], None]":
        """Calls `done` with the result of a change; ends the connection if the change has failed."""

        def ended(future: "asyncio.Future[Any]") -> None:
            if future.exception() is None:
                done(future.result())
            else:
                self._fail()

        return ended

    def _fail(self) -> None:
        self.end(ReasonCode.UNSPECIFIED_ERROR, "the agent cannot use its store")

    def _wait_for(self, future: "asyncio.Future[Any]", done: Callable[["asyncio.Future[Any]"], None]) -> None:
        """Calls `done` once the change is durable. Reading pauses while too many are not."""
        self._pending += 1
        if self._pending >= self._settings.inflight and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

        def ended(future: "asyncio.Future[Any]") -> None:
            self._pending -= 1
            if self._core.closed is None:
                done(future)
            if self._is_paused and self._pending <= self._settings.inflight // 2:
                self._is_paused = False
                if self._transport is not None and not self._transport.is_closing():
                    self._transport.resume_reading()

        future.add_done_callback(ended)

    def _send(self, packet: Packet) -> None:
        self._core.send(packet)
        self._flush()

    def _flush(self) -> None:
        if self._core.closed is not None and not self._has_ended:  # an answer is too large for the client
            self._closed(self._core.closed)
        data, transport = self._core.outgoing(), self._transport
        if transport is None or transport.is_closing():
            return
        if not self._is_writable and self._core.closed is None:  # deliveries wait: these are answers
            self._unread_bytes += len(data)
            if self._unread_bytes > self._settings.write_buffer_bytes:
                self.end(ReasonCode.QUOTA_EXCEEDED, "the client does not read the answers to what it sends")
                return
        if data and not self._is_over:
            transport.write(data)
        if self._core.closed is not None and not self._is_over:
            self._is_over = True
            self._close(transport)

    def _close(self, transport: asyncio.Transport) -> None:
        """Closes once everything is written and the client has closed, or its time is over. A close with unread bytes
        would reset the connection, and the client would not see the reason (RFC 1122, 4.2.2.13)."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(LINGER_S, transport.abort)
        if transport.can_write_eof():
            transport.write_eof()
            transport.resume_reading()
        else:
            transport.close()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        deadline = self._core.deadline()
        self._timer = None if deadline is None or self._is_over else self._loop.call_at(deadline, self._tick)

    def _tick(self) -> None:
        self._guarded(lambda: self._core.tick(self._loop.time()))
        if not self._is_over:
            self._set_timer()


_HANDLERS: Final[dict[type, Callable[[Connection, Any], None]]] = {
    Connect: Connection._connect,
    Publish: Connection._publish,
    Pubrel: Connection._pubrel,
    Puback: Connection._answer,
    Pubrec: Connection._answer,
    Pubcomp: Connection._answer,
    Subscribe: Connection._subscribe,
    Unsubscribe: Connection._unsubscribe,
    Disconnect: Connection._disconnect,
    Closed: Connection._closed,
}
