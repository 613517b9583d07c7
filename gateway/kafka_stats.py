"""librdkafka's statistics: where partitions end, how many brokers are up, how long records take.

They arrive as JSON every STATISTICS_MS, the producer's on the loop, the consumer's on its thread. Each replaces the
whole value, so that readers on other threads never see half of one. Unreadable statistics are left out: a gateway does
not stop because of them.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import structlog
from prometheus_client import Counter

from gateway import durations

STATISTICS_MS = 5_000
_ONE_IN = 64


class _Partition(msgspec.Struct):
    hi_offset: int = -1
    next_offset: int = -1
    fetchq_cnt: int = 0


class _Topic(msgspec.Struct):
    partitions: dict[int, _Partition] = {}


class _Broker(msgspec.Struct):
    nodeid: int = -1
    state: str = ""


class _Statistics(msgspec.Struct):
    """The few fields that are used (librdkafka, STATISTICS.md)."""

    brokers: dict[str, _Broker] = {}
    topics: dict[str, _Topic] = {}
    msg_size: int = 0


_decoder = msgspec.json.Decoder(_Statistics, strict=False)

log = structlog.get_logger(__name__)


class KafkaStats:
    """`ends`: the offset after the last record, by topic and partition, as of the consumer's last statistics.
    `drained_to`: the offset up to which all fetched records are consumed, for partitions with none waiting.
    `waiting_bytes`: bytes queued in the producer. All are empty before the first statistics."""

    def __init__(self) -> None:
        self.ends: dict[tuple[str, int], int] = {}
        self.drained_to: dict[tuple[str, int], int] = {}
        self._up_of_producer = self._up_of_consumer = 0
        self.waiting_bytes = 0
        self.produce_seconds = durations.kafka_produce()
        self.errors = Counter(
            "waystation_kafka_errors",
            "Errors reported by the Kafka client, by librdkafka's name",
            ["code"],
            registry=None,
        )
        for frequent in ("_ALL_BROKERS_DOWN", "_TRANSPORT"):  # start at 0, so that their first increase is seen
            self.errors.labels(frequent)
        self.until_sample = 1

    @property
    def brokers_up(self) -> int:
        """Brokers to which the producer or the consumer has a connection; an idle broker may have none."""
        return max(self._up_of_producer, self._up_of_consumer)

    def take_producer(self, statistics: str) -> None:
        """`stats_cb` of the producer."""
        decoded = _decode(statistics)
        self._up_of_producer, self.waiting_bytes = _brokers_up(decoded), decoded.msg_size

    def take_consumer(self, statistics: str) -> None:
        """`stats_cb` of the consumer."""
        decoded = _decode(statistics)
        self._up_of_consumer = _brokers_up(decoded)
        found = {
            (topic, number): partition
            for topic, of_topic in decoded.topics.items()
            for number, partition in of_topic.partitions.items()
            if number >= 0
        }
        self.ends = {topic_partition: p.hi_offset for topic_partition, p in found.items() if p.hi_offset >= 0}
        self.drained_to = {topic_partition: p.next_offset for topic_partition, p in found.items() if not p.fetchq_cnt}

    def sampled(self, on_done: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        """`on_done` for a record whose latency is measured; the next sample follows some records later."""
        self.until_sample = _ONE_IN

        def done(error: Any, record: Any) -> None:
            if error is None and (seconds := record.latency()) is not None:
                self.produce_seconds.observe(seconds)
            on_done(error, record)

        return done


def _decode(statistics: str) -> _Statistics:
    try:
        return _decoder.decode(statistics)
    except msgspec.MsgspecError as error:
        log.warning("cannot read the statistics of the Kafka client", reason=str(error))
        return _Statistics()


def _brokers_up(statistics: _Statistics) -> int:
    return sum(broker.nodeid >= 0 and broker.state == "UP" for broker in statistics.brokers.values())
