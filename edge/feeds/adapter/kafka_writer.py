"""Writes records to one topic until Kafka has them, over any loss of brokers, in order (S2).

Within one connection kafka-python's producer is idempotent and keeps the order. If it fails for good, a new one is
opened, and what was not acknowledged is written again: a record may be there twice, and none overtakes another.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from edge.client.connect_points import ConnectPoint, parse_connect_points
from edge.client.kafka_options import KafkaOptions
from edge.client.kafka_producer import KafkaProducer, Report, describe, is_too_large
from edge.errors import ConnectRefused, Unreachable
from edge.feeds.adapter.settings import KafkaSection, kafka_options
from edge.reconnect import FullJitter
from schemas.topics import DAY_MS

_log = logging.getLogger("waystation.feed")
_BATCH_BYTES: Final = 256 << 10


class TopicRecord(NamedTuple):
    """A record of the topic."""

    partition: int
    key: bytes
    value: bytes | None
    headers: list[tuple[str, bytes]]


class Written(NamedTuple):
    """What became of a record: its offset; -1 if Kafka takes none of this size."""

    partition: int
    offset: int


class KafkaWriter:
    """`topic` with its prefix. To be opened before it writes. One call of :meth:`write` at a time."""

    def __init__(self, kafka: KafkaSection, topic: str) -> None:
        self._kafka, self._topic = kafka, topic
        self._options: KafkaOptions = kafka_options(kafka, topic)
        self._points = parse_connect_points([f"kafka://{kafka.bootstrap}"])
        self._backoff = FullJitter(0.2, kafka.reconnect_most_s)
        self._producer = KafkaProducer(
            self._options,
            kafka.connect_timeout_s,
            DAY_MS / 1000,
            client_id="waystation-feed-adapter",
            request_timeout_ms=int(kafka.request_timeout_s * 1000),
            reconnect_backoff_max_ms=int(kafka.reconnect_most_s * 1000),
            batch_size=_BATCH_BYTES,
        )
        self._results: dict[int, Written] = {}
        self._expected: Sequence[TopicRecord] = ()
        self._failure: Exception | None = None
        self._changed = asyncio.Event()
        self._is_open = False

    async def open(self) -> int:
        """Returns the number of the topic's partitions, once a broker is reached. Raises ConnectRefused if the brokers
        refuse credentials or rights."""
        attempt = 0
        while True:
            for point in self._points:
                try:
                    partitions = await self._producer.open(point, self._reported)
                except Unreachable as error:
                    if attempt in (0, 3):
                        _log.warning("kafka is not reached at %s: %s", point, error)
                    continue
                self._is_open = True
                self._failure = None
                return partitions
            await asyncio.sleep(self._backoff.delay_s(attempt))
            attempt += 1

    async def write(self, records: Sequence[TopicRecord]) -> list[Written]:
        """Returns once Kafka has all of them; in their order. Raises ConnectRefused."""
        self._results, self._expected = {}, records
        failed = 0
        while len(self._results) < len(records):
            if not self._is_open:
                await self.open()
            self._failure = None
            missing = [(number, one) for number, one in enumerate(records) if number not in self._results]
            await self._producer.send(missing)
            while len(self._results) < len(records) and self._failure_now() is None:
                self._changed.clear()
                await self._changed.wait()
            failure = self._failure_now()
            if failure is not None:
                if failed in (0, 3):
                    _log.warning("kafka does not take records of %s: %s", self._topic, describe(failure))
                self._is_open = False
                await self._producer.close()
                await asyncio.sleep(self._backoff.delay_s(failed))
                failed += 1
        return [self._results[number] for number in range(len(records))]

    async def close(self) -> None:
        """Ends the producer; nothing more is written."""
        with contextlib.suppress(Exception):
            await self._producer.close()
        self._producer.stop()

    def _failure_now(self) -> Exception | None:
        return self._failure

    def _reported(self, reports: list[Report]) -> None:
        for number, error, offset in reports:
            if number >= len(self._expected) or self._failure is not None:
                continue
            if error is None or is_too_large(error):
                self._results[number] = Written(self._expected[number].partition, offset)
            else:
                self._failure = error
        self._changed.set()


def bootstrap_of(kafka: KafkaSection) -> list[str]:
    """Brokers, as kafka-python names them."""
    return [_host(point) for point in parse_connect_points([f"kafka://{kafka.bootstrap}"])]


def consumer_settings(kafka: KafkaSection, topic: str) -> dict[str, Any]:
    """Those of kafka-python's consumers: no group, nothing is stored at the broker."""
    return {
        "bootstrap_servers": bootstrap_of(kafka),
        "client_id": "waystation-feed-adapter",
        "group_id": None,
        "enable_auto_commit": False,
        "allow_auto_create_topics": False,
        "auto_offset_reset": "earliest",
        "request_timeout_ms": int(kafka.request_timeout_s * 1000),
        "reconnect_backoff_max_ms": int(kafka.reconnect_most_s * 1000),
        "bootstrap_timeout_ms": int(kafka.connect_timeout_s * 1000),
        "metrics_enabled": False,
    } | kafka_options(kafka, topic).client()


def _host(point: ConnectPoint) -> str:
    host = f"[{point.host}]" if ":" in point.host else point.host
    return f"{host}:{point.port}"


__all__ = ["ConnectRefused", "KafkaWriter", "TopicRecord", "Written", "bootstrap_of", "consumer_settings"]
