"""Instructions that no router writes, from whoever may write to `egress`: each is quarantined, and stops nothing."""

from pathlib import Path

import pytest

from gateway.memory_bus import MemoryRecord
from mqtt.properties import NO_PROPERTIES
from schemas.envelope import Meta, ingress_headers
from schemas.identity import partition_of, shard_of
from tests.unit.gateway.shard.home_harness import LEAD_S, PARTITIONS, SHARDS, HomeHarness, turn
from tests.unit.gateway.shard.virtual_time import run

HERE = partition_of("sender", PARTITIONS)
HUGE = 10**30


@pytest.mark.parametrize("reading", [False, True], ids=["", "while the reader runs"])
@pytest.mark.parametrize(
    ("instr", "message_id", "topic"),
    [
        (f"{HERE};{HUGE};0;1;1;routed", "id", b"x"),
        (f"{HERE};-1;0;1;1;routed", "id", b"x"),
        (f"{HUGE};5;0;1;1;routed", "id", b"x"),
        (f"{PARTITIONS};5;0;1;1;routed", "id", b"x"),
        ("-1;5;0;1;1;routed", "id", b"x"),
        (f"{HERE};500;{HUGE};;1;routed", "id", b"x"),
        (f"{HERE};500;1;1;1;routed", "id", b"x"),
        (f"{HERE};500;0;{HUGE};1;routed", "id", b"x"),
        (f"{HERE};500;0;1;{HUGE};routed", "id", b"x"),
        (f"{HERE};500;0;1;1;routed", "i" * 1_025, b"x"),
        (f"{HERE};500;0;1;1;routed", "id", b"x/" + b"y" * 65_534),
        (f"{HERE};500;0;1;1;routed", "id", b"x\0"),
        (f"{HERE};500;0;1;1;routed", "id", b"x/#"),
    ],
)
def test_it_is_quarantined_and_messages_come(
    tmp_path: Path, instr: str, message_id: str, topic: bytes, reading: bool
) -> None:
    """Q1: before and after a restart; the records behind it are no copies, and a checkpoint can be made."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await harness.client("sender"), await harness.client("receiver")
        await receiver.subscribe("#")
        await turn(LEAD_S + 5)
        if reading:
            await receiver.subscribe("y/z")
        headers = ingress_headers(message_id, "s", Meta(1, "", None, 0, None), NO_PROPERTIES)
        record = [*headers, ("instr", instr.encode()), ("router", b"active")]
        place = harness.topics.egress, shard_of("receiver", SHARDS)
        harness.broker.append(MemoryRecord(place, topic, b"absurd", record))
        sender.publish("x", b"one", 1)
        await turn(20)
        await harness.restart()
        for client in (sender, receiver):
            await client.connect()
        sender.publish("x", b"two", 2)
        await turn(20)
        assert receiver.payloads == [b"one", b"two"]
        assert len(harness.broker.partitions[harness.topics.quarantine, 0]) == 1
        assert harness.completed() == harness.ids_of(b"one") | harness.ids_of(b"two")
        assert not harness.fatal

    run(scenario())
