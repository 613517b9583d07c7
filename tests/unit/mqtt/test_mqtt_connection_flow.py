"""The server's side of a connection: what clients send, Receive Maximum, packet sizes, topic aliases."""

import pytest

from mqtt.codes import ReasonCode
from mqtt.encode import encode, encode_puback
from mqtt.errors import LocalProtocolError
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
    Unsubscribe,
)
from tests.unit.mqtt.mqtt_client import WILL, Client, closed, publish, versioned


@versioned
def test_client_packets_are_events(version: int) -> None:
    """In order, PINGREQ left out and answered [MQTT-3.12.4-1]."""
    client = Client(version).connected()
    packets: list[Packet] = [
        Publish("a", b"x", 1, packet_id=1),
        Puback(2),
        Pubrec(3),
        Pubrel(4),
        Pubcomp(5),
        Subscribe(6, [Subscription("a/#", 1)]),
        Unsubscribe(7, ["a/#"]),
    ]
    assert client.send(*packets[:3], Pingreq(), *packets[3:]) == packets
    assert client.received() == [Pingresp()]


@versioned
@pytest.mark.parametrize("packet", [Connack(), Suback(1, []), Unsuback(1), Pingresp(), Auth()])
def test_server_never_receives(version: int, packet: Packet) -> None:
    """What only servers send, and AUTH without a method, ends the connection; the will is due."""
    client = Client(version).connected(will=WILL)
    end = closed(client.server.receive(encode(packet, 5), 2.0))
    assert end.reason in (ReasonCode.PROTOCOL_ERROR, ReasonCode.MALFORMED_PACKET)
    assert end.send_will
    assert [type(answer) for answer in client.received()] == ([Disconnect] if version == 5 else [])


def test_client_must_not_send_a_subscription_identifier() -> None:
    """[MQTT-3.3.4-6]."""
    client = Client().connected()
    assert closed(client.send(Publish("a", properties={"subscription_identifier": [1]}))).reason == 0x82


def test_receive_maximum_exceeded() -> None:
    """G8: more unanswered PUBLISH than announced: the client is told 0x93; those before are handed out."""
    client = Client().connected(will=WILL)
    events = client.send(publish(1), Publish("a"), publish(2, 2), publish(3))
    assert events[:-1] == [publish(1), Publish("a"), publish(2, 2)]
    assert closed(events).reason is ReasonCode.RECEIVE_MAXIMUM_EXCEEDED
    told = client.received()[0]
    assert isinstance(told, Disconnect)
    assert told.reason_code is ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


@pytest.mark.parametrize(
    ("answer", "frees"),
    [
        (Puback(1), True),
        (Puback(1, ReasonCode.QUOTA_EXCEEDED), True),
        (Pubcomp(1), True),
        (Pubrec(1, ReasonCode.QUOTA_EXCEEDED), True),
        (Pubrec(1), False),
        (Pubrel(1), False),
        (Publish("b", qos=1, packet_id=1), False),
    ],
)
def test_what_frees_the_receive_maximum(answer: Packet, frees: bool) -> None:
    """G8: PUBACK, PUBCOMP and a failed PUBREC do (4.9)."""
    client = Client().connected()
    client.send(publish(1), publish(2))
    client.server.send(answer)
    assert (client.send(publish(3)) == [publish(3)]) is frees


def test_answers_as_bytes_are_counted_as_told() -> None:
    """The hot path: joined PUBACKs with their number; never below nothing."""
    client = Client().connected()
    client.send(publish(1), publish(2))
    client.server.send(encode_puback(1) + encode_puback(2), answers=2)
    assert client.received() == [Puback(1), Puback(2)]
    client.server.send(Pubcomp(9))  # of an earlier connection
    assert client.send(publish(3), publish(4)) == [publish(3), publish(4)]
    assert closed(client.send(publish(5))).reason is ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


def test_3_1_1_has_no_receive_maximum() -> None:
    """It cannot be announced, so it is not enforced: the transport stops reading instead."""
    client = Client(4).connected()
    packets: list[Packet] = [publish(number) for number in range(1, 100)]
    assert client.send(*packets) == packets


def test_topic_aliases() -> None:
    """3.3.2.3.4: events have the full topic and no alias; an alias can be set anew."""
    client = Client().connected()

    def aliased(topic: str, alias: int, **others: object) -> Publish:
        return Publish(topic, properties={"topic_alias": alias, **others})

    sent = [aliased("a", 1), aliased("b", 2, content_type="t"), aliased("", 1), aliased("c", 1), aliased("", 1)]
    expected = [Publish("a"), Publish("b", properties={"content_type": "t"}), Publish("a"), Publish("c"), Publish("c")]
    assert client.send(*sent) == expected
    assert client.send(aliased("", 2)) == [Publish("b")]


@pytest.mark.parametrize(
    ("topic", "alias", "reason"),
    [("", 1, ReasonCode.PROTOCOL_ERROR), ("a", 3, ReasonCode.TOPIC_ALIAS_INVALID)],
)
def test_topic_alias_faults(topic: str, alias: int, reason: ReasonCode) -> None:
    """An alias never set; one above what was announced [MQTT-3.3.2-9]."""
    client = Client().connected()
    assert closed(client.send(Publish(topic, properties={"topic_alias": alias}))).reason is reason


def test_maximum_packet_size_of_the_client() -> None:
    """[MQTT-3.1.2-24]: a larger PUBLISH is for the caller to drop; other packets lose what they can."""
    client = Client().connected(properties={"maximum_packet_size": 30})
    packet = Publish("a", bytes(24))
    assert client.server.fits(len(encode(packet, 5))) is True
    client.server.send(packet)
    assert client.received() == [packet]
    assert client.server.fits(31) is False
    with pytest.raises(LocalProtocolError):
        client.server.send(Publish("a", bytes(25)))
    client.server.send(Puback(1, ReasonCode.QUOTA_EXCEEDED, {"reason_string": "x" * 40}))
    assert client.received() == [Puback(1, ReasonCode.QUOTA_EXCEEDED)]
    client.server.send(Suback(1, [ReasonCode.GRANTED_QOS_0] * 40))
    assert client.server.closed is not None
    assert client.received() == [Disconnect(ReasonCode.PACKET_TOO_LARGE)]


@pytest.mark.parametrize(("size", "told"), [(4, []), (5, [Connack(False, ReasonCode.PACKET_TOO_LARGE)])])
def test_client_too_small_for_connack(size: int, told: list[Packet]) -> None:
    """No packet is larger than the client said, not even CONNACK; a will is not sent."""
    client = Client()
    client.send(Connect("c", will=WILL, properties={"maximum_packet_size": size}))
    end = closed(client.server.accept(1.0))
    assert (end.reason, end.send_will) == (ReasonCode.PACKET_TOO_LARGE, False)
    assert client.received() == told


def test_too_large_inbound_packet() -> None:
    """0x95, as soon as the header is there."""
    client = Client().connected()
    assert closed(client.server.receive(b"\x30\xff\x7f", 2.0)).reason is ReasonCode.PACKET_TOO_LARGE


def test_problem_information_only_where_wanted() -> None:
    """[MQTT-3.1.2-29]."""
    for asked, told in ((0, None), (1, {"reason_string": "why"})):
        client = Client().connected(properties={"request_problem_information": asked})
        client.server.send(Puback(1, properties={"reason_string": "why"}))
        assert client.received() == [Puback(1, properties=told)]
