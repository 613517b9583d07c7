"""One client's connection on any transport: events of the MQTT core go to the home, calls of the home to the core."""

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any

import structlog

from gateway.errors import BusError
from gateway.host.answers import publish_refusal, suback_codes
from gateway.host.authenticator import NotAdmitted
from gateway.host.close_reasons import close_reason
from gateway.host.connection import Transport
from gateway.host.handshake import arrival_of, connack_properties, credentials_of, granted_expiry, outbound_encoder
from gateway.host.host_server import HostServer
from gateway.host.outbound import PublishEncoder
from gateway.host.rate_limit import RateLimit
from gateway.host.relays import Refusal
from gateway.host.watermarks import is_above
from gateway.shard.arrivals import LOST_CONNECTING
from gateway.shard.messages import Delivery, Message
from gateway.shard.rules import FOR_EVER, Paced
from gateway.shard.shard_home import Attached
from mqtt.codes import VERSION_5, ReasonCode
from mqtt.encode import encode_puback, encode_pubrec, encode_pubrel
from mqtt.packets import (
    Connect,
    Disconnect,
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
from mqtt.server_events import Closed, Event

log = structlog.get_logger(__name__)

_EVENTS_A_TURN = 500
"""Packets of one read that are handled before other connections get a turn."""


class HostConnection:
    """The home's :class:`gateway.shard.link.Link` to one client. Events wait while a CONNECT, SUBSCRIBE or UNSUBSCRIBE
    is handled, so that packets take effect in order, and while other connections have their turn."""

    def __init__(self, server: HostServer, transport: Transport) -> None:
        self._server = server
        self._transport = transport
        self._core = ServerConnection(server.connection_limits, server.now(), server.traffic)
        self._waiting: deque[Event] = deque()
        self._busy = False
        self._attached: Attached | None = None
        self._expiry_s: int | None = None
        self._reading_paused = False
        self._rate_limit: RateLimit | None = None
        self._gone = False
        self._is_lost = False
        self._is_connecting = False
        self._version = VERSION_5
        self._encoder: PublishEncoder
        self._unread_bytes = 0
        self._until = FOR_EVER
        self._first = None if server.relays is None else bytearray()  # all bytes, until CONNECT was read
        self._delivers = self._reads = self.writable = True
        server.opened(self)

    # -- called by the transport ---------------------------------------------------------------------------------------

    def data_received(self, data: bytes | memoryview) -> None:
        if self._first is not None:
            self._first += data
        self._take(self._core.receive(data, self._server.now()))

    def transport_lost(self) -> None:
        """The transport has ended, on either side. Earlier packets take effect first, then the end."""
        self._is_lost = self._is_lost or self._core.closed is None
        self._take(self._core.eof())
        if self._core.closed is not None and not self._busy:
            self._leave(self._core.closed)

    def writing_paused(self) -> None:
        self.writable = False

    def writing_resumed(self) -> None:
        self.writable = self._delivers
        self._unread_bytes = 0
        if self._attached is not None and not self._gone:
            self._attached.home.writable(self._attached.session, self)

    def tick(self) -> None:
        """Runs twice a second. Ends the connection if the client's credentials have expired. Then checks keep alive or,
        while reading is paused, whether it can resume."""
        if self._until <= self._server.clock():
            self.disconnect(ReasonCode.NOT_AUTHORIZED)
        if not self._reading_paused:
            self._take(self._core.tick(self._server.now()))
        else:
            self.read_on()

    def read_on(self) -> None:
        """Resumes reading once the cause of the pause is below half its limit, so that pauses stay rare."""
        if self._reading_paused and self._reads and not self._busy and not self._is_flooded(half=True):
            self._reading_paused = False
            self._transport.resume_reading()

    # -- draining (gateway.host.drain) ---------------------------------------------------------------------------------

    def hold_deliveries(self) -> None:
        self._delivers = self.writable = False

    def stop_reading(self) -> None:
        self._reads, self._reading_paused = False, True
        self._transport.pause_reading()

    @property
    def awaits_client(self) -> bool:
        """Whether the client has yet to acknowledge a delivery."""
        return self._attached is not None and bool(self._attached.session.in_flight)

    @property
    def awaits_kafka(self) -> bool:
        """Whether the client still waits for an answer."""
        attached = self._attached
        if self._busy or attached is None:
            return self._busy
        return attached.publisher.in_flight > 0 or attached.session.is_logging

    # -- called by the home (Link) -------------------------------------------------------------------------------------

    def deliver(self, message: Message, delivery: Delivery) -> bool:
        data = self._encoder.encode(message, delivery)
        if self._core.fits(len(data)):
            self._core.send(data)
            self._encoder.sent()
            self._server.traffic.publishes_sent[delivery.qos] += 1
            if not self.writable:  # encoded before the client stopped reading: does not count against it
                self._unread_bytes -= len(data)
            self._server.dirty.add(self)
            return True
        self._encoder.dropped()
        if self._attached is not None:
            self._server.counts["dropped_too_large_for_client"] += 1
            if delivery.qos:
                self._server.soon(self._attached.home.undeliverable, self._attached.session, delivery)
        return False

    def release(self, packet_id: int, reason: ReasonCode = ReasonCode.SUCCESS) -> None:
        self._core.send(encode_pubrel(packet_id) if reason is ReasonCode.SUCCESS else Pubrel(packet_id, reason))
        self._server.dirty.add(self)

    def answer(self, qos: int, packet_id: int, reason: ReasonCode) -> None:
        core = self._core
        if reason is not ReasonCode.SUCCESS:
            self._refuse_publish(qos, packet_id, reason)
        elif qos == 1:
            core.send(encode_puback(packet_id), 1)
        elif qos == 2:
            core.send(encode_pubrec(packet_id))
        self._server.dirty.add(self)

    def complete(self, packet_id: int, reason: ReasonCode) -> None:
        self._core.send(Pubcomp(packet_id, reason))
        self._server.dirty.add(self)

    def disconnect(self, reason: ReasonCode) -> None:
        relays, connect, properties = self._server.relays, self._core.connect, None
        if relays is not None and connect is not None:
            reason, properties = relays.ending(self._transport, connect, self._client, reason)
        self._server.drop_unverified(self._core)
        self._leave(self._core.disconnect(reason, properties))

    # -- inside --------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Writes the core's output."""
        data = self._core.outgoing()
        if data and not self._gone:
            if not self.writable:  # no deliveries are sent now: these are answers that the client does not read
                self._unread_bytes += len(data)
                if self._unread_bytes > self._server.limits.write_buffer_bytes:
                    self.disconnect(ReasonCode.QUOTA_EXCEEDED)
                    return
            self._transport.write(data)
        if self._core.closed is not None and not self._busy:  # otherwise earlier packets take effect first
            self._leave(self._core.closed)

    def _take(self, events: list[Event]) -> None:
        waiting = self._waiting
        waiting.extend(events)
        left = _EVENTS_A_TURN
        while waiting and not self._busy:
            if not left:
                self._work(asyncio.sleep(0))
                break
            left -= 1
            self._handle(waiting.popleft())
        self._server.home.flush()
        if self._core.is_flush_due:
            self._server.dirty.add(self)
        if not self._reading_paused and (self._busy or self._floods()) and not self._gone:
            self._reading_paused = True
            self._transport.pause_reading()
            if self._server.is_flooded():
                self._server.paused.add(self)

    def _floods(self) -> bool:
        """Whether this client contributes to too many messages in flight to Kafka."""
        attached = self._attached
        if attached is not None and self._rate_limit is None and not attached.publisher.in_flight:
            return False
        return self._is_flooded()

    def _is_flooded(self, half: bool = False) -> bool:
        """Whether too much of this client or of all is in flight to Kafka; with `half`, over half the limit (R9)."""
        attached = self._attached
        if attached is not None:
            most = self._server.limits.client_in_flight_messages
            if is_above(attached.publisher.in_flight, most, half):
                return True
        if self._rate_limit is not None and self._rate_limit.holds():
            return True
        return self._server.is_flooded(half)

    def _handle(self, event: Event) -> None:
        """The hot path: the most frequent events come first."""
        attached = self._attached
        if attached is None or self._gone:
            if isinstance(event, Closed):
                self._leave(event)
            elif isinstance(event, Connect):
                self._work(self._connect(event))
            return
        home, session = attached.home, attached.session
        match event:
            case Publish():
                attached.publisher.publish(event)
            case Puback():
                home.acknowledged(session, event.packet_id)
            case Pubrec():
                home.received(session, event.packet_id, event.reason_code)
            case Pubrel():
                home.release(session, self, event.packet_id)
            case Pubcomp():
                home.completed(session, event.packet_id)
            case Subscribe():
                self._work(self._subscribe(attached, event))
            case Unsubscribe():
                self._work(self._unsubscribe(attached, event))
            case Disconnect():
                self._expiry_s = self._granted_expiry((event.properties or {}).get("session_expiry_interval"))
            case Closed():
                self._server.drop_unverified(self._core)
                self._leave(event)

    def _work(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs `work` before any later event is handled."""
        self._busy = True
        self._server.spawn(self._run(work))

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except BusError as error:
            log.warning("request failed", client=self._client, reason=str(error))
            self.disconnect(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR)
        except NotAdmitted as error:  # the client's shard has moved meanwhile
            self.disconnect(error.reason)
        finally:
            self._busy = False
            self._take([])
            self.read_on()

    async def _connect(self, connect: Connect) -> None:
        server, transport = self._server, self._transport
        self._version = connect.version
        self._encoder = outbound_encoder(connect, server.limits, server.clock)
        if not server.is_full() and await self._is_elsewhere(connect):
            return
        if server.is_full() or not server.home.has_capacity(connect.client_id):
            self.disconnect(ReasonCode.QUOTA_EXCEEDED)
            return
        self._is_connecting = True
        credentials = credentials_of(connect, transport, server.home.has_shard_of)
        expiry_s = granted_expiry(connect, server.limits)
        try:
            rules = await server.authenticator.admit(credentials)
            arrival = arrival_of(connect, credentials, rules, expiry_s, server.limits)
            if self._is_over():
                return
            if connect.will is not None and arrival.will is None:
                server.will_left_out(credentials, connect.will.topic)
            if isinstance(rules, Paced):
                self._rate_limit = RateLimit(rules, self.read_on)
            attached = await server.home.attach(arrival, self)
        except NotAdmitted as error:
            if error.reason is not ReasonCode.USE_ANOTHER_SERVER:
                server.not_admitted(credentials, error)
            self._is_connecting = False
            self.disconnect(error.reason)
            return
        if self._is_over():
            attached.home.detach(attached.session, self, send_will=False, reason=LOST_CONNECTING)
            return
        self._attached, self._is_connecting, self._until = attached, False, rules.until
        held = self._core.accept(
            server.now(),
            session_present=attached.present,
            assigned_client_id=None if connect.client_id else credentials.client,
            properties=connack_properties(connect, credentials.client, expiry_s, server.response_prefix),
        )
        self._server.dirty.add(self)
        self._waiting.extendleft(reversed(held))
        attached.home.resume(attached.session, self)

    async def _is_elsewhere(self, connect: Connect) -> bool:
        """Whether the client's home is at another gateway: then its connection goes on there, or ends here."""
        relays, first = self._server.relays, self._first
        if relays is None or first is None:
            return False
        found = await relays.bring_home(self._transport, connect, first)
        self._first = None
        if isinstance(found, Refusal):
            self._leave(self._core.disconnect(*found))
        elif found is not None and self._is_over():
            relays.abandon(found)
        elif found is not None:
            self._gone, self._reads = True, False
            self._server.replaced(self, found)
            self._transport.hand_over(found)
            found.begin()
        return found is not None or self._is_over()

    async def _subscribe(self, attached: Attached, packet: Subscribe) -> None:
        def answer(codes: list[ReasonCode]) -> None:
            self._core.send(Suback(packet.packet_id, suback_codes(self._version, codes)))

        await attached.home.subscribe(attached.session, packet, answer)

    async def _unsubscribe(self, attached: Attached, packet: Unsubscribe) -> None:
        codes = await attached.home.unsubscribe(attached.session, packet)
        self._core.send(Unsuback(packet.packet_id, codes))

    def _refuse_publish(self, qos: int, packet_id: int, reason: ReasonCode) -> None:
        told, ends = publish_refusal(self._version, qos, reason)
        if ends:
            self.disconnect(told)
        elif qos:
            self._core.send(Puback(packet_id, told) if qos == 1 else Pubrec(packet_id, told))

    def _is_over(self) -> bool:
        return self._gone or self._core.closed is not None

    def _granted_expiry(self, asked: int | None) -> int | None:
        return None if asked is None else min(asked, self._server.limits.session_expiry_s)

    def _leave(self, closed: Closed) -> None:
        """Ends the connection, once: sends the last bytes, closes the transport, detaches the session."""
        if self._gone:
            return
        self._gone = True
        if self._rate_limit is not None:
            self._rate_limit.end()
        data = self._core.outgoing()
        if data:
            self._transport.write(data)
        self._transport.close()
        reason = close_reason(
            closed,
            is_lost=self._is_lost,
            is_connecting=self._is_connecting,
            has_connect=self._core.connect is not None,
        )
        self._server.gone(self, reason)
        self._server.close_log.ended(reason, closed, client=self._client, peer=self._transport.peer)
        self._server.paused.discard(self)
        if self._attached is not None:
            send_will = not closed.clean or closed.send_will
            home, session = self._attached.home, self._attached.session
            home.detach(session, self, send_will=send_will, reason=reason, expiry_s=self._expiry_s)
        else:
            log.debug(
                "connection ended without a session", peer=self._transport.peer, reason=reason, detail=closed.detail
            )

    @property
    def _client(self) -> str:
        if self._attached is not None:
            return self._attached.session.client
        return "" if self._core.connect is None else self._core.connect.client_id
