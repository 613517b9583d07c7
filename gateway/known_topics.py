"""Topics that a consumer knows already.

A consumer that has not met a topic looks for its leaders when the first partition is assigned, and fetches half a
second later. Asking for the end of a partition beforehand takes some milliseconds, and then it knows them.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

_ANSWER_S: Final = 2.0


class KnownTopics:
    """Of one consumer; the thread that uses it calls this, too."""

    def __init__(self) -> None:
        self._topics: set[str] = set()

    def meet(self, consumer: Consumer, partitions: Iterable[tuple[str, int]]) -> None:
        """Before these are assigned. If Kafka does not answer, the consumer looks by itself."""
        for topic, partition in partitions:
            if topic not in self._topics:
                with suppress(KafkaException):
                    consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_ANSWER_S)
                    self._topics.add(topic)
