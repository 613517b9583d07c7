"""The merger of redundant feeds: decoded copies a CPU second, in one process, without I/O."""

import time
from collections.abc import Sequence
from statistics import median

from bench.figures import Figures
from feeds.merge import Merger
from feeds.message import Feed, FeedMessage, decode, encode, stream_id

STREAMS = 16
BATCH = 200
"""Copies that one poll of a consumer brings."""
PAYLOAD = bytes(256)
ROUNDS = 5
WARM = 20_000


class FeedsBench:
    """`count` messages of some source streams, each as two copies; the backup's come a batch later."""

    def __init__(self, figures: Figures, count: int) -> None:
        self._figures = figures
        self._copies = {feed: copies(feed, count) for feed in Feed}

    def run(self) -> None:
        """Records the medians of some rounds: `feed_merge_per_s` of copies in order, `feed_merge_gaps_per_s` if 1 % of
        the messages are missing on each feed, and `feed_decode_per_s` of records."""
        thinned = {feed: without(found, 100, 37 * feed) for feed, found in self._copies.items()}
        records = [encode(message) for message in self._copies[Feed.ACTIVE][:WARM]]
        merge_per_s(self._copies, WARM)
        self._note("feed_merge_per_s", [merge_per_s(self._copies) for _ in range(ROUNDS)])
        self._note("feed_merge_gaps_per_s", [merge_per_s(thinned) for _ in range(ROUNDS)])
        self._note("feed_decode_per_s", [decode_per_s(records) for _ in range(ROUNDS)])

    def _note(self, name: str, found: list[float]) -> None:
        self._figures.add(name, round(median(found)))


def copies(feed: Feed, count: int) -> list[FeedMessage]:
    """In turns of the source streams."""
    streams = [stream_id(f"source-{number}", 0) for number in range(STREAMS)]
    return [
        FeedMessage(streams[number % STREAMS], number // STREAMS, 0, number, 0, feed.name, PAYLOAD)
        for number in range(count)
    ]


def without(messages: Sequence[FeedMessage], every: int, first: int) -> list[FeedMessage]:
    """One of `every` is missing."""
    return [message for number, message in enumerate(messages) if number % every != first]


def in_batches(messages: list[FeedMessage]) -> list[list[FeedMessage]]:
    """As polls bring them."""
    return [messages[at : at + BATCH] for at in range(0, len(messages), BATCH)]


def merge_per_s(found: dict[Feed, list[FeedMessage]], most: int | None = None) -> float:
    """Copies that a new merger takes in a second of processor time."""
    active, backup = (in_batches(found[feed][:most]) for feed in Feed)
    merger, events, now_ms = Merger(), 0, 0.0
    began = time.process_time()
    previous: list[FeedMessage] = []
    for number, batch in enumerate(active):
        events += len(merger.take(Feed.ACTIVE, batch, now_ms))
        events += len(merger.take(Feed.BACKUP, previous, now_ms))
        previous, now_ms = backup[number] if number < len(backup) else [], now_ms + 1
        for decision in merger.proposals(now_ms):
            events += len(merger.apply(decision, now_ms))
    seconds = time.process_time() - began
    if not events:
        raise RuntimeError("nothing was merged")
    return sum(len(batch) for batch in (*active, *backup)) / seconds


def decode_per_s(records: Sequence[tuple[bytes, list[tuple[str, bytes]], bytes]]) -> float:
    """Records that are decoded in a second of processor time."""
    began = time.process_time()
    for key, headers, value in records:
        decode(key, headers, value)
    return len(records) / (time.process_time() - began)
