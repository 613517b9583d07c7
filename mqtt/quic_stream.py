"""MQTT's byte stream on one QUIC connection, for either end (RFC 9000, RFC 9001): ALPN `mqtt`, TLS 1.3.

Theory of operation. aioquic speaks QUIC: datagrams and times go in, datagrams and events come out. One bidirectional
stream, opened by the client, carries MQTT as a TCP connection would (EMQX's "single stream mode"). Added to
aioquic is what it does not do by itself (:mod:`mqtt.quic_connection`):

* **One stream.** The transport parameters allow the client one bidirectional stream and no other; whoever opens more
  breaks the protocol, and aioquic closes the connection (RFC 9000, 4.6). DATAGRAM frames are not allowed either.
* **Flow control by what was read.** aioquic raises the peer's limits as data arrives, so a reader that pauses would
  buffer without bound. Here the limits follow what :meth:`QuicStream.read` took: no more than the window is unread.
* **PING.** An idle connection is probed after half its idle time-out, so that a peer that lives stays connected without
  traffic, and one that has vanished is noticed (RFC 9000, 10.1.2).
* **Client certificates.** Requested if wanted, and given to the caller, who must verify them.

There are no session tickets, so no connection is resumed and none has 0-RTT data, which could be replayed.
"""

from collections.abc import Callable
from typing import Any, Final

from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import (
    ConnectionIdIssued,
    ConnectionIdRetired,
    HandshakeCompleted,
    StopSendingReceived,
    StreamDataReceived,
    StreamReset,
)
from aioquic.quic.packet import QuicErrorCode, QuicFrameType
from aioquic.tls import AlertDescription

from mqtt.quic_connection import STREAM_ID, Certificates, OneStreamConnection

ALPN: Final = "mqtt"
NetworkAddress = Any
"""A socket's address, as asyncio gives it."""


def crypto_error(alert: AlertDescription) -> int:
    """The error code for a failure of the TLS handshake (RFC 9001, 4.8)."""
    return int(QuicErrorCode.CRYPTO_ERROR) + alert


def configuration(*, is_client: bool, window: int, idle_timeout_s: float) -> QuicConfiguration:
    """The settings of a connection, without certificates. `window`: the most bytes received and unread."""
    return QuicConfiguration(
        alpn_protocols=[ALPN],
        is_client=is_client,
        max_data=window,
        max_stream_data=window,
        idle_timeout=idle_timeout_s,
    )


class QuicStream:
    """One connection. After :meth:`receive`, :meth:`tick`, :meth:`write` and the like, call :meth:`advance`, look at
    what has changed, and send what :meth:`outgoing` returns; call :meth:`tick` at :meth:`deadline`. Times are seconds
    of one monotonic clock. `route` is called with each connection id by which the peer may address this end, and
    whether it is in use (True) or no longer (False)."""

    def __init__(
        self,
        settings: QuicConfiguration,
        *,
        asks_certificate: bool = False,
        route: Callable[[bytes, bool], None] | None = None,
        **ids: Any,
    ) -> None:
        self._quic = OneStreamConnection(settings, **ids)
        self._quic.asks_certificate = asks_certificate
        self._route = route
        self._is_client = settings.is_client
        self._ping_after_s = settings.idle_timeout / 2
        self._ping_at = float("inf")
        self._unread = bytearray()
        self._has_finished = False
        self.is_open = False
        """Whether the handshake is done and MQTT was agreed on."""
        self.has_eof = False
        """Whether the peer has sent everything; some of it may be unread."""

    @property
    def connection_id(self) -> bytes:
        """The first id by which the peer addresses this end."""
        return self._quic.host_cid

    @property
    def certificates(self) -> Certificates | None:
        """The peer's, which has proved that it holds the key; on a server nobody has verified who issued it."""
        return self._quic.peer_certificates

    @property
    def end(self) -> tuple[int, str] | None:
        """Error code and words once the connection has ended; what arrived before can still be read."""
        return self._quic.close_reason

    @property
    def peer_address(self) -> NetworkAddress:
        """Where the peer is now: it may move (RFC 9000, 9)."""
        return self._quic.get_peer_address()

    # -- network and time ----------------------------------------------------------------------------------------------

    def connect(self, address: NetworkAddress, now: float) -> None:
        """Begins the handshake, as a client."""
        self._quic.connect(address, now)

    def receive(self, datagram: bytes, address: NetworkAddress, now: float) -> None:
        """Takes a datagram. Data on the stream can be read after :meth:`advance`."""
        self._quic.receive_datagram(datagram, address, now)
        self._ping_at = now + self._ping_after_s

    def tick(self, now: float) -> None:
        """Runs what is due at `now`."""
        timer_at = self._quic.get_timer()
        if timer_at is not None and timer_at <= now:
            self._quic.handle_timer(now)
        if self._ping_at <= now:
            self._ping_at = now + self._ping_after_s
            self.ping()

    def deadline(self) -> float | None:
        """When to call :meth:`tick`."""
        timer_at = self._quic.get_timer()
        return None if timer_at is None else min(timer_at, self._ping_at)

    def outgoing(self, now: float) -> list[tuple[bytes, NetworkAddress]]:
        """The datagrams to send now, and where to."""
        return self._quic.datagrams_to_send(now)

    def advance(self) -> None:
        """Takes over what aioquic has found out since the last call."""
        while (event := self._quic.next_event()) is not None:
            kind = type(event)
            if kind is StreamDataReceived:
                self._stream_data(event)  # type: ignore[arg-type]
            elif kind is ConnectionIdIssued or kind is ConnectionIdRetired:
                if self._route is not None:
                    self._route(event.connection_id, kind is ConnectionIdIssued)  # type: ignore[attr-defined]
            elif kind is HandshakeCompleted:
                self._handshake_completed(event)  # type: ignore[arg-type]
            elif kind is StreamReset or kind is StopSendingReceived:
                self.close(QuicErrorCode.APPLICATION_ERROR, "the stream was reset")

    # -- the stream ----------------------------------------------------------------------------------------------------

    @property
    def unread(self) -> int:
        """Bytes received and not read yet."""
        return len(self._unread)

    def read(self, most: int) -> bytes:
        """Takes at most `most` bytes, and lets the peer send as many more."""
        if len(self._unread) <= most:
            data = bytes(self._unread)
            self._unread.clear()
        else:
            data = bytes(self._unread[:most])
            del self._unread[:most]
        if data:
            self._quic.taken(len(data))
        return data

    @property
    def buffered(self) -> int:
        """Bytes written that the peer has not acknowledged: what is held in memory for it."""
        sender = self._quic.sender
        return 0 if sender is None else len(sender._buffer)

    def write(self, data: bytes) -> None:
        """Queues bytes. Without a stream, or after its end, they are dropped."""
        if self._can_send():
            self._quic.send_stream_data(STREAM_ID, data)

    def finish(self) -> None:
        """Ends the stream after what was written. The peer's side may go on."""
        if self._can_send():
            self._quic.send_stream_data(STREAM_ID, b"", end_stream=True)
        self._has_finished = True

    @property
    def is_delivered(self) -> bool:
        """Whether the peer has acknowledged everything up to :meth:`finish`."""
        sender = self._quic.sender
        return self._has_finished and (sender is None or sender.is_finished)

    def close(self, code: int = QuicErrorCode.NO_ERROR, words: str = "") -> None:
        """Ends the connection, once :meth:`outgoing` is sent; what was written and not delivered is lost."""
        self._quic.close(error_code=code, frame_type=QuicFrameType.PADDING, reason_phrase=words)

    # -- the path ------------------------------------------------------------------------------------------------------

    def ping(self) -> None:
        """Makes :meth:`outgoing` return something that the peer acknowledges."""
        self._quic.send_ping(0)

    def move(self) -> None:
        """The next datagrams leave from another address: addresses the peer by another connection id, so that nobody
        can link both (RFC 9000, 9.5)."""
        self._quic.change_connection_id()
        self.ping()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _can_send(self) -> bool:
        if self._has_finished or not self.is_open or self._quic.close_reason is not None:
            return False
        sender = self._quic.sender
        if sender is None:
            return self._is_client
        return sender._reset_error_code is None  # the peer wants no more: `advance` ends the connection

    def _handshake_completed(self, event: HandshakeCompleted) -> None:
        """A client that names no protocol at all has passed so far (RFC 9001, 8.1)."""
        if event.alpn_protocol != ALPN:
            self.close(crypto_error(AlertDescription.no_application_protocol), "the protocol is not mqtt")
        elif self._quic.close_reason is None:
            self.is_open = True

    def _stream_data(self, event: StreamDataReceived) -> None:
        if event.stream_id != STREAM_ID:  # possible once the first stream has ended
            self.close(QuicErrorCode.STREAM_LIMIT_ERROR, "there is one stream")
            return
        self._unread += event.data
        self.has_eof = self.has_eof or event.end_stream
