"""Retained messages that an earlier owner sends too late: no newer one is lost, whoever reads when (G6, Q7)."""

from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.memory_bus import MemoryRecord
from gateway.shard.retained import RetainedMessages
from gateway.shard.retained_fences import MEND_HEADER, Written, fence_key
from gateway.shard.retained_mender import RetainedMender
from schemas.cluster_topics import VERSION, Fences, encode_fences
from schemas.envelope import Headers, Meta, ingress_headers
from schemas.identity import shard_of
from schemas.topics import DAY_MS
from tests.unit.gateway.shard.clustered import Clustered
from tests.unit.gateway.shard.home_client import Client
from tests.unit.gateway.shard.home_harness import SHARDS, turn
from tests.unit.gateway.shard.virtual_time import run

FOREVER = 1 << 60
LIFETIME_MS = 1_000

SENDERS = [next(name for name in "abcdefgh" if shard_of(name, SHARDS) == shard) for shard in range(SHARDS)]


async def retained_at(harness: Clustered, name: str) -> list[bytes]:
    client = await harness.client(name)
    await client.subscribe("r")
    await turn()
    return client.payloads


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("late", [b"old", b""])
def test_a_late_value_does_not_take_the_place_of_a_newer_one(tmp_path: Path, qos: int, late: bytes) -> None:
    """Also once compaction has removed what it stands behind, and for a gateway that starts then."""

    async def scenario() -> None:
        harness = await Clustered(tmp_path).start()
        sender = await harness.client(harness.names(0)[0])
        zombie = harness.cut_off(0)
        sender.publish("r", late, qos, retain=True)
        await turn()
        harness.stand_still(zombie)
        sender._outgoing.clear()  # it does not send that again
        await harness.take_over(0, harness.gateways[2])
        await harness.reconnect()
        sender.publish("r", b"new", 1, retain=True)
        await turn()
        assert b"new" in sender.acknowledged
        harness.wake(zombie)
        await turn(5)
        assert await retained_at(harness, harness.names(1)[0]) == [b"new"]
        harness.broker.compact(harness.topics.retained, 0)
        for gateway in harness.gateways:
            if gateway.is_up:
                gateway.kill()
        fresh = await harness.empty()
        for number in range(SHARDS):
            await harness.take_over(number, fresh)
        assert await retained_at(harness, harness.names(1)[1]) == [b"new"]
        assert not harness.fatal

    run(scenario())


@pytest.mark.parametrize("qos", [1, 2])
def test_it_is_acknowledged_once_it_counts(tmp_path: Path, qos: int) -> None:
    """Q1: what is void was not acknowledged, so the client sends it again."""

    async def scenario() -> None:
        harness = await Clustered(tmp_path).start()
        sender = await harness.client(harness.names(0)[0])
        owner = harness.gateways[0]
        owner.bus.is_consuming = False
        sender.publish("r", b"1", qos, retain=True)
        await turn(1)
        assert sender.acknowledged == set()
        owner.bus.is_consuming = True
        owner.bus.release()
        await turn()
        assert sender.acknowledged == {b"1"}
        await harness.take_over(0, harness.gateways[2])  # while the earlier owner goes on
        sender.publish("r", b"2", qos, retain=True)
        await turn(5)
        assert sender.acknowledged == {b"1"}
        harness.stand_still(owner)
        await Client.connect(sender)
        await turn()
        assert sender.acknowledged == {b"1", b"2"}
        assert await retained_at(harness, harness.names(1)[0]) == [b"2"]

    run(scenario())


class Reader:
    """A gateway, as far as it folds the topic and mends for one shard; what it writes is stored later."""

    def __init__(self, log: Sequence[MemoryRecord], shard: int = 0, epoch: int = 0, now_ms: int = 0) -> None:
        self.retained = RetainedMessages(100, 10_000, SHARDS)
        self.retained.share()
        self.epoch, self.now_ms = epoch, now_ms
        self.writes: deque[tuple[bytes, bytes | None, Headers | None]] = deque()
        self.bus, self.topics, self.clock = self, self, lambda: self.now_ms / 1000
        self._mender = RetainedMender(self, shard)  # type: ignore[arg-type]
        for record in log:
            self.retained.fold(record)

    def produce(self, topic: Any, partition: int, key: bytes, value: bytes | None, headers: Any, done: Any) -> None:
        self.writes.append((key, value, headers))

    def mend(self) -> None:
        self._mender.run(self.epoch)

    @property
    def values(self) -> dict[str, bytes]:
        """Of those that have not expired."""
        found = (self.retained.find(topic) for topic in "xy")
        return {m.topic: m.payload for m in found if m is not None and (m.expires or FOREVER) > self.now_ms}

    @property
    def unmended(self) -> bool:
        assert self.retained.fences is not None
        return any(self.retained.fences.unmended(shard) for shard in range(SHARDS))


KINDS = (
    *("publish", "publish briefly", "malformed", "late", "late", "take over"),
    *("mend", "store", "store", "wait", "days", "compact"),
)

steps = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.integers(0, SHARDS - 1),
        st.sampled_from("xy"),
        st.booleans(),
    ),
    max_size=40,
)


@settings(deadline=None)
@given(steps)
def test_all_readers_agree_whatever_is_compacted(log: list[tuple[str, int, str, bool]]) -> None:
    """What counts is the last message that no fence has made void, until it expires; a malformed one ends what was
    retained. What was compacted is forgotten only once all is mended: `min.compaction.lag.ms` is the time for that."""
    records: list[MemoryRecord] = []
    epochs, expected = Counter[int](), dict[str, tuple[bytes, int]]()
    owners = [Reader([], shard) for shard in range(SHARDS)]
    offset, now_ms = 0, 1

    def append(key: bytes, value: bytes | None, headers: Headers | None) -> None:
        nonlocal offset
        record = MemoryRecord(("retained", 0), key, value, headers)
        record.stored_at(offset, now_ms)
        offset += 1
        records.append(record)
        for owner in owners:
            owner.retained.fold(record)

    def publish(shard: int, topic: str, epoch: int, value: bytes, expires: int | None = None) -> None:
        meta = Meta(1, "r", expires, 1, None, epoch=epoch)
        append(topic.encode(), value or None, ingress_headers(f"{offset}", SENDERS[shard], meta, b"\0"))

    def store(shard: int) -> None:
        owner = owners[shard]
        while owner.writes:
            append(*owner.writes.popleft())

    def take_over(shard: int) -> None:
        epochs[shard] += 1
        zombie, owners[shard] = owners[shard], Reader(records, shard, epochs[shard], now_ms)
        fences = Fences(VERSION, "g", 1, [(shard, epochs[shard])])
        append(fence_key(shard, epochs[shard]).encode(), encode_fences(fences), None)
        owners[shard].writes.extendleft(zombie.writes)  # its last writes come late

    for shard in range(SHARDS):
        take_over(shard)
    for number, (kind, shard, topic, is_last) in enumerate(log):
        match kind:
            case "publish":
                value = b"" if is_last else b"%d" % number
                publish(shard, topic, epochs[shard], value)
                expected[topic] = value, FOREVER
            case "publish briefly":
                publish(shard, topic, epochs[shard], b"%d" % number, now_ms + LIFETIME_MS)
                expected[topic] = b"%d" % number, now_ms + LIFETIME_MS
            case "malformed":
                meta = Meta(1, "r", None, 1, None, epoch=epochs[shard])
                bad = ingress_headers(f"{offset}", SENDERS[shard], meta, b"\x05\x00")
                append(topic.encode(), b"malformed", None if is_last else bad)
                expected[topic] = b"", FOREVER
            case "wait":
                now_ms += 2 * LIFETIME_MS
            case "late" if epochs[shard] > 1:
                publish(shard, topic, epochs[shard] - 1, b"" if is_last else b"late")
            case "take over":
                take_over(shard)
            case "mend":
                owners[shard].mend()
            case "store":
                store(shard)
            case "days":
                settle(owners, store)
                now_ms += 3 * DAY_MS
                records = compacted(records)
            case "compact":
                settle(owners, store)
                records = compacted(records)
        values = {topic: value for topic, (value, until) in expected.items() if value and until > now_ms}
        for reader in [*owners, Reader(records)]:
            reader.now_ms = now_ms
            assert reader.values == values
    settle(owners, store)
    assert len(Reader(records).retained) == len(values if log else ())


def settle(owners: list[Reader], store: Any) -> None:
    """Everything is mended, before compaction may remove anything."""
    for _ in range(10):
        for shard, owner in enumerate(owners):
            store(shard)
            owner.mend()
            store(shard)
    assert not any(owner.unmended for owner in owners)


def compacted(records: list[MemoryRecord]) -> list[MemoryRecord]:
    last = {record.key(): record for record in records}
    return [record for record in records if last[record.key()] is record]


def test_old_fences_are_removed_after_days() -> None:
    """So that the topic does not grow with each change of owner."""
    records = []
    for epoch in (1, 2, 3):
        value = encode_fences(Fences(VERSION, "g", 1, [(0, epoch)]))
        records.append(MemoryRecord(("retained", 0), fence_key(0, epoch).encode(), value, None))
        records[-1].stored_at(epoch, epoch)
    owner = Reader(records, 0, 3, 3)
    owner.mend()
    assert not owner.writes
    owner.now_ms = 2 * DAY_MS + 10
    owner.mend()
    assert [(key, value) for key, value, _ in owner.writes] == [
        (fence_key(0, epoch).encode(), None) for epoch in (1, 2)
    ]


@pytest.mark.parametrize(
    "bad", [None, [], [("id", b"1")], ingress_headers("i", "s", Meta(1, "r", None, 1, None), b"!")]
)
def test_a_malformed_record_ends_what_was_retained(bad: Headers | None) -> None:
    """As for who reads the topic after it was compacted. What mends an earlier record does not count behind it."""
    good, mend = (
        ingress_headers("id", SENDERS[0], Meta(1, "r", None, 1, None, epoch=1), b"\0"),
        Written(0, 1, 0).encode(),
    )
    records = [
        MemoryRecord(("retained", 0), b"x", value, headers)
        for value, headers in ((b"old", good), (b"bad", bad), (b"mended", [*good, (MEND_HEADER, mend)]))
    ]
    for offset, record in enumerate(records):
        record.stored_at(offset, 1)
    assert Reader(records[:1]).values == {"x": b"old"}
    assert Reader(records[:2]).values == Reader(records[1:2]).values == {}
    assert Reader(records).values == Reader(records[1:]).values == {}


@pytest.mark.parametrize("key", [b"x\xff", None])
def test_a_record_whose_key_is_no_topic_is_left_out(key: bytes | None) -> None:
    """Compaction does not take it for a later record of a topic that it resembles, so no reader may."""
    meta = Meta(1, "r", None, 1, None)
    records = [
        MemoryRecord(("retained", 0), key_of_it, value, ingress_headers("id", "sender", meta, b"\0"))
        for key_of_it, value in (("x\ufffd".encode(), b"valid"), (key, b"malformed"))
    ]
    for offset, record in enumerate(records):
        record.stored_at(offset, 1)
    reader = Reader(records)
    kept = reader.retained.find("x\ufffd")
    assert kept is not None
    assert kept.payload == b"valid"
    assert (len(reader.retained), reader.retained.folded_to) == (1, 2)
