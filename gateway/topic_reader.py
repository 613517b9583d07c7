"""Reads partitions up to their present end, with a consumer of its own that ends then."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from gateway.errors import BusError
from gateway.record import Record
from schemas.topics import NO_GROUP


def read_to_end(
    settings: Mapping[str, Any], topic: str, start: Mapping[int, int], on_record: Callable[[Record], None]
) -> dict[int, int]:
    """Passes every record from `start` (offset by partition) to the current end; returns the end by partition. Waits in
    the calling thread. Raises BusError."""
    consumer = Consumer(
        dict(settings) | {"group.id": NO_GROUP, "enable.auto.commit": False, "enable.partition.eof": True}
    )
    ends: dict[int, int] = {}
    try:
        assigned = []
        for partition, offset in start.items():
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
            ends[partition] = high
            if max(offset, low) < high:
                assigned.append(TopicPartition(topic, partition, max(offset, low)))
        consumer.assign(assigned)
        left = {p.partition for p in assigned}
        while left:
            first = consumer.poll(0.5)  # `consume` alone would wait for a full batch
            for record in [first, *consumer.consume(1000, 0)] if first is not None else ():
                error = record.error()
                if error is None:
                    on_record(cast(Record, record))
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise BusError(f"cannot read {topic}: {error.str()}")
                else:  # compaction may have removed the last offsets
                    left -= {p for p in left if p == record.partition() and (record.offset() or 0) >= ends[p]}
            done = {p.partition for p in consumer.position(assigned) if p.offset >= ends[p.partition]}
            left -= done
    except KafkaException as error:
        raise BusError(
            f"cannot read {topic}: {error.args[0].str()}; check that the broker runs and has the topic"
        ) from error
    finally:
        consumer.close()
    return ends
