"""Reads partitions up to their present end.

A consumer that is made for one read spends most of its time on the connection and on metadata. A gateway that takes
over shards reads several topics while clients wait. So a few consumers can be kept: they stay connected, know the
topics, and have no partition assigned until the next read, so they fetch nothing.

Where partitions end is asked for all of them together: one request to each broker. Where they begin likewise, but only
the first time: if records have been removed since, the consumer finds the next one by itself.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from gateway.errors import BusError
from gateway.record import Record
from schemas.topics import NO_GROUP

_ANSWER_S: Final = 30.0
_END: Final = -1
_BEGINNING: Final = -2
"""Times that stand for an offset in the request ListOffsets."""

_FETCH_MS: Final = 1
"""How long a broker waits for records. There are some until the end is reached. A consumer that has just read to it
waits so long before it can read other partitions."""


class TopicReaders:
    """Makes consumers with the `settings` of the Kafka client. At most `kept` of them are kept between two reads. Any
    thread may call any method; several reads at the same time have a consumer each."""

    def __init__(self, settings: Mapping[str, Any], kept: int) -> None:
        self._settings = settings
        self._kept = kept
        self._lock = threading.Lock()
        self._idle: deque[Consumer] = deque()
        self._lows: dict[tuple[str, int], int] = {}
        """Where partitions began when that was asked."""

    def read(self, topic: str, start: Mapping[int, int], on_record: Callable[[Record], None]) -> dict[int, int]:
        """Passes every record from `start` (offset by partition) to the current end; returns the end by partition.
        Waits in the calling thread. Raises BusError."""
        return self._with_consumer(topic, lambda consumer: _read_to_end(consumer, topic, start, on_record, self._lows))

    def first_offsets(self, topic: str, start: Mapping[int, int]) -> dict[int, int]:
        """Where the first record at or behind each of `start` (offset by partition) stands; the current end if there is
        none. Waits in the calling thread. Raises BusError."""
        return self._with_consumer(topic, lambda consumer: _first_offsets(consumer, topic, start))

    def _with_consumer(self, topic: str, read: Callable[[Consumer], dict[int, int]]) -> dict[int, int]:
        consumer = self._take()
        try:
            found = read(consumer)
            consumer.unassign()
        except KafkaException as error:
            consumer.close()
            raise BusError(
                f"cannot read {topic}: {error.args[0].str()}; check that the broker runs and has the topic"
            ) from error
        except BaseException:
            consumer.close()
            raise
        self._give_back(consumer)
        return found

    def close(self) -> None:
        """Ends the consumers that are kept, and keeps no more."""
        with self._lock:
            self._kept, idle, self._idle = 0, self._idle, deque()
        for consumer in idle:
            consumer.close()

    def _take(self) -> Consumer:
        with self._lock:
            if self._idle:
                return self._idle.popleft()  # the others may still wait for the last answer to an earlier read
        return Consumer(
            dict(self._settings)
            | {
                "group.id": NO_GROUP,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": _FETCH_MS,
                "fetch.error.backoff.ms": 50,
                "auto.offset.reset": "earliest",
            }
        )

    def _give_back(self, consumer: Consumer) -> None:
        with self._lock:
            if len(self._idle) < self._kept:
                self._idle.append(consumer)
                return
        consumer.close()


def end_offsets(consumer: Consumer, topic: str, partitions: Iterable[int], timeout_s: float) -> dict[int, int]:
    """The offset after the last record, by partition. Raises KafkaException."""
    return _offsets(consumer, topic, partitions, _END, timeout_s)


def _offsets(consumer: Consumer, topic: str, partitions: Iterable[int], time: int, timeout_s: float) -> dict[int, int]:
    asked = [TopicPartition(topic, partition, time) for partition in partitions]
    if not asked:
        return {}
    found: dict[int, int] = {}
    for one in consumer.offsets_for_times(asked, timeout=timeout_s):
        if one.error is not None:
            raise KafkaException(one.error)
        found[one.partition] = one.offset
    return found


def _read_to_end(
    consumer: Consumer,
    topic: str,
    start: Mapping[int, int],
    on_record: Callable[[Record], None],
    lows: dict[tuple[str, int], int],
) -> dict[int, int]:
    ends = end_offsets(consumer, topic, start, _ANSWER_S)
    wanted = [p for p, at in start.items() if at < ends[p]]
    unknown = [p for p in wanted if lows.get((topic, p), ends[p] + 1) > ends[p]]
    lows |= {(topic, p): low for p, low in _offsets(consumer, topic, unknown, _BEGINNING, _ANSWER_S).items()}
    assigned = [TopicPartition(topic, p, max(start[p], lows[topic, p])) for p in wanted if lows[topic, p] < ends[p]]
    if not assigned:
        return ends
    consumer.assign(assigned)
    left = {p.partition for p in assigned}
    while left:
        first = consumer.poll(0.5)  # `consume` alone would wait for a full batch
        for record in [first, *consumer.consume(1000, 0)] if first is not None else ():
            error, partition, read_to = record.error(), record.partition() or 0, record.offset() or 0
            if error is None:
                on_record(cast(Record, record))
                read_to += 1
            elif error.code() != KafkaError._PARTITION_EOF:  # which comes if compaction has removed the last offsets
                raise BusError(f"cannot read {topic}: {error.str()}")
            if read_to >= ends[partition]:  # not by `position`: a consumer remembers it from an earlier read
                left.discard(partition)
    return ends


def _first_offsets(consumer: Consumer, topic: str, start: Mapping[int, int]) -> dict[int, int]:
    found = end_offsets(consumer, topic, start, _ANSWER_S)
    left = {p for p, at in start.items() if at < found[p]}
    consumer.assign([TopicPartition(topic, p, start[p]) for p in left])
    while left:
        message = consumer.poll(0.5)
        if message is None or (partition := message.partition() or 0) not in left:
            continue
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise BusError(f"cannot read {topic}: {error.str()}")
        found[partition] = message.offset() or 0
        left.discard(partition)
    return found
