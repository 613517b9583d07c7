"""How connections begin and end by the specification, on real sockets (MQTT 5.0 and 3.1.1; G11)."""

import threading
from pathlib import Path

import pytest

from mqtt.codes import ReasonCode
from mqtt.packets import Connect, Disconnect, Publish, Pubrec, Will
from tests.unit.gateway.host.raw_client import RawClient, subscribe
from tests.unit.gateway.host.socket_gateway import SocketGateway


def send_for_ever(client: RawClient) -> None:
    while True:
        client.send_bytes(b"\xc0\x00")


@pytest.mark.parametrize(
    ("delay", "clean_start", "is_due"),
    [(0, False, True), (0, True, True), (60, True, True), (60, False, False)],
    ids=["no delay", "no delay, clean start", "delay, clean start", "delay, resumed"],
)
def test_a_will_at_takeover(
    gateway: SocketGateway,
    one: RawClient,
    two: RawClient,
    name: str,
    delay: int,
    clean_start: bool,
    is_due: bool,
) -> None:
    """[MQTT-3.1.4-3], [MQTT-3.1.3-9]: 0x8E, and the will, unless the session is taken up within its delay."""
    with RawClient(gateway.mqtt_port) as watcher:
        watcher.connect(f"watcher {name}")
        subscribe(watcher, f"will/{name}")
        will = Will(f"will/{name}", b"gone", properties={"will_delay_interval": delay})
        one.connect(name, clean_start=False, will=will, properties={"session_expiry_interval": 100})
        answer = two.connect(name, clean_start=clean_start, properties={"session_expiry_interval": 100})
        assert answer.session_present is not clean_start
        assert one.ended() == [Disconnect(ReasonCode.SESSION_TAKEN_OVER)]
        two.publish(f"will/{name}", b"later")  # of the same sender: it comes behind the will
        if is_due:
            assert watcher.take(Publish).payload == b"gone"
        assert watcher.take(Publish).payload == b"later"


def test_an_assigned_identifier_is_the_session_s(gateway: SocketGateway, one: RawClient) -> None:
    """[MQTT-3.1.3-6], [MQTT-3.1.3-7]: the client can come back with it."""
    properties = one.connect("", clean_start=False, properties={"session_expiry_interval": 50}).properties or {}
    assigned = properties["assigned_client_identifier"]
    with RawClient(gateway.mqtt_port) as again:
        assert again.connect(assigned, clean_start=False).session_present


def test_a_second_connect(one: RawClient, name: str) -> None:
    """[MQTT-3.1.0-2]."""
    one.connect(name)
    one.send(Connect(name))
    (goodbye,) = one.ended()
    assert isinstance(goodbye, Disconnect)
    assert goodbye.reason_code == ReasonCode.PROTOCOL_ERROR


@pytest.mark.parametrize(
    "first", [b"\xc0\x00", b"\x30\x03\x00\x01a", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00"]
)
def test_a_packet_before_connect(gateway: SocketGateway, one: RawClient, first: bytes) -> None:
    """[MQTT-3.1.0-1]: closed without a word, as there is no version to say it in."""
    one.send_bytes(first)
    assert one.ended() == []


@pytest.mark.parametrize(
    ("connect", "answer"),
    [
        (b"\x10\x0d\x00\x06MQIsdp\x03\x02\x00\x3c\x00\x00", b"\x20\x02\x00\x01"),  # MQTT 3.1
        (b"\x10\x0c\x00\x04MQTT\x03\x02\x00\x3c\x00\x00", b"\x20\x02\x00\x01"),
        (b"\x10\x0c\x00\x04MQTT\x04\x00\x00\x3c\x00\x00", b"\x20\x02\x00\x02"),  # no identifier, no clean session
        (b"\x10\x0d\x00\x04MQTT\x06\x02\x00\x3c\x00\x00\x00", b"\x20\x02\x00\x01"),
        (b"\x10\x0d\x00\x04MQTT\x84\x02\x00\x3c\x00\x01a", b"\x20\x02\x00\x01"),
        (b"\x10\x0e\x00\x04MQTT\x85\x02\x00\x3c\x00\x00\x01a", b"\x20\x02\x00\x01"),
    ],
    ids=["MQIsdp", "level 3", "3.1.1 without identifier", "level 6", "a bridge, 3.1.1", "a bridge, 5.0"],
)
def test_refused_versions_and_identifiers(one: RawClient, connect: bytes, answer: bytes) -> None:
    """3.1.2.2, [MQTT-3.1.3-8] of 3.1.1: byte for byte, as a client of that version reads it."""
    one.send_bytes(connect)
    assert one.socket.recv(1000) == answer
    assert one.socket.recv(1) == b""


def test_our_receive_maximum(one: RawClient, gateway: SocketGateway, name: str) -> None:
    """3.3.4: 0x93 to whoever sends more than was announced; a QoS 2 exchange counts until PUBCOMP."""
    answer = one.connect(name)
    assert (answer.properties or {})["receive_maximum"] == 3
    for packet_id in (1, 2, 3):
        one.publish("t", b"", 2, packet_id)
        one.take(Pubrec)
    one.publish("t", b"", 2, 4)
    (goodbye,) = one.ended()
    assert isinstance(goodbye, Disconnect)
    assert goodbye.reason_code == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


def test_a_client_in_full_flow_hears_why_it_is_sent_away(one: RawClient, name: str) -> None:
    """3.14: who still writes when the gateway closes must not lose DISCONNECT to a reset of the connection."""
    one.connect(name)
    one.send(Connect(name))
    for _ in range(200):
        one.send_bytes(b"\xc0\x00" * 1000)
    (goodbye,) = one.ended()
    assert isinstance(goodbye, Disconnect)
    assert goodbye.reason_code == ReasonCode.PROTOCOL_ERROR


def test_a_stopping_gateway_says_so(tmp_path: Path, name: str) -> None:
    """3.14.2.1: 0x8B, also to a client in full flow."""
    with SocketGateway(tmp_path) as gateway, RawClient(gateway.mqtt_port) as client:
        client.connect(name)
        gateway.begin_to_stop()
        for _ in range(100):
            client.send_bytes(b"\xc0\x00" * 1000)
        assert client.ended()[-1] == Disconnect(ReasonCode.SERVER_SHUTTING_DOWN)


def test_a_stopping_gateway_lets_clients_close_first(tmp_path: Path, name: str) -> None:
    """G8: who ends before, with bytes unread, resets them, and they lose the DISCONNECT that says why."""
    with SocketGateway(tmp_path) as gateway, RawClient(gateway.mqtt_port) as client:
        client.connect(name)
        gateway.begin_to_stop()
        client.take(Disconnect)
        closing = threading.Timer(0.3, client.socket.close)
        closing.start()
        gateway.stop()
        closing.join()
    assert gateway.left_open == 0


def test_a_client_that_stays_is_cut_off(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may read nothing and never close: nothing is kept for it."""
    monkeypatch.setattr("gateway.host.tcp._LINGER_S", 0.05)
    with SocketGateway(tmp_path) as gateway, RawClient(gateway.mqtt_port) as client:
        client.connect(name)
        client.send(Connect(name))
        client.take(Disconnect)
        with pytest.raises(ConnectionError):
            send_for_ever(client)
