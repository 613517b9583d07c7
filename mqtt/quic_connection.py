"""aioquic's connection, limited to what MQTT over QUIC needs (RFC 9000): one stream, and a window that follows what was
read. :mod:`mqtt.quic_stream` says why, and is how everybody else uses it.

Some of what is replaced here is private in aioquic, whose version is therefore pinned. If another version behaves
differently, tests/unit/mqtt/test_quic_stream.py fails.
"""

from typing import Any, Final

from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import (
    CONNECTION_LIMIT_FRAME_CAPACITY,
    MAX_STREAM_DATA_FRAME_CAPACITY,
    QuicConnection,
)
from aioquic.quic.packet import QuicFrameType
from aioquic.quic.packet_builder import QuicPacketBuilder
from aioquic.quic.recovery import QuicPacketSpace
from aioquic.quic.stream import QuicStream as AioquicStream
from cryptography import x509

STREAM_ID: Final = 0
"""The client's first bidirectional stream (RFC 9000, 2.1)."""

Certificates = tuple[x509.Certificate, list[x509.Certificate]]
"""A peer's certificate, and those of the authorities that came with it."""


class OneStreamConnection(QuicConnection):
    """Limits the peer to one stream, and to a window beyond what was read."""

    asks_certificate = False

    def __init__(self, settings: QuicConfiguration, **ids: Any) -> None:
        super().__init__(configuration=settings, **ids)
        for limit, most in (
            (self._local_max_streams_bidi, 0 if settings.is_client else 1),
            (self._local_max_streams_uni, 0),
        ):
            limit.value = limit.sent = most
        self._taken = 0

    def taken(self, number: int) -> None:
        """`number` bytes were read: opens the window once half of it is used."""
        self._taken += number
        limit, window = self._local_max_data, self._configuration.max_data
        if limit.value - self._taken <= window // 2:
            limit.value = self._taken + window
            stream = self._streams.get(STREAM_ID)
            if stream is not None:
                stream.max_stream_data_local = limit.value

    @property
    def sender(self) -> Any:
        """The stream's sending side; None before it is open and after it has finished."""
        stream = self._streams.get(STREAM_ID)
        return None if stream is None else stream.sender

    @property
    def close_reason(self) -> tuple[int, str] | None:
        """Error code and words of the end of the connection, whoever ended it; None while it lives."""
        event = self._close_event
        return None if event is None else (event.error_code, event.reason_phrase)

    @property
    def peer_certificates(self) -> Certificates | None:
        certificate = self.tls._peer_certificate
        return None if certificate is None else (certificate, self.tls._peer_certificate_chain)

    # -- aioquic's own, replaced ---------------------------------------------------------------------------------------

    def _initialize(self, peer_cid: bytes) -> None:
        super()._initialize(peer_cid)
        self.tls._request_client_certificate = self.asks_certificate

    def _idle_timeout(self) -> float:
        """0 from the peer means that it has none (RFC 9000, 18.2)."""
        if self._remote_max_idle_timeout == 0:
            self._remote_max_idle_timeout = None
        return super()._idle_timeout()

    def _write_connection_limits(self, builder: QuicPacketBuilder, space: QuicPacketSpace) -> None:
        limit = self._local_max_data
        if limit.sent != limit.value:
            buffer = builder.start_frame(
                limit.frame_type,
                capacity=CONNECTION_LIMIT_FRAME_CAPACITY,
                handler=self._on_connection_limit_delivery,
                handler_args=(limit,),
            )
            buffer.push_uint_var(limit.value)
            limit.sent = limit.value

    def _write_stream_limits(self, builder: QuicPacketBuilder, space: QuicPacketSpace, stream: AioquicStream) -> None:
        if stream.max_stream_data_local_sent != stream.max_stream_data_local:
            buffer = builder.start_frame(
                QuicFrameType.MAX_STREAM_DATA,
                capacity=MAX_STREAM_DATA_FRAME_CAPACITY,
                handler=self._on_max_stream_data_delivery,
                handler_args=(stream,),
            )
            buffer.push_uint_var(STREAM_ID)
            buffer.push_uint_var(stream.max_stream_data_local)
            stream.max_stream_data_local_sent = stream.max_stream_data_local
