"""What is read of a feed's topic, without a broker."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from jobs.errors import FeedCommandError
from jobs.feeds import feed_log
from jobs.feeds.feed_log import FeedLog


class LeaderlessConsumer:
    """The partition has records, but no leader when it is asked for a time."""

    def __init__(self, _settings: dict[str, Any]) -> None: ...

    def get_watermark_offsets(self, _: TopicPartition, **_waits: float) -> tuple[int, int]:
        return 0, 100

    def offsets_for_times(self, asked: list[TopicPartition], **_waits: float) -> list[Any]:
        error = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
        return [SimpleNamespace(partition=one.partition, offset=-1001, error=error) for one in asked]

    def close(self) -> None: ...


def test_a_partition_that_cannot_be_asked_is_not_taken_for_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """S3: otherwise what it has would be left out without a word."""
    monkeypatch.setattr(feed_log, "Consumer", LeaderlessConsumer)
    with pytest.raises(FeedCommandError, match="cannot read t"):
        list(FeedLog("127.0.0.1:1", {}, "t", 2).part(0, 0))
