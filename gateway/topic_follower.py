"""Follows topics with a consumer of its own, which nothing pauses: control does not wait behind data.

The consumer of :class:`gateway.kafka_bus.KafkaBus` stops while the homes cannot take more. What gateways must know
about one another comes by this one instead. It hands over whatever has arrived, so its topics must be ones with few
records.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Protocol, cast

from confluent_kafka import Consumer, KafkaException, TopicPartition

from gateway.errors import BusError
from gateway.known_topics import KnownTopics
from gateway.record import Record
from schemas.topics import NO_GROUP

_POLL_S = 0.1
_CHANGING_POLL_S = 0.004
_CHANGING_FETCH_MS = 10
_BATCH = 1_000

Partitions = Mapping[tuple[str, int], int]
"""Offsets by (topic, partition)."""


class Following(Protocol):
    """Partitions that are followed (:meth:`gateway.bus.Bus.follow`). Both calls raise BusError."""

    async def add(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Follows each (topic, partition) too, from the given offset on. It must not be followed here already."""
        ...

    async def remove(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Follows these no more. Fetched records may still arrive until this returns, and none later."""
        ...


class TopicFollower:
    """A consumer and its thread, from `start`, or the first `add`, to `stop`. `on_records` runs on the loop; what it
    raises, and what ends the consumer, goes to `on_fatal`."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        loop: asyncio.AbstractEventLoop,
        on_records: Callable[[list[Record]], None],
        on_fatal: Callable[[Exception], None],
    ) -> None:
        self._settings = settings
        self._loop = loop
        self._on_records = on_records
        self._on_fatal = on_fatal
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._commands: queue.SimpleQueue[tuple[Callable[[Consumer], None], Future[None]]] = queue.SimpleQueue()
        self._poll_s = _CHANGING_POLL_S
        self._known = KnownTopics()

    def start(self, positions: Partitions) -> None:
        """Begins at the given offset of each (topic, partition)."""
        if positions:
            self._poll_s = _POLL_S
        self._thread = threading.Thread(target=self._consume, args=(positions,), name="kafka-follower", daemon=True)
        self._thread.start()

    async def add(self, positions: Partitions) -> None:
        """Follows these too. Raises BusError."""
        if self._thread is None:
            self.start({})
        assigned = _assignment(positions)

        def assign(consumer: Consumer) -> None:
            self._known.meet(consumer, positions)
            consumer.incremental_assign(assigned)

        await self._command(assign)

    async def remove(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Follows these no more: none of their records are handed over once this has returned. Raises BusError."""
        listed = [TopicPartition(topic, partition) for topic, partition in partitions]
        await self._command(lambda consumer: consumer.incremental_unassign(listed))

    async def stop(self, timeout_s: float) -> None:
        """Ends the thread; nothing is handed over afterwards."""
        self._stopping.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, timeout_s)

    async def _command(self, action: Callable[[Consumer], None]) -> None:
        answer: Future[None] = Future()
        self._commands.put((action, answer))
        if self._stopping.is_set():
            self._end_commands()
        await asyncio.wrap_future(answer)

    def _run_commands(self, consumer: Consumer) -> None:
        for action, answer in self._taken_commands():
            if not answer.set_running_or_notify_cancel():  # nobody waits any more
                continue
            try:
                action(consumer)
            except (KafkaException, RuntimeError) as error:
                answer.set_exception(BusError(f"Kafka does not answer: {error}"))
            else:
                answer.set_result(None)

    def _end_commands(self) -> None:
        """Nobody waits for an answer that does not come."""
        for _, answer in self._taken_commands():
            if answer.set_running_or_notify_cancel():
                answer.set_exception(BusError("the Kafka consumer of control topics has ended"))

    def _taken_commands(self) -> Iterator[tuple[Callable[[Consumer], None], Future[None]]]:
        with suppress(queue.Empty):
            while True:
                yield self._commands.get_nowait()

    def _consume(self, positions: Partitions) -> None:
        changing = {} if positions else {"fetch.wait.max.ms": _CHANGING_FETCH_MS}
        consumer = Consumer(
            dict(self._settings)
            | {
                "group.id": NO_GROUP,
                "enable.auto.commit": False,
                "fetch.error.backoff.ms": 50,
                "auto.offset.reset": "earliest",  # compaction may have removed the position
            }
            | changing
        )
        try:
            consumer.assign(_assignment(positions))
            while not self._stopping.is_set():
                self._run_commands(consumer)
                first = consumer.poll(self._poll_s)
                if first is None:
                    continue
                found = [first, *consumer.consume(_BATCH, 0)]
                records = [cast(Record, record) for record in found if record.error() is None]
                if records:
                    self._loop.call_soon_threadsafe(self._hand_over, records)
        except Exception as error:
            if not self._stopping.is_set():
                fault = BusError(f"the Kafka consumer of control topics failed: {error}")
                self._loop.call_soon_threadsafe(self._on_fatal, fault)
        finally:
            self._stopping.set()
            self._end_commands()
            consumer.close()

    def _hand_over(self, records: list[Record]) -> None:
        if self._stopping.is_set():
            return
        try:
            self._on_records(records)
        except Exception as error:
            self._on_fatal(error)


def _assignment(positions: Partitions) -> list[TopicPartition]:
    return [TopicPartition(topic, partition, offset) for (topic, partition), offset in positions.items()]
