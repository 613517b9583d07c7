"""What a reader of Kafka hands over, and what it is asked for."""

from typing import NamedTuple

from edge.feed_subscriber.replay import ReadPosition
from feeds.message import FeedMessage
from feeds.passed import PassedRecord

Part = list[FeedMessage] | PassedRecord


class Batch(NamedTuple):
    """Records of one partition, in their order. `episode` is that of the :class:`..following.Follow` by which it is
    read; `end`: where the partition is read on; `malformed`: how many records were no feed messages."""

    partition: int
    episode: int
    parts: list[Part]
    end: ReadPosition
    malformed: int = 0


class Search(NamedTuple):
    """Read `partition` for ranges of source streams (stream, first, last), by way of records that were appended at
    `append_ms` or later."""

    partition: int
    ranges: list[tuple[str, int, int]]
    append_ms: int


class SearchResult(NamedTuple):
    """`copies` of the ranges, in order. `reached`: ranges that the log has gone beyond. `ended`: whether the log was
    read to its end."""

    search: Search
    copies: list[FeedMessage]
    reached: list[tuple[str, int, int]]
    ended: bool
