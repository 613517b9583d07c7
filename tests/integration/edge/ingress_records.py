"""What stands on `ingress` of a real broker."""

from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition

from schemas.envelope import Headers

PARTITIONS = 2
"""Of `ingress`, where tests create the topics."""
PATIENCE_S = 60.0


class Stored(NamedTuple):
    partition: int
    key: str
    value: bytes
    headers: Headers

    @property
    def message_id(self) -> str:
        return self.headers[0][1].decode()


def records(bootstrap: str, topic: str) -> list[Stored]:
    """All records, those of a partition in order."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    found: list[Stored] = []
    try:
        for partition in range(PARTITIONS):
            position, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=PATIENCE_S)
            consumer.assign([TopicPartition(topic, partition, position)])
            while position < end:
                record = consumer.poll(PATIENCE_S)
                assert record is not None
                assert record.error() is None
                key, headers = record.key() or b"", record.headers() or []
                found.append(Stored(partition, key.decode(), record.value() or b"", headers))  # type: ignore[arg-type]
                position = record.offset() + 1
    finally:
        consumer.close()
    return found
