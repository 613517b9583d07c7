"""Two adapters of the feed `flight` beside a home in memory, and what its shards must have merged."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from feeds.ingress_copy import ingress_copy
from feeds.merge_settings import MergeSettings
from feeds.message import Feed, FeedMessage, stream_id
from gateway.memory_bus import MemoryRecord
from gateway.record import Record
from gateway.shard.feed_records import DecisionRecord, FromHome, read
from gateway.shard.merged_feeds import Merged, MergedFeeds
from schemas.feed_topics import FEEDS_PREFIX
from tests.unit.gateway.shard.home_harness import PARTITIONS, HomeHarness

FEED = "flight"
STREAM = stream_id("radar", 0)
A, B = Feed.ACTIVE, Feed.BACKUP


def message(sequence: int, *, slot: Feed = A, stream: str = STREAM, part: int = 0) -> FeedMessage:
    """The payload says who has read it."""
    payload = f"{stream} {sequence}.{part} {slot.name}".encode()
    return FeedMessage(stream, sequence, part, sequence, 1_000 + sequence, slot.name.lower(), payload)


def number_of(payload: bytes) -> str:
    """Stream, sequence and part, whoever has read it."""
    return payload.decode().rpartition(" ")[0]


class FeedHarness(HomeHarness):
    """A home with the feed."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        super().__init__(directory)
        self.environment = {"WAYSTATION_FEEDS__NAMES": json.dumps([FEED])}
        self.environment |= {
            f"WAYSTATION_GATEWAY__FEEDS__{key.upper()}": json.dumps(value) for key, value in settings.items()
        }
        self.written: set[str] = set()

    def copy(self, slot: Feed, sequence: int, *, stream: str = STREAM, part: int = 0) -> None:
        """An adapter writes a copy."""
        read_by = message(sequence, slot=slot, stream=stream, part=part)
        self.written.add(number_of(read_by.payload))
        found = ingress_copy(FEED, slot, read_by, int(self.clock() * 1e6), PARTITIONS)
        place = self.topics.ingress, found.partition
        self.broker.append(MemoryRecord(place, found.key, found.value, found.headers))

    def merged(self, shard: int) -> list[tuple[bytes, bool]]:
        """What a shard must have let go, in order: payload, and whether it is late. Computed from its `egress`
        alone."""
        of = self.settings().gateway.feeds
        settings = MergeSettings(
            reorder_ms=of.reorder_ms,
            deadline_ms=of.deadline_ms,
            recovers=False,
            delivers_late=of.delivers_late,
            held_messages=of.held_messages,
            compared=1,
        )
        let_go = fold(MergedFeeds([FEED], settings), self.broker.partitions[self.topics.egress, shard])
        return [(one.copy.message.payload, one.release.is_late) for one in let_go if one.release is not None]

    @property
    def held(self) -> int:
        """Copies that wait behind gaps."""
        return sum(shard.feeds.held for shard in self.home.states)


def fold(feeds: MergedFeeds, records: Iterable[Record]) -> list[Merged]:
    """Applies what is on `egress` about feeds, as a home does that reads it once. No timer is needed."""
    let_go: list[Merged] = []
    for record in records:
        found = read(record) if (record.key() or b"").startswith(FEEDS_PREFIX) else None
        if isinstance(found, FromHome) and not feeds.counts(found.epoch):
            continue
        one = found.record if isinstance(found, FromHome) else found
        if isinstance(one, DecisionRecord):
            let_go += feeds.decide(one, record.offset(), 0.0)
        elif one is not None:
            i = one.instruction
            if i is None or feeds.copies.accept(i.scope, i.partition, i.offset) == "first":
                let_go += feeds.take(one, 0.0)
    return let_go
