"""Records that a gateway cannot read, as it reports them."""

from pathlib import Path

from gateway.memory_bus import MemoryRecord
from mqtt.properties import NO_PROPERTIES
from schemas.envelope import Instruction
from schemas.events import QuarantineEvent, decode
from schemas.identity import shard_of
from tests.unit.gateway.shard.home_harness import SHARDS, HomeHarness, turn
from tests.unit.gateway.shard.virtual_time import run

BROKERS_LIMIT_BYTES = 1 << 20


def test_a_report_fits_on_the_topic_however_large_the_record_is(tmp_path: Path) -> None:
    """Kafka would refuse it, and the gateway would end, now and at each start."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        meta, instruction = b"1;9;" + b"\0" * 900_000, Instruction(0, 500, 0, 1, 1)
        headers = [("id", b"i"), ("src", b"s"), ("meta", meta), ("props", NO_PROPERTIES)]
        place = harness.topics.egress, shard_of("client", SHARDS)
        record = [*headers, ("instr", instruction.encode()), ("router", b"active")]
        harness.broker.append(MemoryRecord(place, b"x", b"\0" * 900_000, record))
        await turn()
        [report] = harness.broker.partitions[harness.topics.quarantine, 0]
        value = report.value() or b""
        assert len(value) < BROKERS_LIMIT_BYTES
        event = decode(QuarantineEvent, value)
        assert (event.topic, event.partition, event.offset) == (*place, 0)
        assert event.reason.startswith("header meta b'1;9;")
        assert not harness.fatal

    run(scenario())
