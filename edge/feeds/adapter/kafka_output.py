"""Writes an adapter's messages to the own half of the partitions of `feed.<name>` (S2)."""

import logging
from collections.abc import Sequence

from edge.feeds.adapter.kafka_writer import KafkaWriter, TopicRecord
from edge.feeds.adapter.resume import Outgoing
from edge.feeds.adapter.settings import KafkaSection
from edge.feeds.errors import TopicUnusable
from feeds import message, passed
from feeds.message import FEEDS, FeedMessage, partition_of, topic_of
from feeds.passed import PassedRecord
from feeds.registry_records import feed_of
from schemas.feed_words import Slot

_log = logging.getLogger("waystation.feed")


class KafkaOutput:
    """Implements :class:`edge.feeds.adapter.outputs.Output`. `offsets`: the next one of each partition."""

    def __init__(self, kafka: KafkaSection, feed: str) -> None:
        self._topic = topic_of(kafka.prefix, feed)
        self._writer = KafkaWriter(kafka, self._topic)
        self._partitions = 0
        self.offsets: dict[int, int] = {}

    async def open(self) -> None:
        """Raises TopicUnusable, ConnectRefused."""
        self._partitions = await self._writer.open()
        if self._partitions % len(FEEDS):
            raise TopicUnusable(
                f"topic {self._topic} has {self._partitions} partitions, and a feed's has an even number: are "
                "[kafka] prefix and [feed] name right, and was the topic made by the platform?"
            )

    async def write(self, slot: Slot, batch: Sequence[Outgoing]) -> None:
        results = await self._writer.write([self._record(slot, one) for one in batch])
        refused: list[Outgoing] = []
        for one, (partition, offset) in zip(batch, results, strict=True):
            if offset >= 0:
                self.offsets[partition] = offset + 1
            else:
                refused.append(one)
        if refused:
            await self._writer.write([self._record(slot, _instead(one)) for one in refused])
            _log.error("Kafka takes no record as large as %d messages of the source: they are lost here", len(refused))

    async def close(self) -> None:
        await self._writer.close()

    def _record(self, slot: Slot, one: Outgoing) -> TopicRecord:
        kind = message if isinstance(one, FeedMessage) else passed
        key, headers, value = kind.encode(one)
        return TopicRecord(partition_of(feed_of(slot), one.stream, self._partitions), key, value, headers)


def _instead(one: Outgoing) -> PassedRecord:
    """What is written if Kafka refuses a message: that its number brings nothing."""
    return PassedRecord(one.stream, one.sequence, one.message_sequence, one.read_us, one.adapter)
