"""The server's side of a connection: keep alive, timeouts, the end and the will."""

from dataclasses import replace

import pytest

from mqtt.codes import ReasonCode
from mqtt.encode import encode
from mqtt.errors import LocalProtocolError
from mqtt.packets import Connack, Connect, Disconnect, Packet, Pingreq, Publish, Will
from tests.unit.mqtt.mqtt_client import LIMITS, WILL, Client, closed, versioned


@versioned
def test_keep_alive(version: int) -> None:
    """[MQTT-3.1.2-22]: closed after 1.5 x keep alive without a packet; the will is due; 5.0 is told 0x8D."""
    client = Client(version).connected(will=WILL, keep_alive=10)
    assert client.server.deadline() == 16.0
    assert client.server.tick(15.9) == []
    client.send(Pingreq(), now=5.0)
    client.received()
    client.server.receive(encode(Pingreq(), version)[:1], 19.0)  # not a whole packet: does not count
    assert client.server.deadline() == 20.0
    end = closed(client.server.tick(20.0))
    assert (end.reason, end.send_will) == (ReasonCode.KEEP_ALIVE_TIMEOUT, True)
    assert len(client.received()) == (1 if version == 5 else 0)
    assert client.server.deadline() is None
    assert client.server.tick(99.0) == []


def test_keep_alive_0_is_off() -> None:
    """3.1.2.10."""
    client = Client().connected(keep_alive=0)
    assert client.server.deadline() is None
    assert client.server.tick(1e9) == []


@pytest.mark.parametrize(("version", "asked", "told", "after"), [(5, 120, 60, 90), (5, 0, 60, 90), (5, 30, None, 45)])
def test_server_keep_alive(version: int, asked: int, told: int | None, after: float) -> None:
    """3.2.2.3.14: the server's keep alive is announced and takes effect."""
    client = Client(version, replace(LIMITS, keep_alive_max_s=60))
    client.send(Connect("c", version, keep_alive=asked))
    client.server.accept(100.0)
    connack = client.received()[0]
    assert isinstance(connack, Connack)
    assert (connack.properties or {}).get("server_keep_alive") == told
    assert client.server.deadline() == 100.0 + after


def test_connect_timeout() -> None:
    """No CONNECT in time: closed. While the server makes up its mind the client is not blamed."""
    client = Client()
    assert client.server.deadline() == 10.0
    assert client.server.tick(9.9) == []
    assert not closed(client.server.tick(10.0)).send_will
    assert client.server.outgoing() == b""
    slow = Client()
    slow.send(Connect("c", keep_alive=1))
    assert slow.server.deadline() is None
    assert slow.server.tick(1e6) == []


@pytest.mark.parametrize(
    ("version", "reason", "send_will"),
    [
        (4, ReasonCode.NORMAL_DISCONNECTION, False),
        (5, ReasonCode.NORMAL_DISCONNECTION, False),
        (5, ReasonCode.DISCONNECT_WITH_WILL_MESSAGE, True),
        (5, ReasonCode.UNSPECIFIED_ERROR, True),
    ],
)
def test_disconnect_by_the_client(version: int, reason: ReasonCode, send_will: bool) -> None:
    """[MQTT-3.14.4-3]: only a normal DISCONNECT discards the will; what follows DISCONNECT is not read."""
    client = Client(version).connected(will=WILL)
    events = client.send(Publish("a"), Disconnect(reason), Publish("b"))
    assert events[:-1] == [Publish("a"), Disconnect(reason)]
    end = closed(events)
    assert (end.reason, end.send_will, end.clean) == (reason, send_will, True)
    assert client.server.outgoing() == b""


@pytest.mark.parametrize(("will", "send_will"), [(WILL, True), (None, False)])
def test_lost_connection_sends_the_will(will: Will | None, send_will: bool) -> None:
    """3.1.2.5: the connection ends without DISCONNECT; the end is told once."""
    client = Client().connected(will=will)
    end = closed(client.server.eof())
    assert (end.send_will, end.clean) == (send_will, False)
    assert client.server.closed is end
    assert client.server.eof() == []
    assert client.send(Publish("a")) == []


def test_client_lost_before_the_answer() -> None:
    """No will: the connection was never accepted. Accepting it afterwards is our bug, closing it twice is none."""
    client = Client()
    client.send(Connect("c", will=WILL))
    end = closed(client.server.eof())
    assert not end.send_will
    with pytest.raises(LocalProtocolError):
        client.server.accept(2.0)
    assert client.server.disconnect(ReasonCode.SERVER_SHUTTING_DOWN) is end


@pytest.mark.parametrize(("before", "after", "fine"), [(0, 5, False), (None, 5, False), (5, 9, True), (5, 0, True)])
def test_session_expiry_at_disconnect(before: int | None, after: int, fine: bool) -> None:
    """3.14.2.2.2: it may change, but not from 0 to something."""
    client = Client().connected(WILL, None if before is None else {"session_expiry_interval": before})
    packet = Disconnect(properties={"session_expiry_interval": after})
    events = client.send(packet)
    if fine:
        assert events[0] == packet
    else:
        assert closed(events).reason is ReasonCode.PROTOCOL_ERROR
        assert len(events) == 1
    assert closed(events).send_will is not fine


@versioned
def test_disconnect_by_the_server(version: int) -> None:
    """G6: a session taken over ends the old connection; only 5.0 is told (3.14)."""
    client = Client(version).connected(will=WILL)
    end = client.server.disconnect(ReasonCode.SESSION_TAKEN_OVER)
    assert (end.reason, end.send_will, end.clean) == (ReasonCode.SESSION_TAKEN_OVER, True, False)
    told: list[Packet] = [Disconnect(ReasonCode.SESSION_TAKEN_OVER)]
    assert client.received() == (told if version == 5 else [])
    client.server.send(Publish("a"))  # too late: dropped
    assert client.server.outgoing() == b""


def test_disconnect_before_the_answer_refuses() -> None:
    """A reason that CONNACK cannot carry becomes Unspecified error."""
    client = Client()
    client.send(Connect("c"))
    client.server.disconnect(ReasonCode.SESSION_TAKEN_OVER)
    assert client.received() == [Connack(False, ReasonCode.UNSPECIFIED_ERROR)]


@pytest.mark.parametrize("asks_for_reasons", [True, False])
@pytest.mark.parametrize(
    ("data", "reason", "said"),
    [
        (b"\x30\x03\0\0\0", ReasonCode.PROTOCOL_ERROR, "topic name"),
        (b"\x32\x05\0\0\0\1\0", ReasonCode.PROTOCOL_ERROR, "topic name"),
        (b"\x82\x0e\0\1\0\0\x08$share/g\0", ReasonCode.TOPIC_FILTER_INVALID, "$share/<name>/<filter>"),
        (b"\x82\x10\0\1\0\0\x0a$share/+/a\0", ReasonCode.TOPIC_FILTER_INVALID, "$share/<name>/<filter>"),
        (b"\xa2\x0d\0\1\0\0\x08$share/g", ReasonCode.TOPIC_FILTER_INVALID, "$share/<name>/<filter>"),
        (b"\x82\x07\0\1\0\0\1\0\0"[:9], ReasonCode.MALFORMED_PACKET, "U+0000"),
        (b"\x82\x08\0\1\0\0\2a#\0", ReasonCode.TOPIC_FILTER_INVALID, "wildcard"),
    ],
)
def test_who_breaks_the_protocol_is_told_how(
    data: bytes, reason: ReasonCode, said: str, asks_for_reasons: bool
) -> None:
    """5.0, 4.13: DISCONNECT with the reason code, and in words; these stand there whatever a client asked for
    (3.1.2.11.7)."""
    client = Client(5).connected(properties=None if asks_for_reasons else {"request_problem_information": 0})
    assert closed(client.server.receive(data, 1.0)).reason is reason
    (goodbye,) = client.received()
    assert isinstance(goodbye, Disconnect)
    assert goodbye.reason_code is reason
    assert said in (goodbye.properties or {})["reason_string"]
