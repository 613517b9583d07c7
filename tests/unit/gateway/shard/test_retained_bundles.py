"""Retained messages that came in bundles, and copies of them that come later (M14): a subscriber gets each once, and an
older one does not take the place of a newer one, whoever reads when."""

import asyncio
from pathlib import Path

import pytest

from gateway.memory_bus import MemoryRecord
from gateway.shard import subscribing
from gateway.shard.rules import EVERYTHING
from mqtt.packets import Publish, Subscription
from mqtt.properties import NO_PROPERTIES
from schemas.envelope import BundleMark, Meta, ingress_headers
from schemas.identity import partition_of, shard_of
from tests.unit.gateway.shard.home_harness import LEAD_S, PARTITIONS, SHARDS, HomeHarness, turn
from tests.unit.gateway.shard.test_home_bundles import ORIGINATOR, Nobody
from tests.unit.gateway.shard.test_retained_fences import Reader, compacted
from tests.unit.gateway.shard.virtual_time import run

LIFETIME_S = 300


def id_of(number: int) -> str:
    return f"{number:08x}-0000-8000-8000-000000000000"


def retain(harness: HomeHarness, number: int) -> None:
    """The gateway takes a bundle whose message is to be retained as `r/<number>`."""
    lifetime = {"message_expiry_interval": LIFETIME_S}
    packet = Publish(f"r/{number}", b"%d" % number, 1, retain=True, packet_id=1, properties=lifetime)
    publisher = harness.home.bundle_publisher(ORIGINATOR, Nobody(), EVERYTHING)
    publisher.publish(packet, id_of(number), BundleMark(7, number + 1, 1))


def copy(harness: HomeHarness, number: int) -> None:
    """Another gateway puts a copy of it on `ingress`."""
    expires = int((harness.clock() + LIFETIME_S) * 1000)
    meta = Meta(1, "", expires, int(harness.clock() * 1e6), None, None, BundleMark(7, number + 1, 1))
    place = harness.topics.ingress, partition_of(ORIGINATOR, PARTITIONS)
    headers = ingress_headers(id_of(number), ORIGINATOR, meta, NO_PROPERTIES)
    harness.broker.append(MemoryRecord(place, b"r/%d" % number, b"%d" % number, headers))


@pytest.mark.parametrize("ends", ["", "killed", "stopped"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_copy_comes_long_after_the_retained_message(tmp_path: Path, qos: int, ends: str) -> None:
    """Whatever becomes of the gateway in between; who was not sent the retained message gets the copy."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        retain(harness, 0)
        await turn(LEAD_S + 1)
        client = await harness.client("client", expiry_s=1_000_000)
        await client.subscribe(Subscription("r/+", qos))
        await turn(1)
        assert client.payloads == [b"0"]
        other = await harness.client("other", expiry_s=1_000_000)
        await other.subscribe(Subscription("r/+", 1, retain_handling=2))
        await asyncio.sleep(100)  # the session expects live copies of retained messages for 30 s
        if ends == "killed":
            await harness.restart()
        elif ends == "stopped":
            await harness.stop()
            await harness.start()
        if ends:
            await client.connect()
            await other.connect()
        copy(harness, 0)
        await turn(LEAD_S + 5)
        assert client.payloads == [b"0"]
        assert other.payloads == [b"0"]

    run(scenario())


def test_what_a_session_remembers_of_bundles_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound it forgets the first one; and all of them once no copies come any more."""
    monkeypatch.setattr(subscribing, "RETAINED_BUNDLES", 3)

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        for number in range(5):
            retain(harness, number)
        await turn(LEAD_S + 1)
        client = await harness.client("client", expiry_s=1_000_000)
        await client.subscribe(Subscription("r/+", 1))
        await turn(1)
        session = harness.home.session("client")
        assert session is not None
        sent = [id_of(int(payload)) for payload in client.payloads]
        assert list(session.retained_bundles) == sent[-3:]
        await asyncio.sleep(LIFETIME_S + 60)
        await client.subscribe(Subscription("other", 1))
        assert not session.retained_bundles

    run(scenario())


def retained_record(payload: bytes, bundle: BundleMark | None) -> MemoryRecord:
    headers = ingress_headers("id", ORIGINATOR, Meta(1, "r", None, 1, None, bundle=bundle), NO_PROPERTIES)
    return MemoryRecord(("retained", 0), b"x", payload or None, headers)


class Log:
    """The topic `retained`, which the home of the originator's shard mends as well."""

    def __init__(self) -> None:
        self.records: list[MemoryRecord] = []
        self.owner = Reader([], shard_of(ORIGINATOR, SHARDS), epoch=1)

    def append(self, record: MemoryRecord) -> None:
        record.stored_at(len(self.records), 1)
        self.records.append(record)
        self.owner.retained.fold(record)

    def settle(self) -> None:
        """The home writes what it has to mend; what compaction has left then is all that later gateways read."""
        for _ in range(3):
            self.owner.mend()
            while self.owner.writes:
                key, value, headers = self.owner.writes.popleft()
                self.append(MemoryRecord(("retained", 0), key, value, headers))
        assert not self.owner.unmended


@pytest.mark.parametrize("newest", [b"new", b""])
@pytest.mark.parametrize("meanwhile", [[], [b"other"]])
def test_a_late_copy_is_overwritten_for_gateways_that_start_later(newest: bytes, meanwhile: list[bytes]) -> None:
    """They read what compaction leaves: it must be what the others have, also when somebody published meanwhile."""
    log = Log()
    log.append(retained_record(newest, BundleMark(7, 5, 1)))
    for payload in meanwhile:
        log.append(retained_record(payload, None))
    expected = log.owner.values
    log.append(retained_record(b"old", BundleMark(7, 4, 1)))
    assert log.owner.values == expected
    log.settle()
    assert log.owner.values == expected
    for records in (log.records, compacted(log.records)):
        later = Reader(records)
        assert later.values == expected
        assert not later.unmended


def test_a_late_copy_does_not_undo_what_is_published_behind_it() -> None:
    """The home has begun to write again what the copy has overwritten."""
    log = Log()
    log.append(retained_record(b"new", BundleMark(7, 5, 1)))
    log.append(retained_record(b"old", BundleMark(7, 4, 1)))
    log.owner.mend()
    log.append(retained_record(b"newest", BundleMark(7, 6, 1)))
    log.settle()
    assert log.owner.values == {"x": b"newest"} == Reader(compacted(log.records)).values


def test_a_gateway_that_starts_later_knows_a_copy_as_late() -> None:
    """Also if what it has read of the newer bundle is what was written again."""
    log = Log()
    log.append(retained_record(b"new", BundleMark(7, 5, 1)))
    log.append(retained_record(b"old", BundleMark(7, 4, 1)))
    log.settle()
    later = Reader(compacted(log.records))
    assert later.retained.has_newer("x", ORIGINATOR, BundleMark(7, 4, 1))
    late = retained_record(b"older", BundleMark(7, 3, 1))
    late.stored_at(len(log.records), 1)
    later.retained.fold(late)
    assert later.values == {"x": b"new"}


def test_a_bundle_that_kafka_refuses_leaves_those_that_are_on_their_way(tmp_path: Path) -> None:
    """They are read back behind the refusal."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        retained = harness.node.retained
        five, six = (retained.sent("r/1", 1, ORIGINATOR, BundleMark(7, sequence, 1)) for sequence in (5, 6))
        retained.refused(six)
        newer = [retained.has_newer("r/1", ORIGINATOR, BundleMark(7, sequence, 1)) for sequence in (4, 5, 6)]
        assert newer == [True, True, False]
        retained.refused(five)
        assert not retained.has_newer("r/1", ORIGINATOR, BundleMark(7, 4, 1))

    run(scenario())


@pytest.mark.parametrize("is_refused", [False, True])
def test_of_bundles_taken_at_once_the_newest_stays_retained(tmp_path: Path, is_refused: bool) -> None:
    """In whatever order they come, also for the next process, which reads what compaction leaves. If Kafka refuses the
    newest, the next one is taken."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        publisher = harness.home.bundle_publisher(ORIGINATOR, Nobody(), EVERYTHING)

        def take(sequence: int) -> None:
            packet = Publish("r/1", b"%d" % sequence, 1, retain=True, packet_id=1)
            publisher.publish(packet, id_of(sequence), BundleMark(7, sequence, 1))

        if is_refused:
            number = harness.node.retained.sent("r/1", 1, ORIGINATOR, BundleMark(7, 5, 1))
            harness.node.retained.refused(number)
        else:
            take(5)
        take(4)
        await turn()
        expected = b"4" if is_refused else b"5"
        for is_first in (True, False):
            kept = harness.node.retained.find("r/1")
            assert kept is not None
            assert kept.payload == expected
            if is_first:
                harness.broker.compact(harness.topics.retained, 0)
                await harness.restart()

    run(scenario())
