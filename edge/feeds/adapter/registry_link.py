"""An adapter's connection to the topic `feeds`: all that is said there, and what it says itself (S1, S2, S4).

A consumer on a thread reads the topic from its beginning. What was there before comes first, and without a time. Beats
are written one after the other: one that is due while another is on its way is left out. Other records wait until Kafka
has them, before all later ones.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from threading import Event, Thread
from typing import Any, Final

import kafka
from kafka.errors import KafkaError

from edge.client.kafka_producer import describe
from edge.errors import ConnectRefused
from edge.feeds.adapter.kafka_writer import KafkaWriter, TopicRecord, consumer_settings
from edge.feeds.adapter.settings import KafkaSection
from feeds.errors import FeedRecordError
from feeds.registry_records import AdapterBeat, RegistryKey, RegistryRecord, decode
from schemas.errors import RecordError
from schemas.events import encode

_log = logging.getLogger("waystation.feed")
POLL_MS: Final = 100
RETRY_S: Final = 1.0

Told = tuple[RegistryKey, RegistryRecord | None]
"""A record of the topic."""


class RegistryLink:
    """`on_records`: called on the loop with records, in order, and whether they were there before."""

    def __init__(self, kafka: KafkaSection, on_records: Callable[[list[Told], bool], None]) -> None:
        self._kafka, self._on_records = kafka, on_records
        self._topic = f"{kafka.prefix}feeds"
        self._writer = KafkaWriter(kafka, self._topic)
        self._loop = asyncio.get_running_loop()
        self._stopping = Event()
        self._thread = Thread(target=self._read_on, name="waystation-feeds", daemon=True)
        self._beat: TopicRecord | None = None
        self._records: list[TopicRecord] = []
        self._wanted = asyncio.Event()
        self._idle = asyncio.Event()
        self.malformed = 0

    def start(self) -> None:
        """Begins to read."""
        self._thread.start()

    def beat(self, key: RegistryKey, beat: AdapterBeat) -> None:
        """Says it, instead of an earlier one that is not on its way yet."""
        self._beat = _record(key, beat)
        self._wake()

    def say(self, key: RegistryKey, record: RegistryRecord | None) -> None:
        """Says it, after what was said before."""
        self._records.append(_record(key, record))
        self._wake()

    async def run(self) -> None:
        """Writes what is said, until it is cancelled. Raises ConnectRefused."""
        await self._writer.open()
        while True:
            self._wanted.clear()
            batch, self._records = self._records, []
            if self._beat is not None:
                batch.append(self._beat)
                self._beat = None
            if batch:
                await self._writer.write(batch)
            elif not self._wanted.is_set():
                self._idle.set()
                await self._wanted.wait()

    async def flushed(self) -> None:
        """Returns once all that was said is stored."""
        await self._idle.wait()

    async def close(self) -> None:
        """Ends the thread and the connections."""
        self._stopping.set()
        await self._writer.close()
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join, self._kafka.request_timeout_s)

    def _wake(self) -> None:
        self._idle.clear()
        self._wanted.set()

    # -- on the thread -------------------------------------------------------------------------------------------------

    def _read_on(self) -> None:
        said = False
        while not self._stopping.is_set():
            try:
                self._read()
            except Exception as error:
                if not said:
                    _log.warning("the topic %s cannot be read: %s", self._topic, describe(error))
                said = True
                self._stopping.wait(RETRY_S)

    def _read(self) -> None:
        consumer = kafka.KafkaConsumer(**consumer_settings(self._kafka, self._topic))
        try:
            place = kafka.TopicPartition(self._topic, 0)
            if not consumer.partitions_for_topic(self._topic):
                raise KafkaError(f"there is no topic {self._topic!r}: is [kafka] prefix right?")
            consumer.assign([place])
            consumer.seek_to_beginning(place)
            end = consumer.end_offsets([place])[place]
            is_before = consumer.position(place) < end
            if not is_before:
                self._hand_over([], is_before=False)
            while not self._stopping.is_set():
                records = consumer.poll(POLL_MS).get(place, [])
                before = [one for one in records if one.offset < end]
                if before:
                    self._hand_over(before, is_before=True)
                if len(before) < len(records):
                    self._hand_over(records[len(before) :], is_before=False)
                if is_before and consumer.position(place) >= end:
                    is_before = False
                    self._hand_over([], is_before=False)
        finally:
            with contextlib.suppress(KafkaError):
                consumer.close()

    def _hand_over(self, records: list[Any], *, is_before: bool) -> None:
        found: list[Told] = []
        for one in records:
            try:
                found.append(decode(one.key, one.value))
            except (FeedRecordError, RecordError):
                self.malformed += 1
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._on_records, found, is_before)


def _record(key: RegistryKey, record: RegistryRecord | None) -> TopicRecord:
    return TopicRecord(0, key.encode(), None if record is None else encode(record), [])


def now_us() -> int:
    """The wall clock, µs since the epoch."""
    return time.time_ns() // 1000


__all__ = ["ConnectRefused", "RegistryLink", "Told", "now_us"]
