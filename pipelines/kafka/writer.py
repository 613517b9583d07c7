"""Writing records from the driver: the few records per batch that a streaming query publishes to topics of its
choice."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from pipelines.sources import Kafka
from schemas.envelope import Headers
from schemas.errors import WaystationError
from schemas.topics import NO_GROUP

TIMEOUT_S = 30.0
POLL_S = 0.5


class NotWritten(WaystationError):
    """Kafka did not store a record, or not in time. The batch must be repeated."""


class Out(NamedTuple):
    """A record to be written. Without `value` it ends its key on a compacted topic."""

    topic: str
    partition: int
    key: bytes
    value: bytes | None
    headers: Headers = []  # noqa: RUF012 - never changed


class KafkaWriter:
    """Writes records and waits until Kafka has stored them. For one thread at a time."""

    def __init__(self, kafka: Kafka) -> None:
        self._client = {"bootstrap.servers": kafka.bootstrap, **kafka.client}
        settings = {"enable.idempotence": True, "linger.ms": 5, "message.timeout.ms": int(TIMEOUT_S * 1000)}
        self._producer = Producer(self._client | settings)

    def write(self, records: Iterable[Out]) -> None:
        """Return once all records are stored, those of one partition in order. Raises NotWritten."""
        failed: list[KafkaError] = []

        def report(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(error)

        for record in records:
            headers = list(record.headers)
            where = {"partition": record.partition, "on_delivery": report, "headers": headers}
            while True:
                try:
                    self._producer.produce(record.topic, record.value, record.key, **where)  # type: ignore[arg-type]
                    break
                except BufferError:  # the buffer is full: wait until some are delivered
                    self._producer.poll(POLL_S)
                except KafkaException as error:
                    size, why = len(record.key) + len(record.value or b""), error.args[0].str()
                    refused = f"Kafka's client refused a record of {size} bytes for {record.topic}: {why}"
                    raise NotWritten(refused) from error
            self._producer.poll(0)
        left = self._producer.flush(TIMEOUT_S)
        if failed or left:
            why = failed[0].str() if failed else f"{left} records were not acknowledged within {TIMEOUT_S:g} s"
            raise NotWritten(f"Kafka did not store the records: {why}")

    def ids_since(self, topic: str, partitions: int, since_ms: int, source: str) -> dict[bytes, int]:
        """The messages (:mod:`schemas.envelope`) of `source` on `topic` that :meth:`since` finds: when each was
        appended, ms since the epoch, by its id. Raises NotWritten."""
        found = {}
        for record in self.since(topic, partitions, since_ms):
            headers: dict[str, Any] = dict(record.headers() or [])
            if headers.get("src") == source.encode():
                found[headers.get("id", b"")] = record.timestamp()[1]
        return found

    def since(self, topic: str, partitions: int, since_ms: int) -> Iterator[Message]:
        """The records of `topic` appended at `since_ms` (ms since the epoch) or later, at least up to its current end.
        Raises NotWritten if the broker does not answer for each partition."""
        consumer = Consumer(self._client | {"group.id": NO_GROUP, "enable.auto.commit": False})
        try:
            asked = [TopicPartition(topic, number, since_ms) for number in range(partitions)]
            found = consumer.offsets_for_times(asked, TIMEOUT_S)
            for partition in found:
                if partition.error is not None:
                    raise KafkaException(partition.error)
            starts = [p for p in found if p.offset >= 0]
            ends = {p.partition: consumer.get_watermark_offsets(p, TIMEOUT_S)[1] for p in starts}
            consumer.assign(starts)
            left = {p.partition for p in starts if p.offset < ends[p.partition]}
            while left:
                for record in consumer.consume(500, POLL_S):
                    if record.error() is not None:
                        raise KafkaException(record.error())
                    yield record
                left -= {p.partition for p in consumer.position(starts) if p.offset >= ends[p.partition]}
        except KafkaException as error:
            raise NotWritten(f"{topic} cannot be read: {error.args[0].str()}") from error
        finally:
            consumer.close()
