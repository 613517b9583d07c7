"""What a client keeps over its connections: resending, acknowledging, a session the server lost, its state on disk."""

import msgspec
import pytest

from mqtt.client_events import Closed, Published, SessionLost
from mqtt.client_inbound import InboundMessages
from mqtt.client_limits import ClientLimits
from mqtt.client_outbound import OutboundMessages
from mqtt.client_session import ClientSession, SessionState
from mqtt.codes import ReasonCode
from mqtt.errors import LocalProtocolError
from mqtt.limits import ConnectionLimits
from mqtt.packets import Connack, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscription, Unsuback
from tests.unit.mqtt.client_script import Script
from tests.unit.mqtt.connection_pair import ConnectionPair
from tests.unit.mqtt.mqtt_client import versioned

RESUMED = {"properties": {"session_expiry_interval": 60}, "clean_start": False}


# -- what it sends -----------------------------------------------------------------------------------------------------


@versioned
def test_everything_is_sent_again_in_order(version: int) -> None:
    """4.4, 4.6: PUBREL in the order of PUBREC, PUBLISH in the original order with DUP, then what was never sent."""
    first = Script(version, clean_start=False).connected()
    ids = [first.client.publish("t", b"%d" % number, qos) for number, qos in enumerate([1, 2, 2, 1])]
    first.say(Pubrec(ids[1]), Pubrec(ids[2]))
    first.client.eof()
    new = first.session.publish("t", b"new", 1)
    second = Script(version, session=first.session, clean_start=False)
    second.say(Connack(True))
    assert second.sent() == [
        Pubrel(ids[1]),
        Pubrel(ids[2]),
        Publish("t", b"0", 1, dup=True, packet_id=ids[0]),
        Publish("t", b"3", 1, dup=True, packet_id=ids[3]),
        Publish("t", b"new", 1, packet_id=new),
    ]


@versioned
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("ends", ["eof", "kill"])
def test_a_connection_that_is_lost_at_any_byte(version: int, qos: int, ends: str) -> None:
    """Both directions cut after each byte; the application killed or only its connection lost."""
    cut = 0
    while True:
        pair = ConnectionPair(version).connected()
        pair.publish(b"out", qos)
        pair.server.deliver("t", b"in", qos)
        pair.flush()
        pair.pull()
        carried = 0
        while carried < cut and (pair.to_server or pair.to_client):
            (pair.carry_to_server if pair.to_server else pair.carry_to_client)(1)
            carried += 1
            if pair.given:
                pair.accept()
            pair.flush()
        pair.lose() if ends == "eof" else pair.kill_client()
        pair.connected()
        while pair.given:
            pair.accept()
            pair.exchange()
        pair.exchange()
        out = [packet.payload for packet in pair.server.stored]
        arrived = [payload for payload, _ in pair.accepted]
        assert set(out) == {b"out"}
        assert set(arrived) == {b"in"}
        assert qos == 1 or len(out) == len(arrived) == 1
        assert pair.acknowledged == [b"out"]
        if carried < cut:
            break
        cut += 1
    assert cut > 10


def test_topic_aliases_both_ways() -> None:
    """3.3.2.3.4: known to one connection only, which the server core checks."""
    limits = ConnectionLimits(topic_alias_maximum=3)
    pair = ConnectionPair(limits=limits, client_limits=ClientLimits(topic_aliases_max=9)).connected()
    topics = [f"a/rather/long/topic/{number % 3}" for number in range(9)]
    for topic in topics:
        pair.publish(b"", 1, topic)
    pair.flush()
    short = len(pair.to_server)
    pair.exchange()
    assert short < sum(len(topic) + 8 for topic in topics)
    pair.publish(b"", 1, topics[0])
    pair.lose()
    pair.connected()
    assert [packet.topic for packet in pair.server.stored] == [*topics, topics[0]]
    server = Script(properties={"topic_alias_maximum": 1}).connected()
    first, second = server.say(Publish("t", properties={"topic_alias": 1}), Publish("", properties={"topic_alias": 1}))
    assert (first.topic, second.topic) == ("t", "t")


def test_packet_ids_wrap_and_pass_over_those_in_use() -> None:
    """[MQTT-2.2.1-3]."""
    pair = ConnectionPair(limits=ConnectionLimits(receive_maximum=65_535)).connected()
    held = pair.publish(b"held", 1)
    for _ in range(66_000):
        packet_id = pair.session.outbound.new_id()
        assert packet_id != held
    assert packet_id < 65_536


# -- what it acknowledges ----------------------------------------------------------------------------------------------


@versioned
def test_nothing_is_acknowledged_before_the_application_accepts_it(version: int) -> None:
    server = Script(version).connected()
    one, two = server.say(Publish("t", b"1", 1, packet_id=1), Publish("t", b"2", 2, packet_id=2))
    assert server.client.outgoing() == b""
    server.client.acknowledge(one)
    assert server.sent() == [Puback(1)]
    server.client.acknowledge(one)
    assert server.sent() == []
    server.client.acknowledge(two)
    assert server.sent() == [Pubrec(2)]
    server.client.acknowledge(two)
    assert server.sent() == []


def test_acknowledgements_go_out_in_the_order_of_the_messages() -> None:
    """[MQTT-4.6.0-2], [MQTT-4.6.0-3]: QoS 1 and QoS 2 apart."""
    server = Script().connected()
    messages = server.say(*(Publish("t", b"", 1 + number % 2, packet_id=number) for number in range(1, 7)))
    for number in (5, 3, 6):
        server.client.acknowledge(messages[number - 1])
    assert server.sent() == []
    server.client.acknowledge(messages[1])
    assert server.sent() == [Puback(2)]
    server.client.acknowledge(messages[3])
    assert server.sent() == [Puback(4), Puback(6)]
    server.client.acknowledge(messages[0])
    assert server.sent() == [Pubrec(1), Pubrec(3), Pubrec(5)]


def test_a_message_can_be_refused() -> None:
    """3.4.2.1, 3.5.2.1."""
    server = Script().connected()
    one, two = server.say(Publish("t", b"", 1, packet_id=1), Publish("t", b"", 2, packet_id=2))
    server.client.acknowledge(one, ReasonCode.QUOTA_EXCEEDED)
    server.client.acknowledge(two, ReasonCode.PAYLOAD_FORMAT_INVALID)
    assert server.sent() == [Puback(1, ReasonCode.QUOTA_EXCEEDED), Pubrec(2, ReasonCode.PAYLOAD_FORMAT_INVALID)]
    (again,) = server.say(Publish("t", b"other", 2, packet_id=2))
    assert again.payload == b"other"
    with pytest.raises(LocalProtocolError):
        server.client.acknowledge(again, ReasonCode.SESSION_TAKEN_OVER)
    older = Script(4).connected()
    (message,) = older.say(Publish("t", b"", 1, packet_id=1))
    with pytest.raises(LocalProtocolError):
        older.client.acknowledge(message, ReasonCode.QUOTA_EXCEEDED)


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_accepted_after_its_connection_was_lost(qos: int) -> None:
    """It is not given twice, and acknowledged when it comes again."""
    first = Script(**RESUMED).connected()
    (message,) = first.say(Publish("t", b"x", qos, packet_id=7))
    first.client.eof()
    second = Script(session=first.session, **RESUMED)
    second.say(Connack(True))
    second.client.acknowledge(message)
    assert second.sent() == []
    assert second.say(Publish("t", b"x", qos, dup=True, packet_id=7)) == []
    assert second.sent() == [Puback(7) if qos == 1 else Pubrec(7)]


def test_a_message_that_comes_again_before_it_is_accepted() -> None:
    first = Script(**RESUMED).connected()
    (message,) = first.say(Publish("t", b"x", 1, packet_id=7))
    first.client.eof()
    second = Script(session=first.session, **RESUMED)
    second.say(Connack(True))
    assert second.say(Publish("t", b"x", 1, dup=True, packet_id=7)) == []
    assert second.sent() == []
    second.client.acknowledge(message)
    assert second.sent() == [Puback(7)]


def test_another_message_with_the_packet_id_of_an_earlier_connection() -> None:
    """At QoS 1 a message without DUP is a new one."""
    first = Script(**RESUMED).connected()
    (before,) = first.say(Publish("t", b"before", 1, packet_id=7))
    first.client.eof()
    second = Script(session=first.session, **RESUMED)
    second.say(Connack(True))
    (message,) = second.say(Publish("t", b"new", 1, packet_id=7))
    assert message.payload == b"new"
    second.client.acknowledge(before)
    assert second.sent() == []
    second.client.acknowledge(message)
    assert second.sent() == [Puback(7)]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_the_application_lost_comes_again(qos: int) -> None:
    first = Script(**RESUMED).connected()
    (message,) = first.say(Publish("t", b"x", qos, packet_id=7))
    first.client.forget(message)
    first.client.eof()
    second = Script(session=first.session, **RESUMED)
    second.say(Connack(True))
    (again,) = second.say(Publish("t", b"x", qos, dup=True, packet_id=7))
    second.client.acknowledge(again)
    assert second.sent() == [Puback(7) if qos == 1 else Pubrec(7)]


# -- a session that the server has lost --------------------------------------------------------------------------------


def _lost(republish: bool) -> tuple[ConnectionPair, dict[str, int]]:
    """A connection to a server that has lost a session with something of every kind."""
    pair = ConnectionPair(republish=republish, limits=ConnectionLimits(receive_maximum=9)).connected()
    ids = {"one": pair.publish(b"one", 1), "two": pair.publish(b"two", 2)}
    pair.server.deliver("t", b"given", 1)
    pair.pull()
    pair.carry_to_client(1 << 16)
    pair.flush()
    pair.lose()
    ids["unsent"] = pair.publish(b"unsent", 1)
    pair.server.forget()
    pair.events.clear()
    return pair, ids


def test_what_is_lost_with_the_session_is_said_and_sent_again() -> None:
    """[MQTT-3.2.2-5]."""
    pair, ids = _lost(republish=True)
    pair.connect()
    pair.carry_to_server(1 << 16)
    pair.carry_to_client(1 << 16)
    connack, lost = pair.events
    assert isinstance(connack, Connack)
    assert isinstance(lost, SessionLost)
    assert lost.republished == [ids["one"], ids["two"]]
    assert lost.dropped == []
    assert [message.payload for message in lost.unacknowledged] == [b"given"]
    pair.exchange()
    assert [(packet.payload, packet.dup) for packet in pair.server.stored[-3:]] == [
        (b"one", False),
        (b"two", False),
        (b"unsent", False),
    ]
    assert sorted(pair.acknowledged) == [b"one", b"two", b"unsent"]
    pair.connection.acknowledge(lost.unacknowledged[0])
    assert pair.connection.outgoing() == b""


def test_what_is_lost_with_the_session_can_be_dropped() -> None:
    pair, _ = _lost(republish=False)
    pair.connected()
    (lost,) = [event for event in pair.events if isinstance(event, SessionLost)]
    assert [packet.payload for packet in lost.dropped] == [b"one", b"two"]
    assert lost.republished == []
    assert [packet.payload for packet in pair.server.stored if packet.payload != b"one"] == [b"unsent"]


def test_a_message_the_server_had_taken_over_is_done_with() -> None:
    """After PUBREC the server owns it, whatever it loses later."""
    first = Script(**RESUMED).connected()
    packet_id = first.client.publish("t", b"x", 2)
    first.say(Pubrec(packet_id, ReasonCode.NO_MATCHING_SUBSCRIBERS))
    first.client.eof()
    second = Script(session=first.session, **RESUMED)
    events = second.say(Connack(False))
    assert events[1:] == [SessionLost([], [], []), Published(packet_id, ReasonCode.NO_MATCHING_SUBSCRIBERS)]
    assert second.sent() == []


def test_a_first_connection_has_lost_nothing() -> None:
    pair = ConnectionPair().connected()
    assert [type(event) for event in pair.events] == [Connack]
    pair.lose()
    pair.connected()
    assert [type(event) for event in pair.events] == [Connack, Closed, Connack]


# -- requests ----------------------------------------------------------------------------------------------------------


@versioned
def test_subscribe_and_unsubscribe_are_answered(version: int) -> None:
    pair = ConnectionPair(version).connected()
    asked = pair.connection.subscribe([Subscription("a/#", 1), Subscription("b", 2)])
    pair.exchange()
    gone = pair.connection.unsubscribe(["a/#", "b"])
    pair.exchange()
    suback, unsuback = pair.events[-2:]
    assert suback == Suback(asked, [ReasonCode.GRANTED_QOS_1, ReasonCode.GRANTED_QOS_2])
    assert isinstance(unsuback, Unsuback)
    assert unsuback.packet_id == gone
    assert len(unsuback.reason_codes) == (2 if version == 5 else 0)


def test_a_refused_filter_is_reported() -> None:
    server = Script(4).connected()
    packet_id = server.client.subscribe([Subscription("a"), Subscription("b")])
    (suback,) = server.say(Suback(packet_id, [ReasonCode.GRANTED_QOS_0, ReasonCode.UNSPECIFIED_ERROR]))
    assert suback.reason_codes == [0, 0x80]


# -- on disk -----------------------------------------------------------------------------------------------------------


def test_a_session_survives_on_disk() -> None:
    """Any moment of it: what is sent next is the same."""
    first = Script(**RESUMED).connected()
    properties = {"user_property": [("a", "b")], "correlation_data": b"\0\xff"}
    first.client.publish("t", b"\0", 2, properties=properties)
    released = first.client.publish("t", b"1", 2)
    first.client.publish("t", b"2", 1, True)
    (message,) = first.say(Publish("t", b"", 2, packet_id=3))
    first.client.acknowledge(message)
    first.say(Pubrec(released))
    first.client.eof()
    state = first.session.export()
    data = msgspec.msgpack.encode(state)
    restored = ClientSession.restore(msgspec.msgpack.decode(data, type=SessionState))
    assert msgspec.msgpack.encode(restored.export()) == data
    sent = []
    for session in (first.session, restored):
        second = Script(session=session, **RESUMED)
        second.say(Connack(True), Publish("t", b"", 2, dup=True, packet_id=3))
        sent.append(second.client.outgoing())
    assert sent[0] == sent[1] != b""


@versioned
def test_an_exchange_without_its_message_is_ended(version: int) -> None:
    """4.3.3: the server may hold the packet id until PUBREL, so no other message gets it before PUBCOMP."""
    state = SessionState("c", True, 65_535, [], [], [], [1, 3])
    first = Script(version, session=ClientSession.restore(state), clean_start=False)
    first.say(Connack(True))
    assert first.sent() == [Pubrel(1), Pubrel(3)]
    assert [first.client.publish("t", b"", 2) for _ in range(2)] == [2, 4]
    assert first.say(Pubcomp(1)) == [Published(1)]
    first.client.eof()
    second = Script(version, session=ClientSession.restore(first.session.export()), clean_start=False)
    second.say(Connack(True))
    assert [packet.packet_id for packet in second.sent()] == [3, 2, 4]
    second.client.eof()
    third = Script(version, session=second.session, clean_start=False)
    third.say(Connack(False))
    assert all(type(packet) is Publish for packet in third.sent()), "the server has lost the session"


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_a_server_no_longer_takes_keeps_its_packet_id_until_its_exchange_is_over(qos: int) -> None:
    """4.3.3: it may hold a message of QoS 2 whose PUBREC was lost, and would take another one for the same."""
    first = Script(clean_start=False).connected()
    packet_id = first.client.publish("t", bytes(200), qos)
    first.client.eof()
    second = Script(session=first.session, clean_start=False)
    _, refused = second.say(Connack(True, properties={"maximum_packet_size": 100}))
    assert (refused.packet_id, refused.reason_code) == (packet_id, ReasonCode.PACKET_TOO_LARGE)
    assert second.sent() == [Pubrel(packet_id)] * (qos == 2)
    second.session.outbound.last_id = packet_id - 1
    assert second.client.publish("t", b"", 2) == packet_id + (qos == 2)
    assert second.say(*[Pubcomp(packet_id)] * (qos == 2)) == [Published(packet_id)] * (qos == 2)


def test_another_message_with_an_earlier_ones_packet_id_is_given() -> None:
    """M14: a gateway that was killed may number unacknowledged messages anew, with DUP set."""
    inbound = InboundMessages()
    earlier = Publish("a", b"earlier", 1, packet_id=1)
    assert inbound.take(earlier)[0]
    inbound.end()
    inbound.acknowledge(earlier, ReasonCode.SUCCESS)
    other = Publish("a", b"other", 1, dup=True, packet_id=1)
    assert inbound.take(other) == (True, [])
    assert inbound.acknowledge(other, ReasonCode.SUCCESS) == [Puback(1)]


def test_an_exchange_of_an_earlier_connection_gives_no_quota() -> None:
    """It took none on this one. Mosquitto refuses what exceeds its Receive Maximum by the exchanges it has stored."""
    outbound = OutboundMessages(10, 1_000)
    outbound.begin(1)
    first = outbound.add(Publish("a", b"", 2))
    assert outbound.next_to_send() is not None
    assert outbound.acknowledged(Pubrec(first)) is False
    outbound.end()
    second, third = outbound.add(Publish("b", b"", 2)), outbound.add(Publish("c", b"", 2))
    assert outbound.begin(1) == [first]
    sent = outbound.next_to_send()
    assert sent is not None
    assert sent.packet_id == second
    assert outbound.completed(Pubcomp(first)) == 0
    assert outbound.next_to_send() is None
    assert outbound.acknowledged(Pubrec(second)) is False
    assert outbound.completed(Pubcomp(second)) == 0
    sent = outbound.next_to_send()
    assert sent is not None
    assert sent.packet_id == third
