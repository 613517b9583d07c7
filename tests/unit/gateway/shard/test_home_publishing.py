"""A publish on its way to Kafka: acknowledged, refused, or waiting (Q1, G8)."""

from pathlib import Path

from mqtt.codes import ReasonCode
from tests.unit.gateway.shard.home_harness import HomeHarness, turn
from tests.unit.gateway.shard.virtual_time import run


def test_nothing_is_acknowledged_before_kafka_has_it(tmp_path: Path) -> None:
    """Q1: PUBACK and PUBREC wait for the broker; for `retained` too."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        harness.bus.held_acks = {harness.topics.ingress, harness.topics.retained}
        sender.publish("a", b"1", 1)
        sender.publish("a", b"2", 2)
        sender.publish("a", b"3", 1, retain=True)
        await turn()
        assert not sender.acknowledged
        harness.bus.held_acks = {harness.topics.retained}
        harness.bus.release()
        await turn()
        assert sender.acknowledged == {b"1", b"2"}
        harness.bus.held_acks = set()
        harness.bus.release()
        await turn()
        assert sender.acknowledged == {b"1", b"2", b"3"}

    run(scenario())


def test_a_refused_publish_is_not_acknowledged_and_its_packet_id_is_free(tmp_path: Path) -> None:
    """Q1, G8."""

    async def scenario() -> None:
        from confluent_kafka import KafkaError

        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        harness.bus.refused[harness.topics.ingress] = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        sender.publish("a", b"1", 1)
        sender.publish("a", b"2", 2)
        await turn()
        assert sender.refused == [ReasonCode.UNSPECIFIED_ERROR] * 2
        harness.bus.refused.clear()
        sender.publish("a", b"3", 2)
        sender.publish("a", b"4", 2)
        await turn()
        assert sender.acknowledged == {b"3", b"4"}
        assert len(harness.published()) == 2

    run(scenario())


def test_answers_come_in_the_order_of_the_publishes(tmp_path: Path) -> None:
    """Q1, MQTT 5.0 [MQTT-4.6.0-2]: a retained message waits for two topics, what follows it waits for its answer."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        await turn()
        harness.bus.held_stores = {harness.topics.retained}
        sender.publish("a", b"kept", 1, retain=True)
        sender.publish("a", b"plain", 1)
        await turn()
        assert len(harness.published()) == 2
        assert not sender.acknowledged
        harness.bus.held_stores = set()
        harness.bus.release()
        await turn()
        assert sender.acknowledged == {b"kept", b"plain"}

    run(scenario())


def test_a_publish_for_which_there_is_no_room_is_refused_and_the_others_are_not(tmp_path: Path) -> None:
    """Q1, G8: nothing is acknowledged that is not stored, and packet ids are free again."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        await turn()
        harness.bus.held_stores, harness.bus.capacity = {harness.topics.ingress}, 2
        for n in range(5):
            sender.publish("a", b"%d" % n, n % 3)
        await turn()
        assert harness.node.counts["refused_by_kafka"] == 3
        assert not sender.acknowledged
        assert not sender.refused, "answers are in the order of the publishes [MQTT-4.6.0-2]"
        harness.bus.held_stores, harness.bus.capacity = set(), None
        harness.bus.release()
        await turn()
        sender.publish("a", b"5", 2)
        sender.publish("a", b"x" * 20_000_001, 1)
        await turn()
        assert sender.acknowledged == {b"1", b"5"}
        assert sender.refused == [ReasonCode.QUOTA_EXCEEDED] * 2 + [ReasonCode.PACKET_TOO_LARGE]
        assert sender.attached.publisher.in_flight == 0
        assert not sender.attached.session.inbound.publishing
        assert not harness.fatal

    run(scenario())
