"""Kafka has deleted the last records before the end of a partition (`kafka.retention_days`), and nothing comes after
them: nobody waits for what does not come any more."""

from pathlib import Path

from gateway.memory_bus import MemoryRecord
from mqtt.properties import NO_PROPERTIES
from schemas.envelope import Meta, ingress_headers
from schemas.identity import partition_of, shard_of
from tests.unit.gateway.shard.home_harness import LEAD_S, PARTITIONS, SHARDS, HomeHarness, turn
from tests.unit.gateway.shard.virtual_time import run


def test_the_catch_up_reader_ends_though_what_it_had_to_read_is_deleted(tmp_path: Path) -> None:
    """R8: the gateway was away meanwhile, and nobody publishes to that partition any more."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await harness.client("sender"), await harness.client("receiver")
        await receiver.subscribe("a")
        await turn(2)  # a checkpoint notes that the reader reads
        sender.publish("a", b"gone", 1)
        harness.crash(stored=1)
        harness.broker.delete(harness.topics.ingress, partition_of("sender", PARTITIONS))
        await harness.start()
        await turn(LEAD_S + 10)
        assert not harness.is_reading

    run(scenario())


def test_an_instruction_for_a_deleted_message_is_applied(tmp_path: Path) -> None:
    """R8: `ingress` is shorter than `egress`. The reader goes on for other subscriptions, and holds up nothing."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        receiver = await harness.client("receiver")
        await receiver.subscribe("a")
        await turn(LEAD_S + 10)
        assert not harness.is_reading
        await receiver.subscribe("b")
        await turn(2)
        harness.crash()
        headers = ingress_headers("id", "other", Meta(1, "", None, 0, None), NO_PROPERTIES)
        written = MemoryRecord((harness.topics.ingress, 0), b"a", b"routed", headers)
        harness.broker.append(written)
        await turn(1)
        written.is_removed = True
        await harness.start()
        await receiver.connect()
        await turn(5)
        assert harness.is_reading
        assert receiver.payloads == [b"routed"]

    run(scenario())


def test_direct_deliveries_do_not_wait_for_deleted_instructions(tmp_path: Path) -> None:
    """R8: all of the shard's partition of `egress` is deleted, and nothing is instructed yet."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await harness.client("sender"), await harness.client("receiver", mute=True)
        await receiver.subscribe("a")
        await turn(LEAD_S + 5)
        sender.publish("a", b"gone", 2)
        await turn(2)  # a checkpoint has seen it, and the spool does not have it yet
        harness.crash()
        harness.broker.delete(harness.topics.egress, shard_of("receiver", SHARDS))
        receiver.mute = False
        await harness.restart()
        for client in (sender, receiver):
            await client.connect()
        await receiver.subscribe("b")
        sender.publish("b", b"new", 1)
        await turn(5)
        assert receiver.payloads == [b"gone", b"new"]
        session = harness.home.session("receiver")
        assert session is not None
        assert not session.is_recovering

    run(scenario())
