"""Follows topics with a consumer of its own, which nothing pauses: control does not wait behind data.

The consumer of :class:`gateway.bus.KafkaBus` stops while the homes cannot take more. What gateways must know about one
another comes by this one instead. It hands over whatever has arrived, so its topics must be ones with few records.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Any, cast

from confluent_kafka import Consumer, TopicPartition

from gateway.errors import BusError
from gateway.record import Record
from schemas.topics import NO_GROUP

_POLL_S = 0.1
_BATCH = 1_000


class TopicFollower:
    """A consumer and its thread, from `start` to `stop`. `on_records` runs on the loop; what it raises, and what ends
    the consumer, goes to `on_fatal`."""

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

    def start(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Begins at the given offset of each (topic, partition)."""
        assigned = [TopicPartition(topic, partition, offset) for (topic, partition), offset in positions.items()]
        self._thread = threading.Thread(target=self._consume, args=(assigned,), name="kafka-follower", daemon=True)
        self._thread.start()

    async def stop(self, timeout_s: float) -> None:
        """Ends the thread; nothing is handed over afterwards."""
        self._stopping.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, timeout_s)

    def _consume(self, assigned: list[TopicPartition]) -> None:
        consumer = Consumer(
            dict(self._settings)
            | {
                "group.id": NO_GROUP,
                "enable.auto.commit": False,
                "fetch.error.backoff.ms": 50,
                "auto.offset.reset": "earliest",  # compaction may have removed the position
            }
        )
        try:
            consumer.assign(assigned)
            while not self._stopping.is_set():
                first = consumer.poll(_POLL_S)
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
            consumer.close()

    def _hand_over(self, records: list[Record]) -> None:
        if self._stopping.is_set():
            return
        try:
            self._on_records(records)
        except Exception as error:
            self._on_fatal(error)
