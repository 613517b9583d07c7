"""Writes an adapter's messages to `ingress` too, for plain MQTT subscribers of `feeds/<name>/#` (S2, S3).

Each message is one record, whose form is :mod:`feeds.ingress_copy`. A copy that is written again after a failure has
the same id and number: homes drop it. A feed's word that it has passed a number is not for subscribers, and is left
out.

Two adapters whose numbers have nothing in common never write both: the second one is refused its slot, with the reason
(:func:`feeds.pairing.decide`), before any of its outputs is opened.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from feeds.ingress_copy import ingress_copy
from feeds.message import FeedMessage
from feeds.passed import PassedRecord
from feeds.registry_records import feed_of
from schemas.envelope import Headers
from schemas.feed_words import Slot

_log = logging.getLogger("waystation.feed")

R = TypeVar("R")
S = TypeVar("S", contravariant=True)


class RecordWriter(Protocol[S]):
    """What writes records to the topic `ingress`."""

    async def open(self) -> int:
        """Returns the number of the topic's partitions, once a broker is reached."""
        ...

    async def write(self, records: Sequence[S]) -> Sequence[tuple[int, int]]:
        """Returns once Kafka has all: partition and offset of each; -1 as offset if Kafka takes none of this size."""
        ...

    async def close(self) -> None:
        """Nothing more is written."""
        ...


class IngressOutput(Generic[R]):
    """Of the feed `name`. `record` makes a record of partition, key, value and headers, as `writer` takes it; `now_us`
    gives µs since the epoch."""

    def __init__(
        self,
        name: str,
        writer: RecordWriter[R],
        record: Callable[[int, bytes, bytes, Headers], R],
        now_us: Callable[[], int] = lambda: time.time_ns() // 1_000,
    ) -> None:
        self._name, self._writer, self._record, self._now_us = name, writer, record, now_us
        self._partitions = 0

    async def open(self) -> None:
        """Returns once it can be written to."""
        self._partitions = await self._writer.open()

    async def write(self, slot: Slot, batch: Sequence[FeedMessage | PassedRecord]) -> None:
        """Returns once all of the batch is stored."""
        feed, now_us = feed_of(slot), self._now_us()
        copies = [
            ingress_copy(self._name, feed, one, now_us, self._partitions)
            for one in batch
            if isinstance(one, FeedMessage)
        ]
        if copies:
            results = await self._writer.write([self._record(*copy) for copy in copies])
            refused = sum(offset < 0 for _, offset in results)
            if refused:
                _log.error("Kafka takes no record as large as %d messages: MQTT subscribers do not get them", refused)

    async def close(self) -> None:
        """Releases what it holds."""
        await self._writer.close()
