"""A subscriber's snapshots, searches and reports that are not as they should be (S3).

The reader and the search are replaced; no broker is needed.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from edge.client.kafka_options import KafkaOptions
from edge.feed_subscriber import kafka_source
from edge.feed_subscriber.batch import Batch, Search, SearchResult
from edge.feed_subscriber.following import Command, Follow
from edge.feed_subscriber.items import FeedDelivery, FeedItem, Lost
from edge.feed_subscriber.kafka_reader import Report, Started
from edge.feed_subscriber.kafka_source import KafkaSource
from edge.feed_subscriber.limits import FeedLimits
from edge.feed_subscriber.replay import ReadPosition
from edge.feed_subscriber.state import StoredState
from feeds.merge_settings import MergeSettings
from feeds.message import FeedMessage
from schemas.feed_words import SubscriberMode
from tests.unit.edge.feed_subscriber.core_harness import NAME, STREAM, message

PATIENCE_S = 30
BOTH = (0, 1)


class ReaderInMemory:
    """Reads what the test gives it."""

    def __init__(self, *_: Any, post: Callable[[Report], None], **__: Any) -> None:
        self._post, self._episodes, self._offsets = post, dict[int, int](), dict.fromkeys(BOTH, 0)
        self.partitions, self.known = 2, list[Any]()
        self.acknowledged = 0

    def open(self) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def pause(self, _: bool) -> None: ...

    def acknowledge(self) -> None:
        self.acknowledged += 1

    def begin_positions(self, *, at_end: bool) -> dict[int, ReadPosition]:
        return dict.fromkeys(BOTH, ReadPosition(0, 0))

    def command(self, command: Command) -> None:
        assert isinstance(command, Follow)
        self._episodes |= dict.fromkeys(command.partitions, command.episode)
        started = [Started(one, command.episode, ReadPosition(0, 0)) for one in command.partitions]
        self._post(Report(started, [], [], is_read=True))

    def give(self, partition: int, *messages: FeedMessage) -> None:
        self._offsets[partition] += len(messages)
        end = ReadPosition(self._offsets[partition], 0)
        batch = Batch(partition, self._episodes[partition], [list(messages)], end)
        self._post(Report([], [], [batch], is_read=True))


class SearchInMemory:
    """Finds nothing in any log."""

    def __init__(self, *_: Any) -> None: ...

    async def search(self, wanted: Search) -> SearchResult:
        return SearchResult(wanted, [], wanted.ranges, ended=True)

    async def find(self, *_: Any) -> int:
        return 0

    async def close(self) -> None: ...


class Subscriber:
    """A source of the feed, open; its stream begins with number 0."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        snapshot: Any = None,
        search: Any = SearchInMemory,
        mode: SubscriberMode = "warm",
    ) -> None:
        monkeypatch.setattr(kafka_source, "KafkaReader", ReaderInMemory)
        monkeypatch.setattr(kafka_source, "KafkaSearch", search)
        limits = FeedLimits(merge=MergeSettings(reorder_ms=1, deadline_ms=60_000))
        self.errors: list[Exception] = []
        self.items: list[FeedItem] = []
        self.source = KafkaSource(
            *(NAME, ["none:1"], KafkaOptions(), "ws.", mode, {STREAM: 0}, None, limits, snapshot),
            changed=lambda: None,
            fail=self.errors.append,
        )

    async def open(self) -> ReaderInMemory:
        await self.source.open(StoredState())
        reader = self.source._reader
        assert isinstance(reader, ReaderInMemory)
        return reader

    async def until(self, reader: ReaderInMemory, condition: Callable[[], bool]) -> None:
        """While the reader says that all is read, so that time passes."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                reader._post(Report([], [], [], is_read=True))
                while (item := self.source.outputs.next()) is not None:
                    self.items.append(item)
                await asyncio.sleep(0.001)

    @property
    def given(self) -> list[tuple[int, bytes]]:
        return [(one.sequence, one.payload) for one in self.items if isinstance(one, FeedDelivery)]

    @property
    def lost(self) -> list[tuple[int, int]]:
        return [(one.first, one.last) for one in self.items if isinstance(one, Lost)]


@pytest.mark.parametrize(
    "answer",
    [[b"one"], "text", {1: "text"}, {1: None}, {"1": b"one"}, {1: b"one", 2: 7}],
    ids=["list", "str", "text payload", "no payload", "text number", "half"],
)
def test_a_snapshot_that_is_none_counts_as_none(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, answer: Any
) -> None:
    """The stream goes on; the log says what is wrong."""

    async def snapshot(*_: Any) -> Any:
        return answer

    async def scenario() -> Subscriber:
        subscriber = Subscriber(monkeypatch, snapshot)
        reader = await subscriber.open()
        for partition in BOTH:
            reader.give(partition, message(0), message(3))
        await subscriber.until(reader, lambda: (3, b"x") in subscriber.given)
        for partition in BOTH:
            reader.give(partition, message(4))
        await subscriber.until(reader, lambda: (4, b"x") in subscriber.given)
        await subscriber.source.close()
        return subscriber

    with caplog.at_level(logging.WARNING):
        subscriber = asyncio.run(scenario())
    assert subscriber.given == [(0, b"x"), (3, b"x"), (4, b"x")]
    assert subscriber.lost == [(1, 2)]
    assert not subscriber.errors
    assert f"no snapshot of {STREAM} 1 to 2" in caplog.text


def test_a_snapshot_may_be_of_any_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def snapshot(*_: Any) -> Any:
        return {1: bytearray(b"one"), 2: memoryview(b"two"), 9: b"not asked for"}

    async def scenario() -> Subscriber:
        subscriber = Subscriber(monkeypatch, snapshot)
        reader = await subscriber.open()
        for partition in BOTH:
            reader.give(partition, message(0), message(3))
        await subscriber.until(reader, lambda: (3, b"x") in subscriber.given)
        await subscriber.source.close()
        return subscriber

    assert asyncio.run(scenario()).given == [(0, b"x"), (1, b"one"), (2, b"two"), (3, b"x")]


def test_a_search_that_breaks_ends_the_subscriber(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait for the search for ever, and nothing would be searched for any more."""

    class Broken(SearchInMemory):
        async def search(self, wanted: Search) -> SearchResult:
            raise AssertionError("kafka-python is confused")

    async def scenario() -> Subscriber:
        subscriber = Subscriber(monkeypatch, search=Broken, mode="cold")
        reader = await subscriber.open()
        reader.give(0, message(0), message(3))
        await subscriber.until(reader, lambda: bool(subscriber.errors))
        await subscriber.source.close()
        return subscriber

    assert "confused" in str(asyncio.run(scenario()).errors[0])


def test_a_report_that_breaks_the_core_ends_the_subscriber(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader would wait for its acknowledgement for ever."""

    async def scenario() -> Subscriber:
        subscriber = Subscriber(monkeypatch)
        reader = await subscriber.open()
        reader._post(Report([], [], [None], is_read=True))  # type: ignore[list-item]
        async with asyncio.timeout(PATIENCE_S):
            while not subscriber.errors:
                await asyncio.sleep(0.001)
        await subscriber.source.close()
        return subscriber

    assert isinstance(asyncio.run(scenario()).errors[0], AttributeError)
