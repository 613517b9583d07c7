"""One client connection: CONNECT and its answers, keep alive, limits of the server."""

from typing import Any

import pytest

from mqtt.client_connection import ClientConnection
from mqtt.client_events import EndedBy, Published
from mqtt.client_session import ClientSession
from mqtt.codes import ConnectReturnCode, ReasonCode
from mqtt.encode import encode
from mqtt.errors import LocalProtocolError, QueueFullError, ServerLimitError
from mqtt.limits import ConnectionLimits
from mqtt.packets import (
    Connack,
    Connect,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscription,
    Will,
)
from tests.unit.mqtt.client_script import LIMITS, PING_TIMEOUT_S, Script
from tests.unit.mqtt.connection_pair import ConnectionPair
from tests.unit.mqtt.mqtt_client import versioned

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
    "wanted", [[Subscription("$share/g/a", no_local=True)], [Subscription(f"a/{number}") for number in range(4_097)]]
)
def test_subscriptions_for_which_a_server_ends_the_connection(wanted: list[Subscription]) -> None:
    """A client that asks again on each connection would never learn why."""
    server = Script().connected()
    with pytest.raises(LocalProtocolError):
        server.client.subscribe([Subscription("good"), *wanted])
    assert server.client.outgoing() == b""


@pytest.mark.parametrize(
    ("topic", "qos", "properties"),
    [
        *[(topic, 1, None) for topic in ("", "a/+", "#", "a\0", "x" * 65_536, "\ud800")],
        ("t", 3, None),
        ("t", 1, {"topic_alias": 1}),
        ("t", 1, {"subscription_identifier": [1]}),
        ("t", 1, {"content_type": 7}),
        ("t", 1, {"response_topic": 7}),
        *[("t", 1, {"response_topic": topic}) for topic in ("", "a/+", "#")],
        ("t", 1, {"server_keep_alive": 7}),
        ("t", 1, {"payload_format_indicator": 1}),
        ("t", 1, {"user_property": [("a", "b")] * 4_097}),
    ],
)
def test_a_message_that_mqtt_does_not_allow(topic: str, qos: int, properties: Any) -> None:
    """A server that gets one ends the connection, and so would each one on which it is sent again."""
    server, not_utf8 = Script().connected(), b"\xff"
    with pytest.raises(LocalProtocolError):
        server.client.publish(topic, not_utf8, qos, properties=properties)
    with pytest.raises(LocalProtocolError):
        server.session.publish(topic, not_utf8, qos, properties=properties)
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
