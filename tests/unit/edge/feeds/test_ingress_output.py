"""What an adapter writes to `ingress` for plain MQTT subscribers (S2, S3)."""

import asyncio
from collections.abc import Sequence

from edge.feeds.ingress_output import IngressOutput
from feeds.ingress_copy import IngressCopy, marked_message
from feeds.message import Feed, FeedMessage
from feeds.passed import PassedRecord
from schemas.envelope import INGRESS_HEADERS, Meta
from schemas.identity import partition_of

PARTITIONS = 4


class Topic:
    """A writer that keeps what it is given."""

    def __init__(self) -> None:
        self.records: list[IngressCopy] = []
        self.is_open = False

    async def open(self) -> int:
        self.is_open = True
        return PARTITIONS

    async def write(self, records: Sequence[IngressCopy]) -> list[tuple[int, int]]:
        assert self.is_open
        self.records += records
        return [(one.partition, -1 if one.value == b"large" else 0) for one in records]

    async def close(self) -> None:
        self.is_open = False


def message(sequence: int, payload: bytes = b"x", part: int = 0) -> FeedMessage:
    return FeedMessage("a/b@3", sequence, part, 17, 5, "ships é.1", payload)


def test_each_message_is_one_copy_with_its_stamps() -> None:
    """S2: of the slot's one sender, hence in one partition, in order; never retained; QoS is the subscriber's."""
    topic = Topic()
    output = IngressOutput("ships", topic, IngressCopy, lambda: 99)
    batch = [message(1), PassedRecord("a/b@3", 4, 18, 6, "ships"), message(1, part=2), message(5, b"large")]

    async def write() -> None:
        await output.open()
        await output.write("backup", batch)
        await output.write("active", [message(1)])
        await output.write("active", [PassedRecord("a/b@3", 4, 18, 6, "ships")])
        await output.close()

    asyncio.run(write())
    assert not topic.is_open
    *of_backup, of_active = topic.records
    assert {one.partition for one in of_backup} == {partition_of("$feed/ships/backup", PARTITIONS)}
    assert of_active.partition == partition_of("$feed/ships/active", PARTITIONS)
    for one, written in zip((batch[0], batch[2], batch[3]), of_backup, strict=True):
        assert tuple(name for name, _ in written.headers) == INGRESS_HEADERS
        headers = dict(written.headers)
        meta = Meta.decode(headers["meta"])
        assert (meta.qos, meta.retain, meta.accepted, meta.expires) == (2, False, 99, None)
        assert headers["src"] == b"$feed/ships/backup"
        assert meta.feed is not None
        assert meta.feed.slot == Feed.BACKUP
        assert marked_message(written.key.decode(), written.value, meta.feed) == ("ships", one)
    ids = {dict(one.headers)["id"] for one in topic.records}
    assert len(ids) == len(topic.records)


def test_a_copy_that_is_written_again_has_the_same_id() -> None:
    """S2: after a failure, or a restart of the adapter."""
    topic = Topic()

    async def write() -> None:
        for now_us in (1, 2):
            output = IngressOutput("ships", topic, IngressCopy, lambda now_us=now_us: now_us)
            await output.open()
            await output.write("active", [message(7)])

    asyncio.run(write())
    first, second = topic.records
    assert dict(first.headers)["id"] == dict(second.headers)["id"]
