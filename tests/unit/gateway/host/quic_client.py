"""What speaks QUIC to a gateway in tests: a client of the house, a raw one that may do anything, and a NAT."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

from aioquic.asyncio import QuicConnectionProtocol
from aioquic.asyncio import connect as aioquic_connect
from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration

from edge.link import Address, QuicTls
from edge.mqtt_client import MqttClient
from harness.keys import Authority
from mqtt.codes import ReasonCode
from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.packets import Connack, Connect, Packet, Publish
from tests.unit.gateway.host.socket_gateway import HOST, PATIENCE_S


class Trust(NamedTuple):
    """An authority, and the settings of a gateway with a certificate from it."""

    authority: Authority
    settings: dict[str, Any]

    def client(self, client_id: str, port: int, **options: Any) -> MqttClient:
        address = Address(HOST, port, quic=QuicTls(str(self.authority.file)))
        return MqttClient(address, Connect(client_id, clean_start=False), **options)


def trust(directory: Path, **settings: Any) -> Trust:
    authority = Authority(directory)
    signed = authority.sign("localhost", file="server")
    files = {"certificate": str(signed.certificate), "key": str(signed.key), "client_ca": str(authority.file)}
    return Trust(authority, files | {"quic_port": 0} | settings)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, PATIENCE_S))


async def until(condition: Callable[[], object]) -> None:
    """Returns once the condition holds; the test ends if it never does."""
    while not condition():
        await asyncio.sleep(0.01)


class RawQuic(QuicConnectionProtocol):
    """A connection of aioquic's own client, whose stream 0 the test writes to. `ended` has the error code."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.packets: list[Packet] = []
        self.ended: int | None = None
        self.has_eof = False
        self._decoder = Decoder(1 << 24, 5)

    def quic_event_received(self, event: events.QuicEvent) -> None:
        if isinstance(event, events.StreamDataReceived):
            self.packets += self._decoder.feed(event.data)
            self.has_eof = self.has_eof or event.end_stream
        elif isinstance(event, events.ConnectionTerminated):
            self.ended = event.error_code

    def send(self, *packets: Packet) -> None:
        self.send_bytes(b"".join(encode(packet, 5) for packet in packets))

    def send_bytes(self, data: bytes, stream: int = 0) -> None:
        self._quic.send_stream_data(stream, data)
        self.transmit()

    async def take(self) -> Packet:
        """The next packet."""
        await until(lambda: self.packets)
        return self.packets.pop(0)

    async def mqtt(self, client_id: str) -> None:
        self.send(Connect(client_id))
        connack = await self.take()
        assert isinstance(connack, Connack)
        assert connack.reason_code is ReasonCode.SUCCESS

    async def code(self) -> int:
        """The error code with which it ended."""
        await until(lambda: self.ended is not None)
        assert self.ended is not None
        return self.ended


@asynccontextmanager
async def raw(trusted: Trust, port: int, **settings: Any) -> AsyncIterator[RawQuic]:
    """A connection whose handshake is done. `settings` are aioquic's."""
    options = {"is_client": True, "alpn_protocols": ["mqtt"], "server_name": "localhost"} | settings
    configuration = QuicConfiguration(**options)
    configuration.load_verify_locations(str(trusted.authority.file))
    async with aioquic_connect(HOST, port, configuration=configuration, create_protocol=RawQuic) as client:
        yield cast(RawQuic, client)


class Nat(asyncio.DatagramProtocol):
    """Passes datagrams between one client and the gateway, to which it shows an address of its own; :meth:`rebind`
    gives it another, as NATs do after a pause. `port` is for the client."""

    def __init__(self, gateway_port: int) -> None:
        self._gateway_port = gateway_port
        self._client: Any = None
        self._inside: Any = None
        self._outside: Any = None
        self.port = 0

    async def open(self) -> "Nat":
        loop = asyncio.get_running_loop()
        self._inside, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=(HOST, 0))
        self.port = self._inside.get_extra_info("sockname")[1]
        await self.rebind()
        return self

    async def rebind(self) -> int:
        """The port that the gateway sees from now on."""
        old, loop, nat = self._outside, asyncio.get_running_loop(), self

        class Outside(asyncio.DatagramProtocol):
            def datagram_received(self, data: bytes, address: Any) -> None:
                nat._inside.sendto(data, nat._client)

        outside, _ = await loop.create_datagram_endpoint(Outside, remote_addr=(HOST, self._gateway_port))
        self._outside = outside
        if old is not None:
            old.close()
        return int(outside.get_extra_info("sockname")[1])

    def datagram_received(self, data: bytes, address: Any) -> None:
        self._client = address
        self._outside.sendto(data)

    def close(self) -> None:
        self._inside.close()
        self._outside.close()


def payloads(messages: list[Publish]) -> list[bytes]:
    return [message.payload for message in messages]
