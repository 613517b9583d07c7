"""Connections through a proxy, on real sockets: presence knows the true peer; who cannot name it stays out (R12)."""

from collections.abc import Callable, Iterator
from ipaddress import IPv4Address
from pathlib import Path
from socket import IPPROTO_TCP, SHUT_WR, TCP_NODELAY

import pytest
from websockets.exceptions import InvalidStatus

from mqtt.encode import encode
from mqtt.packets import Connack, Connect, Disconnect, Pingreq, Pingresp
from tests.unit.gateway.host.raw_client import RawClient, WebClient
from tests.unit.gateway.host.socket_gateway import HOST, SocketGateway
from tests.unit.gateway.host.test_proxy_protocol import binary, over_ip
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SocketGateway]:
    directory = tmp_path_factory.mktemp("proxied")
    with SocketGateway(directory, proxy_protocol=True, trusted_proxies=["127.0.0.0/8"]) as gateway:
        yield gateway


def peer_of(gateway: SocketGateway, client: str) -> str | None:
    wait_for(lambda: bool(gateway.call(gateway.harness.presence, client)), f"presence of {client}")
    return gateway.call(gateway.harness.presence, client)[0].peer


@pytest.mark.parametrize(
    ("header", "peer"),
    [
        (over_ip(IPv4Address, "198.51.100.9", 4711, b"\x03\x00\x04abcd"), "198.51.100.9:4711"),
        (b"PROXY TCP6 2001:db8::1 ::1 4711 1883\r\n", "2001:db8::1:4711"),
        (binary(0x20, 0x00, b""), None),
        (b"PROXY UNKNOWN\r\n", None),
    ],
    ids=["v2", "v1", "v2 local", "v1 unknown"],
)
@pytest.mark.parametrize("is_cut", [False, True], ids=["at once", "byte by byte"])
def test_the_peer_is_the_one_that_the_proxy_names(
    gateway: SocketGateway, header: bytes, peer: str | None, is_cut: bool, request: pytest.FixtureRequest
) -> None:
    """R12: also if CONNECT comes in one piece with the header; a proxy that names nobody speaks for itself."""
    name = request.node.name
    with RawClient(gateway.mqtt_port) as client:
        if is_cut:
            client.socket.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
            for byte in header:
                client.send_bytes(bytes((byte,)))
            client.send(Connect(name))
        else:
            client.send_bytes(header + encode(Connect(name), 5))
        client.take(Connack)
        client.send(Pingreq())
        client.take(Pingresp)
        address, port = client.socket.getsockname()
        assert peer_of(gateway, name) == (peer or f"{address}:{port}")
        client.send(Disconnect())
        assert client.ended() == []


@pytest.mark.parametrize(
    ("sent", "word"),
    [
        (lambda client: client.send_bytes(b"\x10\x0c\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x00"), "proxy_header_missing"),
        (lambda client: client.socket.shutdown(SHUT_WR), "proxy_header_missing"),
        (lambda client: client.send_bytes(b"PROXY UDP4 1.2.3.4 1.2.3.4 1 1\r\n"), "proxy_header_malformed"),
    ],
)
def test_without_a_header_the_connection_ends(
    gateway: SocketGateway, sent: Callable[[RawClient], None], word: str
) -> None:
    before = gateway.count(f"closed_{word}")
    with RawClient(gateway.mqtt_port) as client:
        sent(client)
        assert client.ended() == []
    wait_for(lambda: gateway.count(f"closed_{word}") == before + 1, word)


def test_a_header_that_does_not_come_in_time(tmp_path: Path) -> None:
    with (
        SocketGateway(
            tmp_path, limits={"connect_timeout_s": 0.05}, proxy_protocol=True, trusted_proxies=[HOST]
        ) as gateway,
        RawClient(gateway.mqtt_port) as client,
    ):
        client.send_bytes(b"PROXY ")
        assert client.ended() == []
        assert gateway.count("closed_proxy_header_missing") == 1


def test_only_proxies_are_believed(tmp_path: Path) -> None:
    with SocketGateway(tmp_path, proxy_protocol=True, trusted_proxies=["192.0.2.0/24"]) as gateway:
        with RawClient(gateway.mqtt_port) as client:
            assert client.ended() == []
        wait_for(lambda: gateway.count("closed_untrusted_proxy") == 1, "the count")
        forged = {"X-Forwarded-For": "192.0.2.1"}
        with WebClient(gateway.websocket_port, additional_headers=forged) as web:
            web.connect("forger")
            assert peer_of(gateway, "forger") == "{}:{}".format(*web.web.local_address)


def test_x_forwarded_for(gateway: SocketGateway) -> None:
    """R12: over WebSocket the proxy says it in HTTP; what is no address is refused."""
    headers = {"X-Forwarded-For": "6.6.6.6, 198.51.100.1, 127.0.0.9"}
    with WebClient(gateway.websocket_port, additional_headers=headers) as web:
        web.connect("forwarded")
        assert peer_of(gateway, "forwarded") == "198.51.100.1:0"
    before = gateway.count("websocket_refused")
    with pytest.raises(InvalidStatus) as refusal:
        WebClient(gateway.websocket_port, additional_headers={"X-Forwarded-For": "unknown"})
    assert refusal.value.response.status_code == 400
    assert gateway.count("websocket_refused") == before + 1
