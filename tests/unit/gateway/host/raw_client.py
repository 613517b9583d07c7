"""MQTT clients that send whatever a test wants, packet by packet or byte by byte, over TCP or WebSocket."""

import base64
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from mqtt.codes import ReasonCode
from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.packets import Connack, Connect, Packet, Properties, Publish, Suback, Subscribe, Subscription, Will
from tests.unit.gateway.host.socket_gateway import HOST, PATIENCE_S

P = TypeVar("P", bound=Packet)


class RawClient:
    """One TCP connection. What came is taken in order by `take`; `ended` waits for the end of the connection."""

    def __init__(self, port: int, version: int = 5, receive_buffer: int | None = None) -> None:
        self.version = version
        self._open(port, receive_buffer)
        self._decoder = Decoder(1 << 24, version)
        self._received: list[Packet] = []

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.socket.close()

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send(self, *packets: Packet) -> None:
        self.send_bytes(b"".join(encode(packet, self.version) for packet in packets))

    def take_any(self) -> Packet:
        """The next packet."""
        while not self._received:
            data = self._read()
            assert data, "the connection ended"
            self._received += self._decoder.feed(data)
        return self._received.pop(0)

    def take(self, kind: type[P]) -> P:
        """The next packet, which is to be of that kind."""
        packet = self.take_any()
        assert isinstance(packet, kind), packet
        return packet

    def ended(self) -> list[Packet]:
        """What came before the end of the connection."""
        while data := self._read():
            self._received += self._decoder.feed(data)
        received, self._received = self._received, []
        return received

    def connect(
        self,
        client_id: str,
        *,
        clean_start: bool = True,
        keep_alive: int = 0,
        will: Will | None = None,
        properties: Properties | None = None,
    ) -> Connack:
        """CONNECT, and the answer to it."""
        self.send(Connect(client_id, self.version, clean_start, keep_alive, will=will, properties=properties))
        return self.take(Connack)

    def publish(self, topic: str, payload: bytes = b"", qos: int = 0, packet_id: int = 0, **fields: Any) -> None:
        self.send(Publish(topic, payload, qos, packet_id=packet_id, **fields))

    def _open(self, port: int, receive_buffer: int | None) -> None:
        self.socket = socket.socket()
        self.socket.settimeout(PATIENCE_S)
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.connect((HOST, port))

    def _read(self) -> bytes:
        try:
            return self.socket.recv(1 << 16)
        except ConnectionResetError:
            return b""


class WebClient(RawClient):
    """One WebSocket connection; what is sent at once goes in one frame."""

    def __init__(self, port: int, path: str = "/mqtt", version: int = 5, **options: Any) -> None:
        self.web = websocket(port, path, **options).__enter__()
        self.close_code: int | None = None
        super().__init__(port, version)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.web.__exit__(kind, error, tb)

    def send_bytes(self, data: bytes) -> None:
        self.web.send(data)

    def _open(self, port: int, receive_buffer: int | None) -> None:
        self.socket = self.web.socket

    def _read(self) -> bytes:
        try:
            data = b""
            while not data:
                frame = self.web.recv(PATIENCE_S)
                assert isinstance(frame, bytes), "MQTT goes in binary frames"
                data = frame
        except ConnectionClosed as closed:
            self.close_code = closed.rcvd.code if closed.rcvd is not None else None
        return data


def websocket(
    port: int, path: str = "/mqtt", protocols: tuple[str, ...] = ("mqtt",), **options: Any
) -> ClientConnection:
    """A WebSocket connection to the gateway, without MQTT yet."""
    return connect(
        f"ws://{HOST}:{port}{path}",
        subprotocols=[Subprotocol(name) for name in protocols] or None,
        open_timeout=PATIENCE_S,
        **options,
    )


@contextmanager
def upgraded(port: int, receive_buffer: int | None = None) -> Iterator[RawClient]:
    """A connection after its WebSocket handshake, to send any bytes over."""
    with RawClient(port, receive_buffer=receive_buffer) as client:
        key = base64.b64encode(os.urandom(16)).decode()
        client.send_bytes(
            f"GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
            f"Sec-WebSocket-Protocol: mqtt\r\n\r\n".encode()
        )
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.socket.recv(1)
        assert head.startswith(b"HTTP/1.1 101 "), head
        yield client


def subscribe(client: RawClient, *filters: str | Subscription, identifier: int | None = None) -> list[ReasonCode]:
    """SUBSCRIBE, a plain filter at QoS 2; the reason codes of its SUBACK."""
    wanted = [Subscription(f, 2) if isinstance(f, str) else f for f in filters]
    client.send(Subscribe(1, wanted, None if identifier is None else {"subscription_identifier": [identifier]}))
    return client.take(Suback).reason_codes
