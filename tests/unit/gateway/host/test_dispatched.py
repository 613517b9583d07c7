"""A client whose socket comes from the dispatcher is served as one of the gateway's own listener (R1)."""

import socket
from pathlib import Path
from typing import Any

import msgspec

from gateway.dispatch.frames import Frame, decode_frame, encode_frame, gateway_name
from gateway.host.dispatched import DispatchedClients, open_dispatched
from gateway.sockets.directory import SocketDirectory
from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.packets import Connack, Connect
from tests.unit.gateway.host.socket_gateway import HOST, SocketGateway

PATIENCE_S = 20.0
OF_A_PROXY = b"PROXY TCP4 192.0.2.1 192.0.2.2 40000 1883\r\n"


def with_sockets(settings: Any, directory: Path, **changes: Any) -> Any:
    cluster = msgspec.structs.replace(settings.cluster, sockets=str(directory))
    return msgspec.structs.replace(settings, cluster=cluster, **changes)


def connack_of(directory: Path, gateway: SocketGateway, before: bytes = b"", **changes: Any) -> Connack:
    """The answer to a client that the dispatcher gives to the gateway; it had sent CONNECT before."""
    settings = with_sockets(gateway.settings, directory, **changes)

    async def opened() -> DispatchedClients:
        found = open_dispatched(gateway.server, settings)
        assert found is not None
        return found

    async def closed() -> None:
        dispatched.close()

    dispatched = gateway.run(opened())
    try:
        with socket.create_server((HOST, 0)) as listening, SocketDirectory(directory) as meeting:
            client = socket.create_connection(listening.getsockname(), timeout=PATIENCE_S)
            client.sendall(before + encode(Connect(client_id="given", version=5), 5))
            accepted, _ = listening.accept()
            way = meeting.connect(gateway_name(settings.name))
            way.settimeout(PATIENCE_S)
            socket.send_fds(way, [encode_frame(Frame("hand", 7))], [accepted.fileno()])
            assert decode_frame(way.recv(100)) == Frame("taken", 7)
            accepted.close()
            (packet,) = Decoder(1 << 20, 5).feed(client.recv(1000))
            assert isinstance(packet, Connack)
            client.close()
            way.close()
            return packet
    finally:
        gateway.run(closed())


def test_its_connect_is_read_and_answered(tmp_path: Path, gateway: SocketGateway) -> None:
    before = gateway.server.counts["dispatched"]
    assert connack_of(tmp_path, gateway).reason_code == 0
    assert gateway.server.counts["dispatched"] == before + 1


def test_behind_a_proxy_the_header_is_read_as_on_the_gateways_own_listener(
    tmp_path: Path, gateway: SocketGateway
) -> None:
    answer = connack_of(tmp_path, gateway, OF_A_PROXY, proxy_protocol=True, trusted_proxies=[HOST])
    assert answer.reason_code == 0


def test_without_the_setting_nothing_is_opened(gateway: SocketGateway) -> None:
    assert open_dispatched(gateway.server, gateway.settings) is None
