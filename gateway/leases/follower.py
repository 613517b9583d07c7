"""Reads the topic `leases` for the keeper: first what is there, then what comes (G4).

Whoever may write to the topic may write anything: a record that is not valid is counted and skipped.
"""

import asyncio
from collections import Counter
from collections.abc import Callable

from gateway.bus import Bus
from gateway.cluster.lease_messages import LeaseRead
from gateway.record import Record
from gateway.skipped_records import SkippedRecords
from schemas.errors import RecordError
from schemas.leases import decode_lease


class LeasesFollower:
    """Passes each valid record to `on_read`, in the order of the log; `now` gives monotonic seconds."""

    def __init__(
        self,
        bus: Bus,
        topic: str,
        on_read: Callable[[LeaseRead], None],
        now: Callable[[], float],
        counts: Counter[str],
    ) -> None:
        self._bus = bus
        self._topic = topic
        self._on_read = on_read
        self._skipped = SkippedRecords("leases", counts, "lease_records_skipped", now)
        self._read_to = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    async def start(self) -> None:
        """Returns once what was on the topic is passed on; what comes later follows. Raises BusError."""
        found: list[Record] = []  # it is read in another thread
        ends = await self._bus.read(self._topic, {0: 0}, found.append)
        self._take(found)
        self._read_to = ends[0]
        self._bus.follow({(self._topic, 0): ends[0]}, self._take)

    async def read_to_end(self) -> None:
        """Returns once what is on the topic by now is passed on. Raises BusError."""
        ends = await self._bus.read(self._topic, {0: self._read_to}, lambda record: None)
        while self._read_to < ends[0]:
            reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((ends[0], reached))
            await reached

    def _take(self, records: list[Record]) -> None:
        for record in records:
            self._take_one(record)
        waiting, self._waiting = self._waiting, []
        for end, reached in waiting:
            if self._read_to < end:
                self._waiting.append((end, reached))
            elif not reached.done():
                reached.set_result(None)

    def _take_one(self, record: Record) -> None:
        self._read_to = record.offset() + 1
        try:
            self._on_read(LeaseRead(record.offset(), *decode_lease(record.key(), record.value())))
        except RecordError as error:
            self._skipped.skip(record.offset(), error)
