"""Reads the topic `members` into the table: first what is there, then what comes (G2).

Whoever may write to the topic may write anything: a record that is not valid is counted and skipped.
"""

from collections import Counter
from collections.abc import Callable

from gateway.broker_clock import BrokerClock
from gateway.bus import Bus
from gateway.members.table import MemberTable
from gateway.record import Record
from gateway.skipped_records import SkippedRecords
from schemas.errors import RecordError
from schemas.members import Heartbeat, decode_heartbeat

HeartbeatListener = Callable[[str, Heartbeat], None]


class MembersFollower:
    """Keeps `table` and `broker_clock` up to date; `now` gives monotonic seconds. `listeners` get each heartbeat
    that comes after the start, with its gateway's name."""

    def __init__(
        self,
        bus: Bus,
        topic: str,
        table: MemberTable,
        now: Callable[[], float],
        counts: Counter[str],
        broker_clock: BrokerClock,
    ) -> None:
        self._bus = bus
        self._topic = topic
        self._table = table
        self._now = now
        self._broker_clock = broker_clock
        self._counts = counts
        self._skipped = SkippedRecords("members", counts, "member_records_skipped", now)
        self.listeners: list[HeartbeatListener] = []

    async def start(self) -> None:
        """Returns once the table has what was on the topic; what comes later follows. Raises BusError."""
        ends = await self._bus.read(self._topic, {0: 0}, lambda record: self._apply(record, None))
        self._bus.follow({(self._topic, 0): ends[0]}, self._take)

    def _take(self, records: list[Record]) -> None:
        now = self._now()
        for record in records:
            self._apply(record, now)

    def _apply(self, record: Record, now: float | None) -> None:
        value = record.value()
        try:
            if value is None:
                self._table.apply((record.key() or b"").decode(errors="replace"), None, now)
            else:
                name, heartbeat = decode_heartbeat(record.key(), value)
                self._counts["members_forgotten"] += self._table.apply(name, heartbeat, now)
                if now is not None:
                    self._broker_clock.heard(record.timestamp()[1], now)
                    for listener in self.listeners:
                        listener(name, heartbeat)
        except RecordError as error:
            self._skipped.skip(record.offset(), error)
