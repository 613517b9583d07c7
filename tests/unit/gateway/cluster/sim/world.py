"""One seeded scheduler, and the log that all processes share: appended, delayed, compacted at any moment."""

import heapq
import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

TopicPartition = tuple[str, int]

LAG_S = 4.0
LEASES_LAG_S = 0.4
"""Compaction leaves younger records alone: `min.compaction.lag.ms` of the topics of shards, and of `leases`, in the
time of the simulation, where hours are seconds."""

KEPT_S = 8.0
"""How long tombstones are kept: `delete.retention.ms`."""


class Entry(NamedTuple):
    """A record of a log. `epoch` is a header, so that tombstones have it too; `is_fence` marks fences."""

    offset: int
    at: float
    key: bytes
    value: Any
    epoch: int
    is_fence: bool


class Violation(AssertionError):
    """Something that must never happen has happened."""


class World:
    """Time, chance and the log. Nothing else in a simulation is random or knows the time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.log: dict[TopicPartition, list[Entry | None]] = defaultdict(list)
        self.appended: Callable[[TopicPartition, Entry], None] = lambda _tp, _entry: None
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self.cursors: dict[TopicPartition, list[Cursor]] = defaultdict(list)

    def at(self, time: float, act: Callable[[], None]) -> None:
        """What is to happen at the same time happens in the order in which this was called."""
        self._number += 1
        heapq.heappush(self._events, (time, self._number, act))

    def after(self, delay: float, act: Callable[[], None]) -> None:
        self.at(self.now + delay, act)

    def soon(self, low: float, high: float, act: Callable[[], None]) -> None:
        self.after(low + (high - low) * self.random.random(), act)

    def run(self, until: float, is_done: Callable[[], bool] = lambda: False) -> bool:
        """Runs what is due; whether it ended because it was done."""
        events, checked = self._events, self.now
        while events and events[0][0] <= until:
            self.now, _, act = heapq.heappop(events)
            act()
            if self.now - checked > 0.1:
                checked = self.now
                if is_done():
                    return True
        self.now = until
        return is_done()

    def append(self, tp: TopicPartition, key: bytes, value: Any, epoch: int, is_fence: bool) -> int:
        log = self.log[tp]
        entry = Entry(len(log), self.now, key, value, epoch, is_fence)
        log.append(entry)
        self.appended(tp, entry)
        for cursor in self.cursors[tp]:
            cursor.wake()
        return entry.offset

    def compact(self, tp: TopicPartition, lag_s: float, *, is_early: bool = False) -> None:
        """Keeps of each key the last record; also removes tombstones whose time is over. As the broker does, it looks
        only at what is before the first record that is younger than `lag_s`; if `is_early`, a younger record too takes
        the place of an older one, which is more than a broker may do."""
        log, last = self.log[tp], dict[bytes, Entry]()
        is_young = False
        for entry in log:
            if entry is None:
                continue
            is_young |= self.now - entry.at < lag_s
            if is_young and not is_early:
                break
            before = last.get(entry.key)
            if before is not None and self.now - before.at >= lag_s:
                log[before.offset] = None
            last[entry.key] = entry
        for entry in last.values():
            if entry.value is None and self.now - entry.at > max(lag_s, KEPT_S):
                log[entry.offset] = None


class Cursor:
    """Reads a partition for a process, in order, whenever it can."""

    def __init__(self, process: Any, tp: TopicPartition, position: int, take: Callable[[Entry], None]) -> None:
        self.process = process
        self.tp = tp
        self.position = position
        self._take = take
        self._is_due = False
        self._is_closed = False
        process.world.cursors[tp].append(self)
        self.wake()

    def close(self) -> None:
        self._is_closed = True
        self.process.world.cursors[self.tp].remove(self)

    def wake(self) -> None:
        if not self._is_due and self.process.reads_log:
            self._is_due = True
            self.process.world.after(self.process.read_delay(), self._read)

    def _read(self) -> None:
        self._is_due = False
        if not self._is_closed and self.process.reads_log:
            self.process.enter(self._read_all)

    def _read_all(self) -> None:
        log = self.process.world.log[self.tp]
        while self.position < len(log) and not self._is_closed and not self.process.is_over:
            entry = log[self.position]
            self.position += 1
            if entry is not None:
                self._take(entry)
