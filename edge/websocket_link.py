"""MQTT over WebSocket, as a client (MQTT 5.0, section 6; RFC 6455)."""

import asyncio
from typing import Final

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from edge.errors import Unreachable
from edge.link import Link, Receiver
from edge.unread_answers import UnreadAnswers
from mqtt.client_limits import PACKET_SIZE_MAX, ClientLimits

_NORMAL: Final = 1000
_UNSUPPORTED_DATA: Final = 1003
_DATA: Final = (Opcode.BINARY, Opcode.CONT)
_FRAME_SLACK_BYTES: Final = 16 << 20
"""By how much a frame may be larger than a packet: it may hold several, and is in memory until its end has come."""


class WebSocketLink(Link):
    """Binary frames of the subprotocol `mqtt`; each write goes out as one frame. Pings are answered here, within
    `limits.unread_answer_bytes`."""

    def __init__(self, receiver: Receiver, uri: str, limits: ClientLimits) -> None:
        super().__init__(receiver)
        frame_bytes = min(limits.max_packet_size + _FRAME_SLACK_BYTES, PACKET_SIZE_MAX)
        self._protocol = ClientProtocol(
            parse_uri(uri), subprotocols=[Subprotocol("mqtt")], max_size=(None, frame_bytes)
        )
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unread, self._unread_max = UnreadAnswers(), limits.unread_answer_bytes
        self._answered = 0  # bytes of answers to control frames
        self._is_congested = False
        self._fault: Exception | None = None

    async def ready(self) -> None:
        await self._ready

    def write(self, data: bytes) -> None:
        if self._protocol.state is State.OPEN:
            self._protocol.send_binary(data)
            self._send()

    def _close(self, lingers: bool) -> None:
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(_NORMAL)
            self._send()
        else:
            super()._close(lingers)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._protocol.send_request(self._protocol.connect())
        self._send()

    def data_received(self, data: bytes) -> None:
        self._protocol.receive_data(data)
        self._open()
        for event in self._protocol.events_received():
            if isinstance(event, Frame) and event.opcode in _DATA:
                self._receiver.data_received(bytes(event.data))
            elif isinstance(event, Frame) and event.opcode is Opcode.TEXT:  # [MQTT-6.0.0-1]
                self._protocol.fail(_UNSUPPORTED_DATA, "MQTT needs binary frames")
        self._answer()
        if self._protocol.close_expected():
            self.close()

    def eof_received(self) -> None:
        self._protocol.receive_eof()
        self._open()
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        self._opened("the server ended the connection")
        super().connection_lost(self._fault or error)

    def pause_writing(self) -> None:
        self._is_congested = True
        super().pause_writing()

    def resume_writing(self) -> None:
        self._is_congested = False
        super().resume_writing()

    def _answer(self) -> None:
        """Sends what the server has asked for, as long as it reads."""
        before = self.written
        self._send()
        self._answered += self.written - before
        if not self._is_congested:
            return
        unread = self._unread.count(self.written, self._answered, self.unsent)
        if unread > self._unread_max:
            text = f"the server does not read: {unread:,} bytes of answers to pings wait for it"
            self._fault = ConnectionAbortedError(text)
            self.abort()

    def _open(self) -> None:
        """Checks whether the handshake has ended, and how."""
        if self._protocol.handshake_exc is not None:
            self._opened(str(self._protocol.handshake_exc))
        elif self._protocol.state is State.OPEN:
            is_mqtt = self._protocol.subprotocol == "mqtt"  # [MQTT-6.0.0-3]
            self._opened(None if is_mqtt else "the server does not support the subprotocol mqtt")

    def _opened(self, problem: str | None) -> None:
        if self._ready.done():
            return
        if problem is None:
            self._ready.set_result(None)
        else:
            self._ready.set_exception(Unreachable(f"the WebSocket handshake failed: {problem}"))

    def _send(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                super().write(data)
            else:  # empty data asks us to close our side
                super()._close(False)
