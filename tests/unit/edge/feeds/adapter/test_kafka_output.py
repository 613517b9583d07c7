"""What an adapter writes to the topic of its feed (S2)."""

import asyncio

import pytest

from edge.feeds.adapter import kafka_output
from edge.feeds.adapter.kafka_output import KafkaOutput
from edge.feeds.adapter.settings import KafkaSection
from edge.feeds.errors import TopicUnusable


class Writer:
    """Of a topic with `partitions`, on no broker."""

    partitions = 0

    def __init__(self, _: KafkaSection, topic: str) -> None:
        assert topic == "ws.feed.ships"

    async def open(self) -> int:
        return self.partitions


@pytest.mark.parametrize(("partitions", "is_of_a_feed"), [(1, False), (2, True), (3, False), (8, True)])
def test_a_topic_that_has_no_halves_is_refused(
    monkeypatch: pytest.MonkeyPatch, partitions: int, is_of_a_feed: bool
) -> None:
    """With what to do, before anything is read of the source."""
    monkeypatch.setattr(Writer, "partitions", partitions)
    monkeypatch.setattr(kafka_output, "KafkaWriter", Writer)
    output = KafkaOutput(KafkaSection(), "ships")
    if is_of_a_feed:
        asyncio.run(output.open())
        return
    with pytest.raises(TopicUnusable, match=rf"ws.feed.ships has {partitions} partitions.*\[kafka\] prefix"):
        asyncio.run(output.open())
