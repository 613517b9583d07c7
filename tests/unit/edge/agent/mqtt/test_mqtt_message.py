"""The envelope of an MQTT message, and routes by topic (M16)."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.agent.errors import EnvelopeError
from edge.agent.mqtt.forwarding import to_platform
from edge.agent.mqtt.message import MqttMessage, is_mqtt, plain, unpacked
from edge.agent.mqtt.store import Spooled
from edge.agent.mqtt.topic_routes import PLATFORM, TopicRoutes
from edge.client.message import IncomingMessage
from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.packets import Properties, Publish
from mqtt.topics import is_topic_name

ID = "0123456789abcdef" * 2
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
topics = texts.filter(is_topic_name)
properties = st.fixed_dictionaries(
    {},
    optional={
        "content_type": texts,
        "response_topic": topics,
        "correlation_data": st.binary(max_size=20),
        "user_property": st.lists(st.tuples(texts, texts), min_size=1, max_size=4),
    },
)


def incoming(packet: Publish) -> IncomingMessage:
    """As the platform delivers it."""
    [found] = Decoder(1 << 20, 5).feed(encode(packet, 5))
    assert isinstance(found, Publish)
    return IncomingMessage(found, lambda _: None)


def sent(message: MqttMessage, target: str) -> IncomingMessage:
    packet = sent_packet(message, target)
    packet.packet_id = 1
    return incoming(packet)


def sent_packet(message: MqttMessage, target: str) -> Publish:
    return to_platform(Spooled(7, 1, target, message, None), "")


@given(topics, st.binary(max_size=50), st.integers(0, 2), st.booleans(), properties, st.sampled_from([None, 7]))
def test_round_trip(topic: str, payload: bytes, qos: int, retain: bool, more: dict[str, Any], lifetime_s: int) -> None:
    message = MqttMessage(ID, topic, payload, qos, retain, more, lifetime_s)
    there = sent(message, "@far")
    assert is_mqtt(there.user_properties)
    assert unpacked(there) == message
    there = sent(message, PLATFORM)
    assert plain(ID, there) == message


@given(st.lists(st.tuples(texts, texts), max_size=3), st.integers(0, 5), st.binary(max_size=5))
def test_whatever_the_bytes_it_is_a_message_or_an_error(more: list[tuple[str, str]], gone: int, payload: bytes) -> None:
    found = MqttMessage(ID, "a", b"", 1, True).envelope()
    user = found[:gone] + more + found[gone + 1 :]
    message = incoming(Publish("@far", payload, 1, packet_id=1, properties={"user_property": user}))
    with contextlib.suppress(EnvelopeError):
        assert is_topic_name(unpacked(message).topic)


def test_a_payload_that_claims_to_be_utf8_is_looked_at() -> None:
    """Else an agent would send what MQTT does not allow."""
    user = [*MqttMessage(ID, "a", b"", 1).envelope(), ("format", "1")]
    for payload, is_utf8 in ((b"\xff", False), ("ü".encode(), True)):
        message = incoming(Publish("@far", payload, 1, packet_id=1, properties={"user_property": user}))
        assert ("payload_format_indicator" in unpacked(message).properties) is is_utf8


def test_a_message_that_no_packet_can_hold_is_an_error() -> None:
    """A bundle's content may be longer than MQTT allows. The message would stay first in its recipients' queues."""
    wrong: list[tuple[str, Properties]] = [
        ("a", {"correlation_data": bytes(65_536)}),
        ("a", {"content_type": "ü" * 65_535}),
        ("a", {"content_type": "\0"}),
        ("a", {"response_topic": "a/#"}),
        ("a", {"user_property": [("name", "ü" * 65_535)]}),
        ("ü" * 65_535, {}),
    ]
    for topic, more in wrong:
        packet = sent_packet(MqttMessage(ID, topic, b"", 1, properties=more), "@far")
        with pytest.raises(EnvelopeError):
            unpacked(IncomingMessage(packet, lambda _: None))


@pytest.mark.parametrize(
    ("topic", "target"),
    [("a/b", "@x"), ("a", "@x"), ("c", "platform"), ("@x", None), ("@y", "@z"), ("$SYS/a", None)],
)
def test_the_first_route_that_matches_counts(topic: str, target: str | None) -> None:
    routes = TopicRoutes({"a/#": "@x", "a/b": "local", "@y": "@z", "#": "platform", "+": "local"})
    assert routes.of(topic) == target
