"""MQTT over QUIC: the transport of one connection (G11; RFC 9000). :mod:`gateway.host.quic_listener` has the socket.

Theory of operation. Datagrams that arrive in one turn of the loop are taken together: the first one schedules a "turn",
in which the stream's data goes to the connection and everything that has to be sent goes out. A write schedules a turn
too. The transport behaves as one over TCP does:

* Reading pauses by not reading the stream, whose window then closes (:mod:`mqtt.quic_stream`).
* Writing pauses above `write_buffer_bytes` of unacknowledged data.
* What arrived before the end of a connection is handled before the end, also if reading is paused.
* Closing waits until the client has everything and has closed its side, or `_LINGER_S`.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import structlog

from gateway.host.connection import ByteTaker, Refuse
from gateway.host.host_connection import HostConnection
from gateway.host.host_server import HostServer
from gateway.host.quic_tls import ClientCertificateError, QuicCredentials
from mqtt.quic_stream import NetworkAddress, QuicStream

_READ_BYTES: Final = 32 * 1024
"""The most bytes read from one connection before others get a turn (R9)."""

_LINGER_S: Final = 2.0
"""How long a client may take to close its side."""

log = structlog.get_logger(__name__)


class QuicTransport:
    """`send` sends a datagram; `gone` is called once, when no more datagrams of this connection are expected.
    `handshake_done` is called once, at the end of the handshake or of the connection, whichever is first."""

    bearer = "quic"
    uses_tls = True
    refuse: Refuse | None = None

    def __init__(
        self,
        server: HostServer,
        credentials: QuicCredentials,
        stream: QuicStream,
        send: Callable[[bytes, NetworkAddress], None],
        handshake_timeout_s: float,
        handshake_done: Callable[[], None],
        gone: Callable[["QuicTransport"], None],
    ) -> None:
        self._server = server
        self._credentials = credentials
        self._stream = stream
        self._send = send
        self._handshake_done: Callable[[], None] | None = handshake_done
        self._gone = gone
        self._loop = asyncio.get_running_loop()
        self._connection: ByteTaker | None = None
        self._address: NetworkAddress = None
        self._is_turn_due = False
        self._is_reading_paused = False
        self._is_writing_paused = False
        self._is_closing = False
        self._is_gone = False
        self._is_lost = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._limit = self._loop.call_later(handshake_timeout_s, self.abort)
        self.peer = ""
        """The client's present address; its session keeps the one it connected from."""
        self.certificate: str | None = None

    # -- called by the listener ----------------------------------------------------------------------------------------

    def datagram_received(self, data: bytes, address: NetworkAddress) -> None:
        if self._is_gone:
            return
        try:
            self._stream.receive(data, address, self._loop.time())
        except Exception:  # an error of aioquic: whatever a client sends, it may end its own connection at most
            self._fail()
        else:
            self._turn_soon()

    def abort(self) -> None:
        """Ends it at once; the client is told that it has ended."""
        self._stream.close()
        self._turn()

    # -- called by the connection (Transport) --------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if self._is_closing or self._is_gone:
            return
        self._stream.write(data)
        self._turn_soon()
        if not self._is_writing_paused and self._stream.buffered > self._server.limits.write_buffer_bytes:
            self._is_writing_paused = True
            if self._connection is not None:
                self._connection.writing_paused()

    def hand_over(self, to: ByteTaker) -> None:
        self._connection = to

    def close(self) -> None:
        """Closes once everything written is delivered and the client has closed its side or its time is over. Until
        then, what it sends is read and discarded."""
        if self._is_closing:
            return
        self._is_closing, self._connection = True, None
        if self._is_gone:
            self._server.transports.discard(self)
            return
        self._stream.finish()
        self._limit = self._loop.call_later(_LINGER_S, self.abort)
        self._turn_soon()

    def pause_reading(self) -> None:
        self._is_reading_paused = True

    def resume_reading(self) -> None:
        self._is_reading_paused = False
        self._turn_soon()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _turn_soon(self) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_turn_due = False
        try:
            if not self._is_gone:
                self._advance()
            self._read()
            if not self._is_gone:
                self._send_all()
        except Exception:  # as above
            self._fail()

    def _advance(self) -> None:
        self._stream.advance()
        if self._stream.is_open and self._handshake_done is not None:
            self._open()
        self._look_at_address()

    def _send_all(self) -> None:
        stream = self._stream
        if self._is_closing and stream.is_delivered and stream.has_eof:
            stream.close()
        self._transmit()
        if stream.end is not None:
            self._end()
        elif self._is_writing_paused and stream.buffered <= self._server.limits.write_buffer_bytes // 4:
            self._is_writing_paused = False
            if self._connection is not None:
                self._connection.writing_resumed()

    def _open(self) -> None:
        """The handshake is done: MQTT begins, unless the client's certificate is refused."""
        self._finish_handshake()
        try:
            self.certificate = self._credentials.user(self._stream.certificates)
        except ClientCertificateError as error:
            self._server.counts["quic_handshakes_failed"] += 1
            log.debug("client certificate refused", peer=self.peer, reason=str(error))
            self._stream.close(error.code, str(error))
            return
        self._look_at_address()
        self._server.transports.add(self)
        self._connection = HostConnection(self._server, self)

    def _read(self) -> None:
        """Gives the connection what arrived, up to `_READ_BYTES`; the rest in another turn."""
        stream, connection = self._stream, self._connection
        if connection is None:
            stream.read(stream.unread)
            return
        if self._is_reading_paused:
            return
        if data := stream.read(_READ_BYTES):
            connection.data_received(data)
        if stream.unread:
            self._turn_soon()
        elif (stream.has_eof or self._is_gone) and not (self._is_reading_paused or self._is_lost):
            self._is_lost = True
            connection.transport_lost()

    def _transmit(self) -> None:
        now, stream = self._loop.time(), self._stream
        for datagram, address in stream.outgoing(now):
            self._send(datagram, address)
        deadline = stream.deadline()
        if deadline is None:
            return
        if self._timer is None or self._timer_at > deadline:  # an earlier one asks again
            if self._timer is not None:
                self._timer.cancel()
            self._timer, self._timer_at = self._loop.call_at(deadline, self._tick), deadline

    def _tick(self) -> None:
        self._timer = None
        try:
            self._stream.tick(max(self._timer_at, self._loop.time()))  # uvloop's time lags behind its timers
        except Exception:  # as above
            self._fail()
        else:
            self._turn()

    def _look_at_address(self) -> None:
        address = self._stream.peer_address
        if address != self._address:
            if self._connection is not None:
                self._server.counts["quic_address_changes"] += 1
                log.debug("client has another address", peer=_text(address), before=self.peer)
            self._address, self.peer = address, _text(address)

    def _finish_handshake(self) -> None:
        self._limit.cancel()
        done, self._handshake_done = self._handshake_done, None
        if done is not None:
            done()

    def _fail(self) -> None:
        """Ends it without using aioquic again."""
        self._server.counts["quic_failures"] += 1
        log.debug("a connection over QUIC has failed", peer=self.peer, exc_info=True)
        if not self._is_gone:
            self._end()
        if self._connection is not None and not self._is_lost:
            self._is_lost = True
            self._connection.transport_lost()

    def _end(self) -> None:
        """The connection has ended: nothing more is sent or received. The rest of what arrived is still read."""
        self._is_gone = True
        if self._handshake_done is not None:
            self._server.counts["quic_handshakes_failed"] += 1
        self._finish_handshake()
        if self._timer is not None:
            self._timer.cancel()
        self._gone(self)
        if self._connection is None:
            self._server.transports.discard(self)
        else:
            self._turn_soon()


def _text(address: Any) -> str:
    return f"{address[0]}:{address[1]}" if address else ""
