"""What a client may rely on by the specification, on real sockets, packet by packet (MQTT 5.0 and 3.1.1; G11)."""

import pytest

from mqtt.codes import ConnectReturnCode, ReasonCode
from mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from tests.unit.gateway.host.raw_client import RawClient, subscribe
from tests.unit.gateway.host.socket_gateway import PACKET_BYTES, SocketGateway


@pytest.mark.parametrize(
    ("client_id", "asks", "given"),
    [
        ("asker", 1, "responses/asker/"),
        ("asker", 0, None),
        ("asker", None, None),
        ("a+b", 1, None),  # no topic name could be made of it
        ("a/#", 1, None),
    ],
)
def test_response_information(one: RawClient, client_id: str, asks: int | None, given: str | None) -> None:
    """3.1.2.11.6 and 3.2.2.3.15: only to a client that asks."""
    properties = {} if asks is None else {"request_response_information": asks}
    answer = one.connect(client_id, properties=properties)
    assert (answer.properties or {}).get("response_information") == given


def test_response_information_of_an_assigned_identifier(one: RawClient) -> None:
    properties = one.connect("", properties={"request_response_information": 1}).properties or {}
    assert properties["response_information"] == f"responses/{properties['assigned_client_identifier']}/"


def test_request_and_response(one: RawClient, two: RawClient, name: str) -> None:
    """4.10: response topic and correlation data come through unchanged."""
    own = (one.connect(name, properties={"request_response_information": 1}).properties or {})["response_information"]
    subscribe(one, f"{own}#")
    two.connect(f"responder {name}")
    subscribe(two, f"request/{name}")
    asked = {"response_topic": f"{own}1", "correlation_data": b"\0\xff"}
    one.publish(f"request/{name}", b"question", properties=asked)
    request = two.take(Publish)
    assert request.properties == asked
    two.publish(asked["response_topic"], b"answer", properties={"correlation_data": b"\0\xff"})
    assert one.take(Publish).properties == {"correlation_data": b"\0\xff"}


def test_unsubscribing_from_what_is_not_there(one: RawClient, name: str) -> None:
    """3.11.3: codes in the order of the filters."""
    one.connect(name)
    subscribe(one, f"{name}/a", f"{name}/b")
    one.send(Unsubscribe(2, [f"{name}/b", f"{name}/none", f"{name}/a", f"{name}/a"]))
    none = ReasonCode.NO_SUBSCRIPTION_EXISTED
    assert one.take(Unsuback).reason_codes == [ReasonCode.SUCCESS, none, ReasonCode.SUCCESS, none]


def test_3_1_1_is_spoken_in_3_1_1(gateway: SocketGateway, name: str) -> None:
    """No properties, no reasons; a refused filter is 0x80."""
    with RawClient(gateway.mqtt_port, version=4) as client:
        client.send(Connect(name, 4))
        assert client.take(Connack) == Connack(False, ConnectReturnCode.ACCEPTED)
        assert subscribe(client, f"3/{name}", "@somebody-else") == [ReasonCode.GRANTED_QOS_2, 0x80]
        client.publish(f"3/{name}", b"x", 2, 5)
        came = sorted([client.take_any(), client.take_any()], key=lambda packet: isinstance(packet, Pubrec))
        assert came == [Publish(f"3/{name}", b"x", 2, packet_id=1), Pubrec(5)]
        client.send(Pubrel(5), Pubrec(1))
        assert [client.take_any(), client.take_any()] == [Pubcomp(5), Pubrel(1)]
        client.send(Pubcomp(1), Unsubscribe(2, ["none"]), Pingreq())
        assert [client.take_any(), client.take_any()] in ([Unsuback(2), Pingresp()], [Pingresp(), Unsuback(2)])


def test_unknown_packet_ids(one: RawClient, gateway: SocketGateway, name: str) -> None:
    """3.6.2.1, 3.7.2.1, 4.13: whoever speaks of no exchange hears so and stays; 3.1.1 has no word for it."""
    one.connect(name)
    one.send(Pubrec(7), Pubrel(8), Puback(9), Pubcomp(10))
    assert one.take_any() == Pubrel(7, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
    assert one.take_any() == Pubcomp(8, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
    one.send(Pingreq())
    one.take(Pingresp)
    with RawClient(gateway.mqtt_port, version=4) as client:
        client.send(Connect(f"{name}-4", 4))
        client.take(Connack)
        client.send(Pubrec(7), Pubrel(8))
        assert [client.take_any(), client.take_any()] == [Pubrel(7), Pubcomp(8)]


def test_the_client_s_receive_maximum(one: RawClient, two: RawClient, name: str) -> None:
    """[MQTT-3.3.4-9], [MQTT-4.9.0-2]: never more unacknowledged than it takes; other packets are answered meanwhile."""
    one.connect(name, properties={"receive_maximum": 2})
    subscribe(one, f"window/{name}")
    two.connect(f"sender {name}")
    for number in range(5):
        two.publish(f"window/{name}", b"%d" % number, 1, number + 1)
        two.take(Puback)
    first, second = one.take(Publish), one.take(Publish)
    one.send(Pingreq())
    one.take(Pingresp)
    one.send(Puback(second.packet_id))
    third = one.take(Publish)
    assert [p.payload for p in (first, second, third)] == [b"0", b"1", b"2"]
    assert third.packet_id != first.packet_id
    one.send(Puback(first.packet_id), Puback(third.packet_id))
    assert [one.take(Publish).payload for _ in range(2)] == [b"3", b"4"]


def test_maximum_packet_size_both_ways(one: RawClient, two: RawClient, name: str) -> None:
    """[MQTT-3.1.2-24]: what is too large for a client is left out, as if sent; for us, it ends in 0x95."""
    one.connect(name, properties={"maximum_packet_size": 100})
    subscribe(one, f"size/{name}")
    answer = two.connect(f"sender {name}")
    assert (answer.properties or {})["maximum_packet_size"] == PACKET_BYTES
    for size in (200, 10):
        two.publish(f"size/{name}", bytes(size), 1, 1)
        assert two.take(Puback).reason_code == ReasonCode.SUCCESS
    assert len(one.take(Publish).payload) == 10
    two.publish("t", bytes(PACKET_BYTES))
    (goodbye,) = two.ended()
    assert isinstance(goodbye, Disconnect)
    assert goodbye.reason_code == ReasonCode.PACKET_TOO_LARGE


def test_properties_travel_unchanged(one: RawClient, two: RawClient, name: str) -> None:
    """[MQTT-3.3.2-4], [MQTT-3.3.2-16], [MQTT-3.3.2-17] and the like: user properties in their order, also repeated."""
    one.connect(name)
    subscribe(one, f"props/{name}")
    two.connect(f"sender {name}")
    properties = {
        "payload_format_indicator": 1,
        "content_type": "text/plain; é",
        "response_topic": "r/1",
        "correlation_data": bytes(range(256)),
        "user_property": [("b", "1"), ("a", "2"), ("b", "1"), ("", "")],
    }
    two.publish(f"props/{name}", "é".encode(), properties=dict(properties))
    assert one.take(Publish).properties == properties


def test_overlapping_subscriptions_and_their_identifiers(one: RawClient, two: RawClient, name: str) -> None:
    """[MQTT-3.3.4-2], [MQTT-3.3.4-4]: one message, the highest QoS, all identifiers, none for one without."""
    one.connect(name)
    subscribe(one, Subscription(f"over/{name}/#", 0), identifier=7)
    subscribe(one, Subscription(f"over/{name}/+", 1), identifier=268_435_455)
    subscribe(one, Subscription(f"over/{name}/a", 0))
    two.connect(f"sender {name}")
    two.publish(f"over/{name}/a", b"1", 2, 1)
    two.publish(f"over/{name}/a/b", b"2", 2, 2)
    first, second = one.take(Publish), one.take(Publish)
    assert (first.payload, first.qos) == (b"1", 1)
    assert sorted((first.properties or {})["subscription_identifier"]) == [7, 268_435_455]
    assert (second.payload, second.qos, second.properties) == (b"2", 0, {"subscription_identifier": [7]})


def test_an_empty_retained_message(one: RawClient, two: RawClient, name: str) -> None:
    """[MQTT-3.3.1-6], [MQTT-3.3.1-7]: it is delivered like any other, and leaves nothing behind."""
    one.connect(name)
    subscribe(one, Subscription(f"kept/{name}", 1, retain_as_published=True))
    two.connect(f"sender {name}")
    two.publish(f"kept/{name}", b"x", 1, 1, retain=True)
    two.publish(f"kept/{name}", b"", 1, 2, retain=True)
    two.take(Puback)
    two.take(Puback)
    assert [(p.payload, p.retain) for p in (one.take(Publish), one.take(Publish))] == [(b"x", True), (b"", True)]
    assert subscribe(two, f"kept/{name}") == [ReasonCode.GRANTED_QOS_2]
    two.send(Pingreq())
    two.take(Pingresp)


def test_no_local_is_for_retained_messages_too(one: RawClient, two: RawClient, name: str) -> None:
    """[MQTT-3.8.3-3]: what a client has published does not come back to it; others get it."""
    one.connect(name)
    one.publish(f"kept/{name}", b"x", 1, 1, retain=True)
    one.take(Puback)
    subscribe(one, Subscription(f"kept/{name}", 1, no_local=True))
    one.send(Pingreq())
    one.take(Pingresp)
    two.connect(f"other {name}")
    subscribe(two, Subscription(f"kept/{name}", 1, no_local=True))
    assert two.take(Publish).retain


def test_topics_with_a_dollar(one: RawClient, two: RawClient, name: str) -> None:
    """[MQTT-4.7.2-1]: wildcards at the first level do not match them, also not for retained messages."""
    one.connect(name)
    live = [Subscription(f, 0, retain_handling=2) for f in ("#", f"+/{name}", f"$x/{name}")]
    subscribe(one, *live)
    two.connect(f"sender {name}")
    two.publish(f"$y/{name}", b"not this", retain=True)
    two.publish(f"$x/{name}", b"this")
    assert one.take(Publish).payload == b"this"
    subscribe(one, f"+/{name}")
    subscribe(one, f"$y/{name}")
    assert one.take(Publish).payload == b"not this", "only the filter that names it"
    two.publish(f"$y/{name}", b"", 1, 1, retain=True)
    two.take(Puback)
    assert one.take(Publish).payload == b""


@pytest.mark.parametrize("text", ["\ufeffbom", "\U0001f600", "\ufffe", "a b", "/", "//", "ü/ö"])
def test_topics_are_compared_as_they_are(one: RawClient, text: str, name: str) -> None:
    """[MQTT-1.5.4-3], 4.7.3: nothing is stripped or normalised; empty levels are levels."""
    one.connect(name)
    subscribe(one, text)
    one.publish(text, b"x")
    assert one.take(Publish).topic == text


def test_a_quality_that_was_not_asked_for_is_not_given(one: RawClient, two: RawClient, name: str) -> None:
    """[MQTT-3.8.4-8]: at most the granted QoS, at most that of the publish; DUP is the delivery's own."""
    one.connect(name)
    two.connect(f"sender {name}")
    for granted in (0, 1, 2):
        subscribe(one, Subscription(f"qos/{name}", granted))
        for sent in (0, 1, 2):
            two.publish(f"qos/{name}", b"x", sent, sent, dup=sent > 0)
            got = one.take(Publish)
            assert (got.qos, got.dup, got.retain) == (min(granted, sent), False, False)
            if sent == 1:
                two.take(Puback)
            if sent == 2:
                two.take(Pubrec)
                two.send(Pubrel(2))
                two.take(Pubcomp)
            if got.qos == 1:
                one.send(Puback(got.packet_id))
            if got.qos == 2:
                one.send(Pubrec(got.packet_id))
                one.take(Pubrel)
                one.send(Pubcomp(got.packet_id))
