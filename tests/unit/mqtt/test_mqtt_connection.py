"""The server's side of a connection: handshake, versions, refusals, misuse, noise."""

from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtt.codes import ReasonCode
from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.errors import LocalProtocolError
from mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Subscribe,
    Subscription,
    Will,
)
from mqtt.server_connection import ServerConnection
from mqtt.server_events import Closed, Event
from mqtt.server_state import TRANSITIONS, State, Step, next_state
from tests.draw import examples
from tests.unit.mqtt.mqtt_client import LIMITS, WILL, Client, closed, publish, versioned


@versioned
def test_handshake(version: int) -> None:
    """G11: CONNECT is an event, CONNACK follows accept; the state goes the one way there is."""
    client = Client(version)
    states = [client.server.state]
    assert client.send(Connect("c", version)) == [Connect("c", version)]
    states.append(client.server.state)
    assert client.server.outgoing() == b""
    assert client.server.accept(1.0) == []
    states.append(client.server.state)
    assert states == [State.AWAIT_CONNECT, State.CONNECTING, State.CONNECTED]
    assert client.server.version == version
    limits = {"maximum_packet_size": 1_000, "receive_maximum": 2, "topic_alias_maximum": 2}
    assert client.received() == [Connack(properties=limits if version == 5 else None)]
    assert client.received() == []


def test_transition_table() -> None:
    """Only the steps of the table are possible; nothing leaves CLOSED."""
    for state, step in product(State, Step):
        if (state, step) in TRANSITIONS:
            assert next_state(state, step) is TRANSITIONS[state, step]
        else:
            with pytest.raises(LocalProtocolError):
                next_state(state, step)
    assert not [state for state, _ in TRANSITIONS if state is State.CLOSED]


def test_session_present_and_properties_of_the_caller() -> None:
    """What the caller announces goes before the limits."""
    client = Client()
    client.send(Connect("", clean_start=False))
    client.server.accept(1.0, session_present=True, assigned_client_id="auto-1", properties={"receive_maximum": 1})
    connack = client.received()[0]
    assert isinstance(connack, Connack)
    assert connack.session_present
    assert connack.properties == {
        "maximum_packet_size": 1_000,
        "receive_maximum": 1,
        "topic_alias_maximum": 2,
        "assigned_client_identifier": "auto-1",
    }
    assert closed(client.send(Publish("a", qos=1, packet_id=1), Publish("a", qos=1, packet_id=2))).reason == 0x93


@pytest.mark.parametrize("first", [Pingreq(), Publish("a"), Disconnect(), Auth(), Connack()])
def test_first_packet_must_be_connect(first: Packet) -> None:
    """[MQTT-3.1.0-1]: closed without a word."""
    client = Client()
    end = closed(client.send(first))
    assert (end.reason, end.send_will, end.clean) == (ReasonCode.PROTOCOL_ERROR, False, False)
    assert client.server.outgoing() == b""
    assert client.server.state is State.CLOSED


@pytest.mark.parametrize("size", [None, 1])
@given(
    st.tuples(
        st.sampled_from([b"MQTT", b"MQIsdp", b"mqtt", b"MQTT ", b"HTTP", b""]) | st.binary(max_size=9),
        st.integers(0, 255),
        st.binary(max_size=9),
    ).filter(lambda asked: asked[:2] not in [(b"MQTT", 4), (b"MQTT", 5)])
)
def test_whoever_speaks_another_version_is_told_so_in_3_1_1(size: int | None, asked: tuple[bytes, int, bytes]) -> None:
    """Return code 1 [MQTT-3.1.2-2 of 3.1.1], whatever follows the level, however the bytes are cut: a bridge of
    mosquitto asks with level 0x84 first, and with 4 once it has read this."""
    name, level, rest = asked
    body = len(name).to_bytes(2, "big") + name + bytes((level,)) + rest
    data = bytes((0x10, len(body))) + body
    server = ServerConnection(LIMITS, 0.0)
    chunks = [data] if size is None else [data[i : i + size] for i in range(0, len(data), size)]
    ends = [event for chunk in chunks for event in server.receive(chunk, 0.0)]
    assert closed(ends).reason is ReasonCode.UNSUPPORTED_PROTOCOL_VERSION
    assert server.outgoing() == b"\x20\x02\0\1"


@pytest.mark.parametrize("cut", [5, 10, 12, 1_000])
@pytest.mark.parametrize(
    ("level", "answer"),
    [(4, b"\x20\x02\0\3"), (0x84, b"\x20\x02\0\1"), (5, None)],
    ids=["3.1.1", "a bridge", "5.0"],
)
def test_connect_that_is_too_large_is_answered(level: int, answer: bytes | None, cut: int) -> None:
    """Whoever asks with too large a will is told, from the first bytes of CONNECT; not read is the rest of it."""
    will = Will("t", bytes(9_000), properties={} if level == 5 else None)
    data = bytearray(encode(Connect("c", 5 if level == 5 else 4, will=will), 5 if level == 5 else 4))
    data[9] = level
    server = ServerConnection(LIMITS, 0.0)
    events = server.receive(bytes(data[:cut]), 0.0) or server.receive(bytes(data[cut:1_000]), 0.0)
    said = server.outgoing()
    if answer is None:
        (connack,) = Decoder(1_000, 5).feed(said)
        assert isinstance(connack, Connack)
        assert connack.reason_code is closed(events).reason is ReasonCode.PACKET_TOO_LARGE
    else:
        assert said == answer
        assert events == [server.closed]


def test_malformed_connect_is_told_why_on_5_only() -> None:
    """4.13.1: CONNACK with the reason code; 3.1.1 has none for it."""
    server = ServerConnection(LIMITS, 0.0)
    closed(server.receive(b"\x10\x11\0\4MQTT\5\2\0\0\3\x21\0\0\0\1c", 0.0))
    connack = Decoder(1_000, 5).feed(server.outgoing())[0]
    assert isinstance(connack, Connack)
    assert connack.reason_code is ReasonCode.PROTOCOL_ERROR
    server = ServerConnection(LIMITS, 0.0)
    assert closed(server.receive(b"\x10\x0d\0\4MQTT\4\3\0\0\0\1c", 0.0)).reason is ReasonCode.MALFORMED_PACKET
    assert server.outgoing() == b""


@pytest.mark.parametrize(
    ("version", "reason", "code"),
    [
        (5, ReasonCode.NOT_AUTHORIZED, 0x87),
        (4, ReasonCode.NOT_AUTHORIZED, 5),
        (4, ReasonCode.BAD_USER_NAME_OR_PASSWORD, 4),
        (4, ReasonCode.SERVER_BUSY, 3),
        (4, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, 2),
        (4, ReasonCode.TOPIC_NAME_INVALID, 5),
        (4, ReasonCode.PACKET_TOO_LARGE, 3),
    ],
)
def test_refuse(version: int, reason: ReasonCode, code: int) -> None:
    """G4: a lock not to be had, or a live owner, ends in a CONNACK that says so; no will is sent."""
    client = Client(version)
    client.send(Connect("c", version, will=WILL))
    end = client.server.refuse(reason)
    assert (end.reason, end.send_will) == (reason, False)
    assert client.server.closed is end
    answers = [packet.reason_code for packet in client.received() if isinstance(packet, Connack)]
    assert answers == [code]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("reason", [reason for reason in ReasonCode if reason >= ReasonCode.UNSPECIFIED_ERROR])
def test_no_refusal_is_silent(version: int, reason: ReasonCode) -> None:
    """Whatever ends a well-formed CONNECT, its client gets a CONNACK that says no."""
    client = Client(version)
    client.send(Connect("c", version, will=WILL))
    client.server.disconnect(reason)
    (answer,) = client.received()
    assert isinstance(answer, Connack)
    assert answer.reason_code


@pytest.mark.parametrize(("version", "clean", "fine"), [(4, False, False), (4, True, True), (5, False, True)])
def test_empty_client_id(version: int, clean: bool, fine: bool) -> None:
    """3.1.1 needs a clean session then [MQTT-3.1.3-8]; 5.0 never does."""
    client = Client(version)
    events = client.send(Connect("", version, clean))
    if fine:
        assert events == [Connect("", version, clean)]
        return
    assert closed(events).reason is ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    assert client.server.outgoing() == b"\x20\x02\x00\x02"


def test_enhanced_authentication_is_refused() -> None:
    """0x8C: Bad authentication method (4.12)."""
    client = Client()
    end = closed(client.send(Connect("c", properties={"authentication_method": "SCRAM"})))
    assert end.reason is ReasonCode.BAD_AUTHENTICATION_METHOD
    connack = client.received()[0]
    assert isinstance(connack, Connack)
    assert connack.reason_code is ReasonCode.BAD_AUTHENTICATION_METHOD


@versioned
def test_packets_behind_connect_wait_for_the_answer(version: int) -> None:
    """3.1.4: clients need not wait for CONNACK; what they send is handed out by accept, in order."""
    client = Client(version)
    first, second = Publish("a", b"1"), Publish("a", b"2")
    assert client.send(Connect("c", version), first) == [Connect("c", version)]
    assert client.send(second, Pingreq()) == []
    assert client.server.accept(1.0) == [first, second]
    assert [type(packet) for packet in client.received()] == [Connack, Pingresp]


def test_refused_client_is_not_heard() -> None:
    """[MQTT-3.1.4-6]: what came behind a refused CONNECT is dropped."""
    client = Client()
    client.send(Connect("c"), Publish("a"))
    client.server.refuse(ReasonCode.BANNED)
    assert client.send(Publish("b")) == []


def test_fault_behind_connect_comes_after_accept() -> None:
    """The order of the stream holds: CONNECT is answered before what is wrong behind it."""
    client = Client()
    data = encode(Connect("c", will=WILL), 5) + encode(Publish("a"), 5) + b"\0\0"
    assert client.server.receive(data, 0.0) == [Connect("c", will=WILL)]
    events = client.server.accept(1.0)
    assert events[0] == Publish("a")
    assert closed(events).reason is ReasonCode.MALFORMED_PACKET
    assert closed(events).send_will
    assert [type(packet) for packet in client.received()] == [Connack, Disconnect]


def test_flood_behind_connect_is_refused() -> None:
    """Memory held for an unanswered client is bounded."""
    client = Client()
    client.send(Connect("c"))
    assert client.send(Publish("a", bytes(100))) == []
    assert closed(client.send(Publish("a", bytes(100)))).reason is ReasonCode.QUOTA_EXCEEDED


@pytest.mark.parametrize(("size", "fine"), [(193, True), (194, False)])
def test_what_comes_with_connect_counts_as_behind_it(size: int, fine: bool) -> None:
    """However the bytes were cut: 200 of them may stand behind CONNECT, with those of the same read."""
    client = Client()
    connect = Connect("c", will=WILL)
    events = client.send(connect, Publish("a", bytes(size)))
    assert events[0] == connect
    assert (len(events) == 1) == fine
    assert fine or closed(events).reason is ReasonCode.QUOTA_EXCEEDED


@pytest.mark.parametrize("level", [3, 4, 6])
def test_a_second_connect_of_another_version_is_answered_in_the_first(level: int) -> None:
    """[MQTT-3.1.0-2]: found by fuzzing: the version must not change, or the client is not told why it is closed."""
    client = Client(5).connected()
    name = b"\0\6MQIsdp" if level == 3 else b"\0\4MQTT"
    body = name + bytes((level, 2)) + b"\0\0" + b"\0\1c"
    assert closed(client.server.receive(bytes((0x10, len(body))) + body, 1.0)).reason is ReasonCode.PROTOCOL_ERROR
    assert client.server.version == 5
    (told,) = client.received()
    assert isinstance(told, Disconnect)
    assert told.reason_code is ReasonCode.PROTOCOL_ERROR


@pytest.mark.parametrize("behind", [False, True])
def test_second_connect_is_a_protocol_error(behind: bool) -> None:
    """[MQTT-3.1.0-2]."""
    client = Client()
    if behind:
        client.send(Connect("c"), Connect("c"))
        end = closed(client.server.accept(1.0))
    else:
        end = closed(client.connected().send(Connect("c")))
    assert end.reason is ReasonCode.PROTOCOL_ERROR


def test_misuse_is_our_bug() -> None:
    """LocalProtocolError, and the connection stays as it was."""
    client = Client()
    for wrong in (lambda: client.server.accept(0.0), lambda: client.server.send(Publish("a"))):
        with pytest.raises(LocalProtocolError):
            wrong()
    client.send(Connect(""))
    for late in (
        lambda: client.server.accept(0.0),  # no client id assigned
        lambda: client.server.accept(0.0, session_present=True, assigned_client_id="x"),
        lambda: client.server.send(b"\xd0\x00"),
        lambda: client.server.refuse(ReasonCode.SUCCESS),
    ):
        with pytest.raises(LocalProtocolError):
            late()
    client.server.accept(0.0, assigned_client_id="x")
    for packet in (Connack(), Disconnect(), Pingresp(), Subscribe(1, [Subscription("a")])):
        with pytest.raises(LocalProtocolError):
            client.server.send(packet)
    assert client.server.state is State.CONNECTED


@settings(max_examples=examples(200), deadline=None, database=None)
@given(st.lists(st.integers(0, 80), max_size=4), st.binary(max_size=8), st.integers(0, 80), st.booleans())
def test_whatever_comes_is_an_event_or_the_end(cuts: list[int], noise: bytes, at: int, early: bool) -> None:
    """receive never raises for what the peer did, however the bytes are cut; after Closed there is nothing."""
    stream = encode(Connect("c", will=WILL), 5)
    tail = encode(publish(1), 5) + encode(Subscribe(2, [Subscription("a")]), 5) + encode(Disconnect(), 5)
    stream = stream[:at] + noise + stream[at:] + tail if early else stream + tail[:at] + noise + tail[at:]
    server = ServerConnection(LIMITS, 0.0)
    events: list[Event] = []
    for start, stop in pairwise([0, *sorted(cuts), len(stream)]):
        events += server.receive(stream[start:stop], 1.0)
        if server.state is State.CONNECTING:
            events += server.accept(
                1.0, assigned_client_id=None if server.connect and server.connect.client_id else "x"
            )
        server.outgoing()
    ends = [event for event in events if isinstance(event, Closed)]
    assert ends in ([], [server.closed])
    assert not ends or events[-1] is ends[0]
    assert not events or isinstance(events[0], Connect | Closed)
