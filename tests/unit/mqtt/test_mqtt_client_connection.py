"""One client connection: CONNECT and its answers, keep alive, limits of the server, faults of the server, the end."""

from typing import Any

import pytest

from mqtt.client_connection import ClientConnection
from mqtt.client_events import Closed, EndedBy, Published
from mqtt.client_limits import ClientLimits
from mqtt.client_session import ClientSession
from mqtt.client_state import State
from mqtt.codes import ConnectReturnCode, ReasonCode
from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.errors import LocalProtocolError, QueueFullError, ServerLimitError
from mqtt.limits import ConnectionLimits
from mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Will,
)
from tests.unit.mqtt.connection_pair import ConnectionPair
from tests.unit.mqtt.mqtt_client import versioned

PING_TIMEOUT_S = 5.0
LIMITS = ClientLimits(connect_timeout_s=3.0, ping_timeout_s=PING_TIMEOUT_S)


class Script:
    """A server that says what the test says, to one client connection."""

    def __init__(self, version: int = 5, session: ClientSession | None = None, **connect: Any) -> None:
        self.version = version
        self.session = session or ClientSession()
        self.client = ClientConnection(self.session, Connect("c", version, **connect), LIMITS, 0.0)
        self._decoder = Decoder(1 << 20, version)
        self._decoder_in = Decoder(1 << 20)
        self.sent()

    def say(self, *packets: Packet, now: float = 1.0) -> list[Any]:
        return self.client.receive(b"".join(encode(packet, self.version) for packet in packets), now)

    def sent(self) -> list[Packet]:
        """What the client sent since."""
        return self._decoder_in.feed(self.client.outgoing())

    def connected(self, **properties: Any) -> "Script":
        answer = Connack(False, ReasonCode.SUCCESS, properties or None)
        assert self.say(answer) == [answer]
        return self

    def fault(self, *packets: Packet) -> Closed:
        """What the client makes of packets that break the protocol."""
        *_, closed = self.say(*packets)
        assert isinstance(closed, Closed)
        assert closed.by is EndedBy.FAULT
        assert self.client.state is State.CLOSED
        if self.version == 5:
            (last,) = [packet for packet in self.sent() if isinstance(packet, Disconnect)]
            assert last.reason_code == closed.reason
        return closed


# -- the beginning -----------------------------------------------------------------------------------------------------


@versioned
def test_connect_says_everything_it_was_given(version: int) -> None:
    """3.1: will, credentials, keep alive, properties."""
    will = Will("w", b"gone", 1, True)
    pair = ConnectionPair(version, keep_alive=7, will=will, username="u", password=b"p", client_id="me")
    pair.connected()
    (connect,) = pair.server.connects
    assert connect == pair.packet


def test_the_server_assigns_the_client_id_and_the_keep_alive() -> None:
    """3.2.2.3.7, 3.2.2.3.14; the id is that of the next CONNECT."""
    pair = ConnectionPair(client_id="", keep_alive=600, limits=ConnectionLimits(keep_alive_max_s=20)).connected()
    assert pair.session.client_id == "assigned"
    pair.now = pair.connection.deadline() or 0.0
    assert 0 < pair.now <= 20
    pair.lose()
    pair.connected()
    assert [connect.client_id for connect in pair.server.connects] == ["", "assigned"]


@pytest.mark.parametrize(
    ("version", "answer", "reason"),
    [
        (5, Connack(False, ReasonCode.NOT_AUTHORIZED, {"reason_string": "no"}), ReasonCode.NOT_AUTHORIZED),
        (4, Connack(False, ConnectReturnCode.NOT_AUTHORIZED), ConnectReturnCode.NOT_AUTHORIZED),
    ],
)
def test_a_refusal_has_the_servers_reason(version: int, answer: Connack, reason: int) -> None:
    server = Script(version)
    (closed,) = server.say(answer)
    assert (closed.reason, closed.by) == (reason, EndedBy.REFUSED)
    assert "NOT_AUTHORIZED" in closed.detail
    assert version == 4 or "(no)" in closed.detail
    assert server.say(Connack()) == []


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_a_server_of_3_1_1_refuses_in_its_own_form(cut: int) -> None:
    """3.1.1, 3.1.2.2: to a client of 5.0, too."""
    server, answer = Script(5), b"\x20\x02\x00\x01"
    events = server.client.receive(answer[:cut], 1.0) + server.client.receive(answer[cut:], 1.0)
    (closed,) = events
    assert closed.by is EndedBy.REFUSED
    assert closed.reason is ConnectReturnCode.UNACCEPTABLE_PROTOCOL_VERSION


@versioned
def test_a_session_present_after_a_clean_start_is_a_fault(version: int) -> None:
    """[MQTT-3.2.2-2]."""
    server = Script(version)
    (closed,) = server.say(Connack(True))
    assert closed.by is EndedBy.FAULT


@versioned
def test_no_connack_in_time(version: int) -> None:
    server = Script(version)
    assert server.client.deadline() == 3.0
    assert server.client.tick(2.9) == []
    (closed,) = server.client.tick(3.0)
    assert closed.by is EndedBy.TIMEOUT
    assert server.client.deadline() is None


def test_one_connection_at_a_time() -> None:
    server = Script()
    with pytest.raises(LocalProtocolError, match="has a connection"):
        Script(session=server.session)
    server.client.eof()
    Script(session=server.session).connected()


@pytest.mark.parametrize(
    "connect",
    [Connect("c", 3), Connect("c", 5, properties={"authentication_method": "x"}), Connect("c", 4, password=b"x")],
)
def test_a_connect_that_is_not_possible(connect: Connect) -> None:
    with pytest.raises(LocalProtocolError):
        ClientConnection(ClientSession(), connect, LIMITS, 0.0)


# -- keep alive --------------------------------------------------------------------------------------------------------


@versioned
def test_pings_within_the_keep_alive(version: int) -> None:
    """3.1.2.10: also while other packets are sent; the server waits for 1.5 times the keep alive."""
    pair = ConnectionPair(version, keep_alive=10).connected()
    for _ in range(20):
        pair.now += 1.0
        pair.take(pair.connection.tick(pair.now))
        pair.publish(b"x", 1)
        pair.exchange()
        assert pair.server.connection is not None
        assert pair.server.connection.tick(pair.now) == []
    assert pair.is_open


def test_a_server_that_answers_no_ping_is_given_up() -> None:
    server = Script(keep_alive=20).connected()
    due = server.client.deadline()
    assert due is not None
    assert server.client.tick(due - 0.1) == []
    assert server.sent() == []
    assert server.client.tick(due) == []
    assert server.sent() == [Pingreq()]
    (closed,) = server.client.tick(due + PING_TIMEOUT_S)
    assert (closed.by, closed.reason) == (EndedBy.TIMEOUT, ReasonCode.KEEP_ALIVE_TIMEOUT)


def test_whatever_comes_shows_that_the_server_is_there() -> None:
    """A PINGRESP waits behind everything the server sends."""
    server = Script(keep_alive=20).connected()
    due = server.client.deadline() or 0.0
    server.client.tick(due)
    server.say(Publish("t"), now=due + PING_TIMEOUT_S - 1)
    assert server.client.tick(due + PING_TIMEOUT_S) == []
    server.say(Pingresp(), now=due + PING_TIMEOUT_S)
    assert server.client.deadline() == due + 15


def test_no_keep_alive_no_pings() -> None:
    assert Script(keep_alive=0).connected().client.deadline() is None


# -- what the server accepts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "message", "reason"),
    [
        ({"maximum_qos": 1}, Publish("t", b"", 2), ReasonCode.QOS_NOT_SUPPORTED),
        ({"retain_available": 0}, Publish("t", b"", 1, True), ReasonCode.RETAIN_NOT_SUPPORTED),
        ({"maximum_packet_size": 50}, Publish("t", b"x" * 50, 1), ReasonCode.PACKET_TOO_LARGE),
    ],
)
def test_what_the_server_rules_out_is_not_sent(properties: dict[str, int], message: Publish, reason: int) -> None:
    """3.2.2.3: refused at once while connected; what waited in the session ends with the same reason."""
    session = ClientSession()
    waited = session.publish(message.topic, message.payload, message.qos, message.retain)
    good = session.publish("t", b"", 1)
    server = Script(session=session)
    _, refused = server.say(Connack(False, ReasonCode.SUCCESS, dict(properties)))
    assert isinstance(refused, Published)
    assert (refused.packet_id, refused.reason_code) == (waited, reason)
    assert server.sent() == [Publish("t", b"", 1, packet_id=good)]
    with pytest.raises(ServerLimitError) as raised:
        server.client.publish(message.topic, message.payload, message.qos, message.retain)
    assert raised.value.reason is reason
    assert [packet.packet_id for packet in session.unacknowledged] == [good]


@pytest.mark.parametrize("n_bytes", range(20, 40))
def test_the_largest_packet_that_fits_is_sent(n_bytes: int) -> None:
    """[MQTT-3.2.2-15], to the byte."""
    server = Script().connected(maximum_packet_size=35)
    try:
        server.client.publish("t", b"x" * n_bytes, 1)
    except ServerLimitError:
        assert server.client.outgoing() == b""
        assert len(encode(Publish("t", b"x" * n_bytes, 1, packet_id=1), 5)) > 35
    else:
        assert len(server.client.outgoing()) <= 35


@pytest.mark.parametrize(
    ("properties", "topic_filter", "identifier"),
    [
        ({"wildcard_subscription_available": 0}, "a/+", None),
        ({"shared_subscription_available": 0}, "$share/g/a", None),
        ({"subscription_identifier_available": 0}, "a", {"subscription_identifier": [7]}),
        ({"maximum_packet_size": 20}, "a" * 30, None),
    ],
)
def test_subscriptions_the_server_does_not_have(properties: Any, topic_filter: str, identifier: Any) -> None:
    server = Script().connected(**properties)
    with pytest.raises(ServerLimitError):
        server.client.subscribe([Subscription(topic_filter)], identifier)
    assert server.client.outgoing() == b""
    server.client.subscribe([Subscription("a")])


@pytest.mark.parametrize("topic_filter", ["", "a/#/b", "a+", "$share/g", "$share//a", "a\0"])
def test_a_filter_that_is_none_is_not_sent(topic_filter: str) -> None:
    server = Script().connected()
    with pytest.raises(LocalProtocolError):
        server.client.subscribe([Subscription("good"), Subscription(topic_filter)])
    with pytest.raises(LocalProtocolError):
        server.client.unsubscribe([topic_filter])
    assert server.client.outgoing() == b""


@pytest.mark.parametrize(
    ("topic", "qos", "properties"),
    [
        *[(topic, 1, None) for topic in ("", "a/+", "#", "a\0", "x" * 65_536, "\ud800")],
        ("t", 3, None),
        ("t", 1, {"topic_alias": 1}),
        ("t", 1, {"subscription_identifier": [1]}),
        ("t", 1, {"content_type": 7}),
        ("t", 1, {"server_keep_alive": 7}),
    ],
)
def test_a_message_that_mqtt_does_not_allow(topic: str, qos: int, properties: Any) -> None:
    server = Script().connected()
    with pytest.raises(LocalProtocolError):
        server.client.publish(topic, b"", qos, properties=properties)
    with pytest.raises(LocalProtocolError):
        server.session.publish(topic, b"", qos, properties=properties)
    assert server.client.outgoing() == b""
    assert not server.session.unacknowledged


def test_the_queue_is_bounded() -> None:
    session = ClientSession(queue_max=3, queue_bytes_max=100)
    session.publish("t", b"x" * 60)
    with pytest.raises(QueueFullError):
        session.publish("t", b"x" * 60)
    session.publish("t", b"x" * 40)
    session.publish("t", b"")
    with pytest.raises(QueueFullError):
        session.publish("t", b"")
    assert ClientSession(queue_bytes_max=10).publish("t", b"x" * 100)


def test_flow_control() -> None:
    """4.9: as many unacknowledged messages as the server takes; each acknowledgement lets the next one go."""
    server = Script().connected(receive_maximum=2)
    ids = [server.client.publish("t", b"%d" % number, 1 + number % 2) for number in range(5)]
    assert [packet.packet_id for packet in server.sent()] == ids[:2]  # type: ignore[union-attr]
    server.client.publish("t", b"", 0)
    assert server.sent() == [Publish("t")]
    assert server.say(Puback(ids[0])) == [Published(ids[0])]
    assert [packet.packet_id for packet in server.sent()] == [ids[2]]  # type: ignore[union-attr]
    assert server.say(Pubrec(ids[1])) == []
    assert server.sent() == [Pubrel(ids[1])]
    assert server.say(Pubcomp(ids[1])) == [Published(ids[1])]
    assert [packet.packet_id for packet in server.sent()] == [ids[3]]  # type: ignore[union-attr]


@pytest.mark.parametrize("answer", [Puback, Pubrec])
def test_a_refused_message_is_reported_and_done_with(answer: Any) -> None:
    server = Script().connected(receive_maximum=1)
    qos = 1 if answer is Puback else 2
    first, second = server.client.publish("t", b"1", qos), server.client.publish("t", b"2", qos)
    server.sent()
    refused = answer(first, ReasonCode.QUOTA_EXCEEDED, {"reason_string": "full"})
    assert server.say(refused) == [Published(first, ReasonCode.QUOTA_EXCEEDED, {"reason_string": "full"})]
    assert server.sent() == [Publish("t", b"2", qos, packet_id=second)]


# -- what a server must not do -----------------------------------------------------------------------------------------


@versioned
@pytest.mark.parametrize(
    "packet",
    [
        Puback(9),
        Pubcomp(1),
        Suback(9, [ReasonCode.SUCCESS]),
        Unsuback(1),
        Pubrec(1),
        Connack(),
        Subscribe(1, [Subscription("a")]),
        Pingreq(),
        Connect("x"),
    ],
)
def test_packets_a_server_must_not_send(version: int, packet: Packet) -> None:
    """Packet id 1 is a message of QoS 1 that waits for PUBACK, nothing waits for anything on 9."""
    server = Script(version).connected()
    assert server.client.publish("t", b"", 1) == 1
    server.sent()
    if isinstance(packet, Connect):
        packet = Connect("x", version)
    assert server.fault(packet).reason is ReasonCode.PROTOCOL_ERROR
    assert len(server.session.unacknowledged) == 1


def test_auth_and_disconnect_where_they_are_not_allowed() -> None:
    Script().connected().fault(Auth())
    Script(4).connected().fault(Disconnect())


def test_suback_with_too_few_reason_codes() -> None:
    server = Script().connected()
    packet_id = server.client.subscribe([Subscription("a"), Subscription("b")])
    server.sent()
    server.fault(Suback(packet_id, [ReasonCode.SUCCESS]))


def test_more_unacknowledged_messages_than_allowed() -> None:
    """[MQTT-3.3.4-9]: what came before is still the application's."""
    server = Script(properties={"receive_maximum": 2}).connected()
    events = server.say(*(Publish("t", b"", 1, packet_id=number) for number in (1, 2, 3)))
    assert [type(event) for event in events] == [Publish, Publish, Closed]
    assert events[-1].reason is ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


def test_aliases_the_client_did_not_allow() -> None:
    server = Script().connected()
    assert server.fault(Publish("t", properties={"topic_alias": 1})).reason is ReasonCode.TOPIC_ALIAS_INVALID


def test_a_packet_larger_than_asked_for() -> None:
    server = Script(properties={"maximum_packet_size": 30}).connected()
    assert server.fault(Publish("t", b"x" * 40)).reason is ReasonCode.PACKET_TOO_LARGE


def test_pubrec_for_an_unknown_packet_id_is_answered() -> None:
    """4.3.3: no fault, as it happens where a session is recovered."""
    server = Script().connected()
    assert server.say(Pubrec(5)) == []
    assert server.sent() == [Pubrel(5, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)]
    assert server.say(Pubcomp(5, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)) == []
    assert server.say(Pubrel(6)) == []
    assert server.sent() == [Pubcomp(6, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)]


# -- the end -----------------------------------------------------------------------------------------------------------


def test_the_servers_disconnect_is_an_event_with_its_reason() -> None:
    server = Script().connected()
    packet = Disconnect(ReasonCode.ADMINISTRATIVE_ACTION, {"reason_string": "kicked"})
    said, closed = server.say(packet)
    assert said == packet
    assert (closed.by, closed.reason) == (EndedBy.SERVER, ReasonCode.ADMINISTRATIVE_ACTION)
    assert "kicked" in closed.detail
    assert server.say(Publish("t")) == []


@versioned
def test_disconnect_and_what_comes_after_it(version: int) -> None:
    server = Script(version).connected()
    assert server.client.disconnect().by is EndedBy.CLIENT
    assert server.sent() == [Disconnect()]
    assert server.client.disconnect().by is EndedBy.CLIENT
    assert server.client.outgoing() == b""
    with pytest.raises(LocalProtocolError):
        server.client.publish("t", b"", 0)
    with pytest.raises(LocalProtocolError):
        server.client.subscribe([Subscription("a")])
    assert server.client.publish("t", b"", 1) == 1
    assert server.client.outgoing() == b""


def test_disconnect_with_the_will_and_a_longer_session() -> None:
    server = Script(properties={"session_expiry_interval": 5}).connected()
    server.client.disconnect(ReasonCode.DISCONNECT_WITH_WILL_MESSAGE, {"session_expiry_interval": 9})
    assert server.sent() == [Disconnect(ReasonCode.DISCONNECT_WITH_WILL_MESSAGE, {"session_expiry_interval": 9})]
    with pytest.raises(LocalProtocolError, match="session expiry"):
        Script().connected().client.disconnect(properties={"session_expiry_interval": 9})
