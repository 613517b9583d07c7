"""MQTT over WebSocket by the rules of both: MQTT 5.0, section 6, and RFC 6455; on real sockets (G11)."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode

from mqtt.codes import ReasonCode
from mqtt.encode import encode
from mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
)
from schemas.settings import process_settings
from tests.draw import examples
from tests.unit.gateway.host.raw_client import RawClient, WebClient, upgraded, websocket
from tests.unit.gateway.host.socket_gateway import PATIENCE_S, SocketGateway
from tests.waiting import wait_for

FRAME_BYTES = 4096
PACKET_BYTES = 2048


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SocketGateway]:
    limits = {"websocket_frame_bytes": FRAME_BYTES, "packet_bytes": PACKET_BYTES}
    pages = ["https://good.example"]
    directory = tmp_path_factory.mktemp("websocket")
    with SocketGateway(directory, limits=limits, websocket_path="/mqtt", websocket_origins=pages) as gateway:
        yield gateway


@pytest.fixture
def client(gateway: SocketGateway) -> Iterator[WebClient]:
    with WebClient(gateway.websocket_port) as client:
        yield client


def raw(*packets: Packet) -> bytes:
    return b"".join(encode(packet, 5) for packet in packets)


@st.composite
def mutated_frames(draw: st.DrawFn) -> bytes:
    opcode = draw(st.sampled_from([Opcode.BINARY, Opcode.TEXT, Opcode.CONT, Opcode.PING, Opcode.PONG, Opcode.CLOSE]))
    data = draw(st.one_of(st.binary(max_size=100), st.just(raw(Connect("noise"), Publish("n", b"", 1, packet_id=1)))))
    frame = bytearray(Frame(Opcode.BINARY, data, draw(st.booleans())).serialize(mask=True))
    frame[0] = frame[0] & 0xF0 | opcode
    for _ in range(draw(st.integers(0, 2))):
        frame[draw(st.integers(0, len(frame) - 1))] = draw(st.integers(0, 255))
    return bytes(frame)


@pytest.mark.parametrize("offered", [("mqtt",), ("mqttv3.1", "mqtt")])
def test_the_subprotocol_is_mqtt(gateway: SocketGateway, offered: tuple[str, ...]) -> None:
    """[MQTT-6.0.0-4]; no extension is agreed on, though the client offers compression."""
    with websocket(gateway.websocket_port, protocols=offered) as connection:
        assert connection.subprotocol == "mqtt"
        assert connection.response is not None
        assert "Sec-WebSocket-Extensions" not in connection.response.headers
        assert "Server" not in connection.response.headers


@pytest.mark.parametrize(
    ("methods", "origin", "may_connect"),
    [
        ((), "https://strange.example", False),
        (("password", "anonymous"), "https://strange.example", False),
        ((), "http://localhost.strange.example", False),
        ((), "null", False),
        ((), "http://localhost:3000", True),
        ((), "https://127.0.0.1", True),
        ((), "http://[::1]:80", True),
        ((), None, True),
        (("password",), "https://strange.example", True),
    ],
)
def test_a_strange_page_may_not_do_what_programs_on_this_machine_may(
    tmp_path: Path, methods: tuple[str, ...], origin: str | None, may_connect: bool
) -> None:
    """Browsers let every page open a WebSocket to this machine, and say which page it is."""
    authentication = msgspec.structs.replace(process_settings({}).gateway.authentication, methods=methods)
    with SocketGateway(tmp_path, authentication=authentication) as gateway:
        if may_connect:
            with WebClient(gateway.websocket_port, origin=origin) as client:
                assert client.connect("page").reason_code is ReasonCode.SUCCESS
        else:
            with pytest.raises(InvalidStatus) as refused:
                websocket(gateway.websocket_port, origin=origin)
            assert refused.value.response.status_code == 403


@pytest.mark.parametrize(
    ("status", "path", "protocols", "origin"),
    [
        (400, "/mqtt", (), None),
        (400, "/mqtt", ("mqttv3.1",), None),  # [MQTT-6.0.0-3]: a client must offer `mqtt`
        (404, "/other", ("mqtt",), None),
        (404, "/mqtt/x", ("mqtt",), None),
        (403, "/mqtt", ("mqtt",), "https://evil.example"),
        (403, "/mqtt", ("mqtt",), "null"),
    ],
)
def test_refused_handshakes(
    gateway: SocketGateway, status: int, path: str, protocols: tuple[str, ...], origin: str | None
) -> None:
    """What was wrong is in the body; the metrics count it."""
    before = gateway.count("websocket_refused")
    with pytest.raises(InvalidStatus) as refusal:
        websocket(gateway.websocket_port, path, protocols, origin=origin)
    assert refusal.value.response.status_code == status
    assert refusal.value.response.body
    assert gateway.count("websocket_refused") == before + 1


def test_a_page_that_may_and_a_query_behind_the_path(gateway: SocketGateway) -> None:
    with WebClient(gateway.websocket_port, "/mqtt?x=1", origin="https://good.example") as client:
        client.connect("page")


def test_no_websocket_at_all(gateway: SocketGateway) -> None:
    with RawClient(gateway.websocket_port) as client:
        client.send_bytes(b"GET /mqtt HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.socket.recv(100).startswith(b"HTTP/1.1 426 ")
    with RawClient(gateway.websocket_port) as client:
        client.send(Connect("tcp"))
        client.send_bytes(b"\r\n")
        assert client.ended() == []


def test_a_handshake_that_does_not_come_in_time(tmp_path: Path) -> None:
    with (
        SocketGateway(tmp_path, limits={"connect_timeout_s": 0.05}) as gateway,
        RawClient(gateway.websocket_port) as client,
    ):
        client.send_bytes(b"GET / HTTP/1.1\r\n")
        assert client.ended() == []


def test_packets_and_frames_have_nothing_to_do_with_each_other(client: WebClient) -> None:
    """[MQTT-6.0.0-2]: several packets in a frame; a packet over frames and over fragments, with a ping and an empty
    frame in between."""
    client.send(Connect("frames"), Pingreq(), Subscribe(1, [Subscription("f/#", 0)]))
    assert [type(client.take_any()) for _ in range(3)] == [Connack, Pingresp, Suback]
    message = Publish("f/1", b"x" * 500, 1, packet_id=7)
    data = raw(message)
    for byte in data[:20]:
        client.send_bytes(bytes((byte,)))
    client.send_bytes(b"")
    assert client.web.ping().wait(PATIENCE_S)
    client.web.send([data[20:100], b"", data[100:300], data[300:]])
    came = [client.take_any() for _ in range(2)]
    assert {type(packet) for packet in came} == {Puback, Publish}
    assert message.payload in [packet.payload for packet in came if isinstance(packet, Publish)]


def test_a_message_larger_than_a_packet_or_a_frame_may_be(client: WebClient) -> None:
    """Packets are limited, and frames; not how many packets a frame holds, nor how many frames a message."""
    client.connect("large")
    packets = [raw(Publish("large", b"x" * 1000, 1, packet_id=n)) for n in range(1, 24)]
    client.send_bytes(b"".join(packets[:3]))
    client.web.send([b"".join(packets[n : n + 3]) for n in range(3, 23, 3)])
    assert [client.take(Puback).packet_id for _ in packets] == list(range(1, 24))


def test_a_text_frame(gateway: SocketGateway, client: WebClient) -> None:
    """[MQTT-6.0.0-1]: closed, and both protocols say why."""
    before = gateway.count("closed_protocol_error")
    client.connect("text")
    client.web.send("text")
    assert client.ended() == [Disconnect(ReasonCode.PROTOCOL_ERROR)]
    assert client.close_code == 1003
    assert gateway.count("closed_protocol_error") == before + 1


def test_a_frame_too_large(gateway: SocketGateway, client: WebClient) -> None:
    before = gateway.count("closed_packet_too_large")
    client.connect("too-large-frame")
    client.send_bytes(bytes(FRAME_BYTES + 1))
    assert client.ended() == []
    assert client.close_code == 1009
    wait_for(lambda: gateway.count("closed_packet_too_large") == before + 1, "the count")


def test_a_packet_too_large(client: WebClient) -> None:
    """The packet is MQTT's own affair: its DISCONNECT says so; the frame was right."""
    client.connect("too-large-packet")
    client.publish("t", bytes(PACKET_BYTES))
    (goodbye,) = client.ended()
    assert isinstance(goodbye, Disconnect)
    assert goodbye.reason_code == ReasonCode.PACKET_TOO_LARGE
    assert client.close_code == 1000


@pytest.mark.parametrize(
    "frame",
    [
        Frame(Opcode.BINARY, b"\xc0\x00").serialize(mask=False),  # RFC 6455, 5.1: a client must mask
        b"\xc2\x80abcd",  # a reserved bit: no extension was agreed on
        Frame(Opcode.CONT, b"\xc0\x00").serialize(mask=True),  # there is nothing to continue
        b"\x09\x80abcd",  # a ping in fragments
        b"\x83\x80abcd",  # an opcode that is none
    ],
    ids=["unmasked", "reserved bit", "continuation", "fragmented ping", "opcode"],
)
def test_frames_that_are_none(gateway: SocketGateway, frame: bytes) -> None:
    before = gateway.count("closed_protocol_error")
    with upgraded(gateway.websocket_port) as client:
        client.send_bytes(frame)
        close = client.socket.recv(200)
        assert close[:1] == b"\x88"
        assert int.from_bytes(close[2:4], "big") == 1002
    wait_for(lambda: gateway.count("closed_protocol_error") == before + 1, "the count")


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.binary(max_size=40), mutated_frames()), min_size=1, max_size=5))
def test_whatever_comes_is_survived(
    gateway: SocketGateway, caplog: pytest.LogCaptureFixture, pieces: list[bytes]
) -> None:
    """Noise and damaged frames end their connection, and nothing else: no error of ours, nothing fatal."""
    with upgraded(gateway.websocket_port) as client, contextlib.suppress(ConnectionError):
        for piece in pieces:
            client.send_bytes(piece)
        client.socket.shutdown(socket.SHUT_WR)
        while client.socket.recv(4096):
            pass
    assert not caplog.records
    assert not gateway.harness.fatal


def test_orderly_ends(gateway: SocketGateway, client: WebClient) -> None:
    client.connect("orderly")
    client.send(Disconnect())
    assert client.ended() == []
    assert client.close_code == 1000
    before = gateway.count("closed_connection_lost")
    with WebClient(gateway.websocket_port) as other:
        other.connect("closes")
    wait_for(lambda: gateway.count("closed_connection_lost") == before + 1, "no goodbye in MQTT: a lost connection")


def test_a_stopping_gateway_goes_away(tmp_path: Path) -> None:
    with SocketGateway(tmp_path) as gateway, WebClient(gateway.websocket_port) as client:
        client.connect("c")
        gateway.begin_to_stop()
        assert client.ended() == [Disconnect(ReasonCode.SERVER_SHUTTING_DOWN)]
        assert client.close_code == 1001
