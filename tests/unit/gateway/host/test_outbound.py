"""What one client gets of a message: own properties, topic aliases (MQTT 5.0, 3.3.2.3)."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.host.outbound import PublishEncoder
from gateway.shard.messages import Delivery, Message, PendingMessage
from mqtt.aliases import OutboundAliases
from mqtt.decode import Decoder
from mqtt.packets import Publish
from mqtt.properties import NO_PROPERTIES

TOPICS = ("a", "a/b", "c/d/e", "längere/Namen", "x")
NOW = 1_000.0


def message(topic: str, expires: int | None = None, properties: bytes = NO_PROPERTIES) -> Message:
    return Message("id", "sender", topic, b"payload", 1, False, expires, properties, 0, 0, 0)


def delivery(of: Message, subscription_ids: tuple[int, ...] = ()) -> Delivery:
    return Delivery("client", PendingMessage(of, 0, -1, 0.0, []), 1, False, subscription_ids, packet_id=7)


def decoded(data: bytes, version: int = 5) -> Publish:
    (packet,) = Decoder(1 << 20, version).feed(data)
    assert isinstance(packet, Publish)
    return packet


@given(maximum=st.integers(0, 4), steps=st.lists(st.tuples(st.sampled_from(TOPICS), st.booleans()), max_size=40))
def test_a_client_that_keeps_the_aliases_finds_every_topic(maximum: int, steps: list[tuple[str, bool]]) -> None:
    """[MQTT-3.3.2-8], 3.3.2.3.4: no alias above the maximum, none unknown, also if a PUBLISH is not sent at last."""
    encoder, known = PublishEncoder(5, OutboundAliases(maximum) if maximum else None, lambda: NOW), dict[int, str]()
    for topic, is_sent in steps:
        of = message(topic)
        packet = decoded(encoder.encode(of, delivery(of)))
        if not is_sent:
            encoder.dropped()
            continue
        encoder.sent()
        alias = (packet.properties or {}).get("topic_alias")
        assert (alias is not None) == (maximum > 0)
        if alias is not None:
            assert 1 <= alias <= maximum
            if packet.topic:
                known[alias] = packet.topic
        assert (packet.topic or known[alias]) == topic
        assert packet.payload == b"payload"


def test_a_topic_that_comes_again_is_sent_by_its_alias() -> None:
    encoder, of = PublishEncoder(5, OutboundAliases(1), lambda: NOW), message("a/b", properties=b"\x03\x03\x00\x00")
    sizes = []
    for _ in range(2):
        sizes.append(len(encoder.encode(of, delivery(of, (3, 4)))))
        encoder.sent()
    assert sizes[1] == sizes[0] - len("a/b")


def test_own_properties_stand_with_those_of_the_message() -> None:
    """3.3.2.3.3, 3.3.2.3.8: the rest of the time, and all subscription identifiers."""
    of = message("a", expires=int((NOW + 9.5) * 1000), properties=b"\x05\x03\x00\x02xy")
    packet = decoded(PublishEncoder(5, OutboundAliases(3), lambda: NOW).encode(of, delivery(of, (3, 4))))
    assert packet.properties == {
        "message_expiry_interval": 9,
        "subscription_identifier": [3, 4],
        "content_type": "xy",
        "topic_alias": 1,
    }


def test_version_3_1_1_has_none_of_it() -> None:
    of = message("a", expires=5, properties=b"\x05\x03\x00\x02xy")
    packet = decoded(PublishEncoder(4, None, lambda: NOW).encode(of, delivery(of, (3,))), 4)
    assert (packet.topic, packet.properties) == ("a", None)


def test_a_clock_that_is_behind_makes_no_expiry_too_long() -> None:
    """3.3.2.3.3: the longest one was given by a gateway whose clock is ahead of this one's."""
    of = message("a", expires=int((NOW + 1.5 + 0xFFFF_FFFF) * 1000))
    packet = decoded(PublishEncoder(5, None, lambda: NOW).encode(of, delivery(of)))
    assert packet.properties["message_expiry_interval"] == 0xFFFF_FFFF
