"""Kafka for the gateway, over confluent-kafka: the contract is that of :class:`gateway.bus.Bus`.

Delivery semantics: the producer is idempotent with `acks=all` and never gives up on its own. So a callback without
error means that the record is stored once, and records of one partition are stored in the order of `produce`. Only the
consumer's own thread calls the consumer; the loop sends it commands.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, cast

import structlog
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from gateway.blocking import in_daemon_thread
from gateway.bus import OnDone, OnRecords
from gateway.end_offsets import EndOffsets
from gateway.errors import BusError
from gateway.kafka_log import LogLimit, client_logger
from gateway.kafka_producer import make_producer
from gateway.kafka_stats import STATISTICS_MS, KafkaStats
from gateway.known_topics import KnownTopics
from gateway.partition_counts import partition_counts
from gateway.partition_reader import KafkaPartitionReader, OnRead, PartitionReader
from gateway.record import Record
from gateway.topic_follower import Following, TopicFollower
from gateway.topic_reader import TopicReaders
from schemas.envelope import Headers
from schemas.settings import KafkaSettings
from schemas.topics import NO_GROUP

_POLL_S = 0.001
_IDLE_POLL_S = 0.05
_CONSUMER_POLL_S = 0.004
"""How long a change of what is consumed waits while no records come."""

_FETCH_MS = 10
"""Records arrive at once in any case. This is how long a partition assigned during a fetch waits, and how often an idle
broker is asked."""

_BATCH = 200
_BATCHES_AHEAD = 4
_ANSWER_S = 2.0

log = structlog.get_logger(__name__)


class KafkaBus:
    """The bus over confluent-kafka. `in_flight` counts records sent to the broker and not yet acknowledged. At most
    `kept_readers` consumers stay connected for the next `read`."""

    def __init__(
        self,
        settings: KafkaSettings,
        loop: asyncio.AbstractEventLoop,
        on_fatal: Callable[[Exception], None],
        kept_readers: int = 0,
    ) -> None:
        self._loop = loop
        self._on_fatal = on_fatal
        self.stats = KafkaStats()
        self._log_limit = LogLimit()
        self._common: dict[str, Any] = {
            "bootstrap.servers": settings.bootstrap,
            "error_cb": self._on_error,
            "logger": client_logger(),
        } | settings.client
        self._producer = make_producer(self._common, self.stats)
        self._commands: queue.SimpleQueue[Callable[[Consumer], None] | None] = queue.SimpleQueue()
        self._ahead = threading.Semaphore(_BATCHES_AHEAD)
        self._applying: set[asyncio.Future[None]] = set()
        self._assigned: set[tuple[str, int]] = set()  # for the consumer's thread
        self._known = KnownTopics()  # likewise
        self._thread: threading.Thread | None = None
        self._followers: list[TopicFollower | KafkaPartitionReader] = []
        self._ends = EndOffsets(self._common, loop)
        self._readers = TopicReaders(self._common, kept_readers)
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._idle = True
        self.in_flight = 0

    def start(self, on_records: OnRecords) -> None:
        """Starts the consumer thread and the producer's callbacks."""
        self._thread = threading.Thread(target=self._consume, args=(on_records,), name="kafka-consumer", daemon=True)
        self._thread.start()
        self._poll()

    async def close(self, timeout_s: float) -> int:
        """Stops consuming and waits for records in flight; returns how many records remain unsent."""
        self._closing = True
        self._commands.put(None)
        self._ahead.release()
        ends = [
            self._ends.close(timeout_s),
            asyncio.to_thread(self._readers.close),
            *(follower.stop(timeout_s) for follower in self._followers),
        ]
        if self._thread is not None:
            ends.append(asyncio.to_thread(self._thread.join, timeout_s))
        await asyncio.gather(*ends)
        if self._timer is not None:
            self._timer.cancel()
        return await asyncio.to_thread(self._producer.flush, timeout_s)

    def produce(
        self, topic: str, partition: int, key: bytes, value: bytes | None, headers: Headers | None, on_done: OnDone
    ) -> bool:
        stats = self.stats
        stats.until_sample -= 1
        if not stats.until_sample:
            on_done = stats.sampled(on_done)
        try:
            self._producer.produce(topic, value, key, partition, on_delivery=on_done, headers=headers)  # type: ignore[arg-type]
        except BufferError:
            self._refuse(on_done, KafkaError(KafkaError._QUEUE_FULL))
            return False
        except KafkaException as error:
            self._refuse(on_done, error.args[0])
            return True
        self._sent(1)
        return True

    def produce_all(
        self,
        topic: str,
        partition: int,
        records: Sequence[tuple[bytes, bytes | None]],
        on_done: OnDone,
        headers: Headers | None = None,
    ) -> None:
        if headers is not None:  # `produce_batch` takes none
            self._produce_each(topic, partition, records, headers, on_done)
            return
        messages: list[dict[str, Any]] = [{"key": key, "value": value} for key, value in records]
        messages[-1]["callback"] = on_done
        try:
            queued = self._producer.produce_batch(topic, messages, partition)
        except KafkaException as error:
            self._refuse(on_done, error.args[0])
            return
        if queued < len(messages):
            self._refuse(on_done, next(message["_error"] for message in messages if "_error" in message))
        self._sent(queued)

    def _produce_each(
        self,
        topic: str,
        partition: int,
        records: Sequence[tuple[bytes, bytes | None]],
        headers: Headers,
        on_done: OnDone,
    ) -> None:
        """The producer keeps their order: the last is stored after all others."""
        produce, last, queued = self._producer.produce, len(records) - 1, 0
        try:
            for number, (key, value) in enumerate(records):
                if number == last:
                    produce(topic, value, key, partition, on_delivery=on_done, headers=headers)  # type: ignore[arg-type]
                else:
                    produce(topic, value, key, partition, headers=headers)  # type: ignore[arg-type]
                queued += 1
        except BufferError:
            self._refuse(on_done, KafkaError(KafkaError._QUEUE_FULL))
        except KafkaException as error:
            self._refuse(on_done, error.args[0])
        self._sent(queued)

    def _sent(self, records: int) -> None:
        """Records were queued: polls soon for their delivery reports."""
        self.in_flight += records
        if self._idle and self._timer is not None:
            self._timer.cancel()
            self._idle = False
            self._timer = self._loop.call_later(_POLL_S, self._poll)

    @property
    def is_consuming(self) -> bool:
        """Whether the consumer's thread is running."""
        return self._thread is not None and self._thread.is_alive() and not self._closing

    async def find_fault(self, topic: str) -> str:
        """Asks the brokers for `topic`: "" if they answer and have it, otherwise what is wrong."""

        def ask() -> str:
            try:
                found = self._producer.list_topics(topic, timeout=_ANSWER_S).topics[topic].error
            except KafkaException as error:
                return str(error.args[0].str())
            return "" if found is None else f"topic {topic}: {found.str()}"

        return await asyncio.to_thread(ask)

    def _refuse(self, on_done: OnDone, error: KafkaError) -> None:
        def refuse() -> None:
            try:
                on_done(error, cast(Record, None))
            except Exception as failure:
                self._on_fatal(failure)

        self._loop.call_soon(refuse)

    async def assign(self, positions: dict[tuple[str, int], int]) -> None:
        partitions = [
            TopicPartition(topic, partition, offset if offset >= 0 else OFFSET_BEGINNING)
            for (topic, partition), offset in positions.items()
        ]

        def assign(consumer: Consumer) -> None:
            self._known.meet(consumer, positions)
            self._unassign(consumer, positions)  # librdkafka refuses what is assigned already
            consumer.incremental_assign(partitions)
            self._assigned |= positions.keys()

        await self._command(assign)

    async def unassign(self, partitions: Iterable[tuple[str, int]]) -> None:
        listed = list(partitions)
        await self._command(lambda consumer: self._unassign(consumer, listed))
        if self._applying:
            await asyncio.wait(self._applying)

    def _unassign(self, consumer: Consumer, partitions: Collection[tuple[str, int]]) -> None:
        known = self._assigned.intersection(partitions)
        if known:
            consumer.incremental_unassign([TopicPartition(topic, partition) for topic, partition in known])
            self._assigned -= known

    async def end_offsets(self, topic: str, partitions: int) -> dict[int, int]:
        return await self._ends.of(topic, partitions)

    async def read(self, topic: str, start: dict[int, int], on_record: Callable[[Record], None]) -> dict[int, int]:
        return await in_daemon_thread(self._readers.read, topic, start, on_record)

    async def first_offsets(self, topic: str, start: dict[int, int]) -> dict[int, int]:
        return await in_daemon_thread(self._readers.first_offsets, topic, start)

    async def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """The number of partitions of each of these topics that exist. Raises BusError."""
        return await in_daemon_thread(partition_counts, self._common, topics)

    def follow(self, positions: dict[tuple[str, int], int], on_records: Callable[[list[Record]], None]) -> Following:
        follower = TopicFollower(self._common, self._loop, on_records, self._on_fatal)
        self._followers.append(follower)
        if positions:
            follower.start(positions)
        return follower

    def reader(self, on_read: OnRead) -> PartitionReader:
        reader = KafkaPartitionReader(self._common, self._loop, on_read, self._on_fatal)
        self._followers.append(reader)
        return reader

    async def _command(self, action: Callable[[Consumer], Any]) -> Any:
        answer: Future[Any] = Future()

        def run(consumer: Consumer) -> None:
            if not answer.set_running_or_notify_cancel():  # nobody waits any more
                return
            try:
                answer.set_result(action(consumer))
            except KafkaException as error:
                answer.set_exception(BusError(f"Kafka does not answer: {error.args[0].str()}"))
            except Exception as error:
                answer.set_exception(error)

        self._commands.put(run)
        return await asyncio.wrap_future(answer)

    def _consume(self, on_records: OnRecords) -> None:
        """The consumer's thread: runs commands first, then hands everything fetched to the loop as one batch."""
        consumer = Consumer(
            self._common
            | {
                "group.id": NO_GROUP,
                "enable.auto.commit": False,
                "fetch.error.backoff.ms": 50,
                "fetch.wait.max.ms": _FETCH_MS,
                "statistics.interval.ms": STATISTICS_MS,
                "stats_cb": self.stats.take_consumer,
                "auto.offset.reset": "earliest",  # if a position is already deleted: skip nothing that remains
            }
        )
        try:
            while True:
                while not self._commands.empty():
                    command = self._commands.get()
                    if command is None:
                        return
                    command(consumer)
                first = consumer.poll(_CONSUMER_POLL_S)
                if first is None:
                    continue
                batch = [cast(Record, r) for r in [first, *consumer.consume(_BATCH, 0)] if r.error() is None]
                self._ahead.acquire()
                if batch and not self._closing:
                    self._loop.call_soon_threadsafe(self._hand_over, on_records, batch)
                else:
                    self._ahead.release()
        except Exception as error:
            self._loop.call_soon_threadsafe(self._on_fatal, BusError(f"the Kafka consumer failed: {error}"))
        finally:
            consumer.close()

    def _hand_over(self, on_records: OnRecords, batch: list[Record]) -> None:
        applied = None
        try:
            applied = on_records(batch)
        except Exception as error:  # otherwise its unhandled records would be lost silently
            self._on_fatal(error)
        if applied is None:
            self._ahead.release()
        else:
            self._applying.add(applied)
            applied.add_done_callback(self._applied)

    def _applied(self, applied: asyncio.Future[None]) -> None:
        self._applying.discard(applied)
        self._ahead.release()

    def _poll(self) -> None:
        served = True
        try:
            served = bool(self._producer.poll(0))
        except Exception as error:  # raised by an `on_done`
            self._on_fatal(error)
        self.in_flight = len(self._producer) if served else self.in_flight
        self._idle = not self.in_flight
        if self._idle:
            self.stats.until_sample = 1
        self._timer = self._loop.call_later(_IDLE_POLL_S if self._idle else _POLL_S, self._poll)

    def _on_error(self, error: KafkaError) -> None:
        self.stats.errors.labels(error.name()).inc()
        if self._log_limit.allows(error.name()):
            log.warning("Kafka client error", code=error.name(), detail=error.str())
        if error.fatal():
            self._loop.call_soon_threadsafe(self._on_fatal, BusError(f"the Kafka client failed: {error.str()}"))
