"""A subscriber whose reading ends with an error while it is being opened (S3): the application is told at once, and
which."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from edge.feed_subscriber import kafka_source
from edge.feed_subscriber.errors import FeedUnavailable
from edge.feed_subscriber.following import Command
from edge.feed_subscriber.subscriber import FeedSubscriber
from tests.unit.edge.feed_subscriber.test_kafka_source import PATIENCE_S, ReaderInMemory, SearchInMemory

REFUSED = FeedUnavailable("the topic may not be read")


class RefusedReader(ReaderInMemory):
    """Kafka lets it see the partitions, and refuses the records."""

    def __init__(self, *arguments: Any, fail: Callable[[Exception], None], **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.fail = fail

    def command(self, command: Command) -> None:
        self.fail(REFUSED)


class RefusedOnceStarted(RefusedReader):
    """Before the subscriber is open, and after its partitions have been found."""

    def command(self, command: Command) -> None:
        ReaderInMemory.command(self, command)
        self.fail(REFUSED)


@pytest.mark.parametrize("reader", [RefusedReader, RefusedOnceStarted])
def test_the_application_gets_the_error(monkeypatch: pytest.MonkeyPatch, reader: type[RefusedReader]) -> None:
    """Not one that says that it took too long, and not nothing at all."""
    monkeypatch.setattr(kafka_source, "KafkaReader", reader)
    monkeypatch.setattr(kafka_source, "KafkaSearch", SearchInMemory)

    async def scenario() -> None:
        async with asyncio.timeout(PATIENCE_S / 2):
            async with FeedSubscriber("radar", kafka="none:1") as feed:
                await anext(feed)

    with pytest.raises(FeedUnavailable, match="may not be read"):
        asyncio.run(scenario())
