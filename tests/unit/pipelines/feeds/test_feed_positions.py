"""Where the ledger of feeds goes on, while topics of feeds come and go (S5)."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from pipelines.feeds.positions import Ended, FeedCheckpoint, FeedFiles, FeedTopics, resolve_feeds
from pipelines.kafka import positions
from pipelines.kafka.positions import EARLIEST, Lost, ReadTopic
from pipelines.kafka.starting_offsets import RecordsDeleted
from pipelines.storage.checkpoints import TOPICS, DamagedCheckpoint
from pipelines.streams import StreamId
from schemas.feed_tables import FEED_COPIES

A, B = ReadTopic("feed.a", "id-a", {0: 0, 1: 0}), ReadTopic("feed.b", "id-b", {0: 0, 1: 0})
FIRST_LINES = ["v1", json.dumps({"batchWatermarkMs": 0})]


class Broker:
    """As :class:`pipelines.kafka.broker_topics.KafkaTopics`."""

    def __init__(self, *topics: ReadTopic) -> None:
        self.topics = {topic.name: topic for topic in topics}
        self.asked = 0

    def named(self, prefix: str) -> list[str]:
        return [name for name in self.topics if name.startswith(prefix)]

    def read(self, name: str) -> ReadTopic:
        self.asked += 1
        return self.topics[name]


class Ledger:
    """A checkpoint and a table, both as an earlier run has left them."""

    def __init__(self, tables: Path) -> None:
        self.tables = tables
        self.lost: list[Lost] = []
        self.ended: list[Ended] = []

    @property
    def checkpoint(self) -> FeedCheckpoint:
        return FeedCheckpoint(StreamId("feed_copies"), str(self.tables), FEED_COPIES.name)

    def batch(self, number: int, reached: Mapping[str, Mapping[str, int]], is_done: bool = True) -> None:
        path = Path(self.checkpoint.uri)
        for log in ("offsets", "commits"):
            (path / log).mkdir(parents=True, exist_ok=True)
        (path / "offsets" / str(number)).write_text("\n".join([*FIRST_LINES, json.dumps(reached)]))
        (path / "offsets" / f".{number}.crc").write_text("a checksum")
        if is_done:
            (path / "commits" / str(number)).write_text("")

    def starts(self, *topics: ReadTopic) -> str:
        known = FeedTopics(Broker(*topics), "feed.")  # type: ignore[arg-type]
        files = FeedFiles(f"{self.tables}/feed_copies", FEED_COPIES, known, self.checkpoint)
        return resolve_feeds(known.known, self.checkpoint, files, self.lost.append, self.ended.append)

    def reached(self, number: int) -> dict[str, dict[int, int]]:
        return self.checkpoint.reached(number)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    rows = pa.table({"feed": ["a"]})
    has = [*positions.transactions(A, {0: 7, 1: 3})]
    properties = CommitProperties(app_transactions=has)
    write_deltalake(f"{tmp_path}/feed_copies", rows, mode="append", commit_properties=properties)
    return Ledger(tmp_path)


def test_without_a_checkpoint_each_topic_begins_where_the_table_ends(ledger: Ledger) -> None:
    begins: Any = A._replace(begins={0: 0, 1: 5})
    assert json.loads(ledger.starts(begins, B)) == {"feed.a": {"0": 7, "1": 5}, "feed.b": {"0": 0, "1": 0}}
    assert ledger.lost == [Lost("feed.a", 1, 3, 5)]
    assert ledger.starts(B) == EARLIEST
    assert ledger.starts() == EARLIEST


def test_deleted_and_replaced_topics_are_taken_out_of_the_checkpoint(ledger: Ledger) -> None:
    """Of the last finished batch and of one that was begun; the others go on where they were."""
    ledger.batch(0, {"feed.a": {"0": 1, "1": 1}})
    ledger.checkpoint.record([A, B])
    ledger.batch(1, {"feed.a": {"0": 4, "1": 2}, "feed.b": {"0": 9, "1": 9}})
    ledger.batch(2, {"feed.a": {"0": 7, "1": 3}, "feed.b": {"0": 9, "1": 9}}, is_done=False)
    assert ledger.starts(A, B._replace(id="another")) == EARLIEST
    assert ledger.ended == [Ended("feed.b", True, {0: 9, 1: 9})]
    assert [ledger.reached(n) for n in (1, 2)] == [{"feed.a": {0: 4, 1: 2}}, {"feed.a": {0: 7, 1: 3}}]
    assert not (Path(ledger.checkpoint.uri) / "offsets" / ".2.crc").exists()
    assert (Path(ledger.checkpoint.uri) / "offsets" / "2").read_text().splitlines()[:2] == FIRST_LINES
    assert ledger.starts(B._replace(id="another")) == EARLIEST
    assert ledger.ended[1:] == [Ended("feed.a", False, {0: 4, 1: 2})]
    assert ledger.reached(2) == {}


def test_a_topic_that_is_new_and_has_lost_its_oldest_records_is_read_from_what_is_there(ledger: Ledger) -> None:
    """Spark would refuse it, because it begins a new partition at 0."""
    ledger.batch(0, {"feed.a": {"0": 1, "1": 1}})
    ledger.starts(A, B._replace(begins={0: 5, 1: 0}))
    assert ledger.reached(0) == {"feed.a": {0: 1, 1: 1}, "feed.b": {0: 5, 1: 0}}


@pytest.mark.parametrize("content", ["", '{"feed.a": ', "null", "\0\0"])
def test_a_damaged_record_of_the_topics_is_named(ledger: Ledger, content: str) -> None:
    """A power failure may leave an empty file; nobody knows then whether a topic is still the same."""
    ledger.batch(0, {"feed.a": {"0": 1, "1": 1}})
    (Path(ledger.checkpoint.uri) / TOPICS).write_text(content)
    with pytest.raises(DamagedCheckpoint, match=f"^{TOPICS} in .* is damaged"):
        ledger.starts(A)


def test_records_that_retention_took_are_not_passed_over(ledger: Ledger) -> None:
    ledger.batch(0, {"feed.a": {"0": 1, "1": 1}})
    with pytest.raises(RecordsDeleted, match=r"of topic feed\.a before they were read, from offset 1 of partition 0"):
        ledger.starts(A._replace(begins={0: 5, 1: 0}))


def test_each_commit_records_what_has_moved_the_same_for_each_attempt(ledger: Ledger) -> None:
    ledger.batch(0, {"feed.a": {"0": 9, "1": 3}, "feed.b": {"0": 1, "1": 0}})
    broker = Broker(A)
    known = FeedTopics(broker, "feed.")  # type: ignore[arg-type]
    files = FeedFiles(f"{ledger.tables}/feed_copies", FEED_COPIES, known, ledger.checkpoint)
    broker.topics[B.name] = B
    assert files.partitions(0) == {"feed.a": 2, "feed.b": 2}
    assert json.loads((Path(ledger.checkpoint.uri) / "topics.json").read_text()) == {"feed.a": "id-a", "feed.b": "id-b"}
    for _ in range(2):
        made = {one.app_id: one.version for one in files._positions_after(0)}
        assert made == {"positions": 1, "id-a/0": 9, "id-b/0": 1, "id-b/1": 0}
    assert broker.asked == 2
