"""The subscriber's core over two logs in memory, with an application that is killed, and what must hold of it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from edge.feed_subscriber.batch import Batch, Part, SearchResult
from edge.feed_subscriber.core import SubscriberCore
from edge.feed_subscriber.following import Command, Follow, TakeUp, Unfollow
from edge.feed_subscriber.items import FeedDelivery, FeedItem, Lost
from edge.feed_subscriber.limits import FeedLimits
from edge.feed_subscriber.replay import ReadPosition
from edge.feed_subscriber.state import StateChange, StoredState
from feeds.merge_state import StreamState
from feeds.message import Feed, FeedMessage, stream_id
from feeds.pairing import FeedSource, SourceFormat
from feeds.passed import PassedRecord
from feeds.registry_records import SLOTS, AdapterBeat, Assignment, RegistryKey
from feeds.state_codec import decode_state, encode_state
from schemas.feed_words import Slot, SubscriberMode

NAME = "radar"
STREAM = stream_id("radar", 0)
SOURCE = FeedSource(format=SourceFormat.MODE_S, name="radar", sequencer="s")
BEAT_S = 0.2


class Logged(NamedTuple):
    """A record; its offset is its place in the log."""

    content: FeedMessage | PassedRecord
    append_ms: int


Log = list[Logged]


def message(sequence: int, stream: str = STREAM, part: int = 0, payload: bytes = b"x") -> FeedMessage:
    return FeedMessage(stream, sequence, part, sequence, 7, "adapter", payload)


def passed(sequence: int, stream: str = STREAM) -> PassedRecord:
    return PassedRecord(stream, sequence, 0, 0, "adapter")


class MemoryStore:
    """What was committed, through the codec of the file."""

    def __init__(self, limits: FeedLimits) -> None:
        self._limits = limits
        self._streams: dict[str, bytes] = {}
        self._partitions: dict[int, ReadPosition] = {}
        self._ended: dict[str, int] = {}
        self._current = Feed.ACTIVE

    def commit(self, change: StateChange) -> None:
        for name, state in change.streams.items():
            self._streams.pop(name, None)
            if state is not None:
                self._streams[name] = encode_state(state)
        for partition, position in change.partitions.items():
            self._partitions.pop(partition, None)
            if position is not None:
                self._partitions[partition] = position
        self._ended |= change.ended
        self._current = self._current if change.current is None else change.current

    def recover(self) -> StoredState:
        streams: tuple[StreamState, ...] = tuple(
            decode_state(one, self._limits.merge) for one in self._streams.values()
        )
        return StoredState(streams, dict(self._partitions), dict(self._ended), self._current)


class Harness:
    """`logs` by partition, of which the first half is the active slot's. `seen` is what the application has done, as if
    it kept that in one transaction with its commits: a kill undoes what was not committed."""

    def __init__(
        self,
        logs: Sequence[Log],
        limits: FeedLimits | None = None,
        mode: SubscriberMode = "warm",
        begins: Mapping[str, int] | None = None,
    ) -> None:
        self.logs, self.limits, self._mode, self._begins = logs, limits or FeedLimits(), mode, begins or {}
        self._store = MemoryStore(self.limits)
        self.now = 1000.0
        self.alive: dict[Feed, bool] = {}
        """Adapters that write beats."""
        self._beats = 0
        self.taken_up_at: dict[int, int] = {}
        """Where a partition is taken up, instead of where it should be."""
        self.seen: list[FeedItem] = []
        self._committed = self._durable = 0
        self.open()

    # -- life ----------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        self._taken: dict[int, tuple[int, int]] = {}  # by partition that is read: episode, next offset
        stored = self._store.recover()
        self.core = SubscriberCore(
            NAME, len(self.logs), self.limits, self._mode, stored, self.now, {} if stored.partitions else self._begins
        )
        fresh = {partition: ReadPosition(0, 0) for partition in range(len(self.logs))}
        self._execute(self.core.start(fresh))
        self.core.clock.note(self.now, is_read=True)  # from now on it runs
        self._save()

    def kill(self) -> None:
        """And starts again."""
        del self.seen[self._durable :]
        self._committed = self._durable
        self.open()

    # -- steps ---------------------------------------------------------------------------------------------------------

    def read(self, partition: int, count: int = 1) -> None:
        """The next records of a partition, if it is read."""
        if partition not in self._taken:
            return
        episode, offset = self._taken[partition]
        records = self.logs[partition][offset : offset + count]
        if not records:
            return
        parts: list[Part] = []
        for record in records:
            if isinstance(record.content, PassedRecord):
                parts.append(record.content)
            elif parts and isinstance(parts[-1], list):
                parts[-1].append(record.content)
            else:
                parts.append([record.content])
        end = ReadPosition(offset + len(records), records[-1].append_ms)
        self._taken[partition] = episode, end.offset
        self.core.take_batch(Batch(partition, episode, parts, end), self.now)

    def read_all(self) -> None:
        for partition in range(len(self.logs)):
            self.read(partition, 10_000)

    def wait(self, seconds: float, *, is_read: bool | None = None) -> None:
        """Time passes, in small steps, with beats."""
        steps = max(1, round(seconds / 0.05))
        for _ in range(steps):
            self.now += seconds / steps
            for feed, is_alive in self.alive.items():
                if is_alive:
                    self.beat(feed)
            up_to_date = all(offset >= len(self.logs[partition]) for partition, (_, offset) in self._taken.items())
            self._execute(self.core.tick(self.now, is_read=up_to_date if is_read is None else is_read))

    def beat(self, feed: Feed) -> None:
        self._beats += 1
        beat = AdapterBeat(boot=1, seq=self._beats, slot=SLOTS[feed], state="up", at_us=0, machine="m", source=SOURCE)
        self.core.take_registry(RegistryKey("adapter", NAME, f"a{feed}"), beat, self.now, is_old=False)

    def assign(self, slot: Slot, revision: int) -> None:
        record = Assignment(active=slot, revision=revision, reason="test", by="me", at_us=0)
        self.core.take_registry(RegistryKey("assignment", NAME), record, self.now, is_old=False)

    def search(self, records_max: int = 10_000) -> bool:
        """Whether there was something to search for. Searches that begin too late are as if the log began there."""
        wanted = self.core.next_search()
        if wanted is None:
            return False
        log = self.logs[wanted.partition][:records_max]
        found = [
            one.content
            for one in log
            if isinstance(one.content, FeedMessage)
            and any(s == one.content.stream and a <= one.content.sequence <= b for s, a, b in wanted.ranges)
        ]
        reached = [
            (stream, first, last)
            for stream, first, last in wanted.ranges
            if any(_is_beyond(one, stream, last) for one in log)
        ]
        self.core.take_search(SearchResult(wanted, found, reached, ended=True), self.now)
        return True

    def take(self, count: int, *, commits: bool = True, saves: bool = True) -> None:
        """The application takes items, commits them, and waits until that is durable."""
        for _ in range(count):
            item = self.core.outputs.next()
            if item is None:
                break
            self.seen.append(item)
            if commits:
                self.core.commit(item.ordinal)
                self._committed = len(self.seen)
        if saves:
            self._save()

    # -- what was seen -------------------------------------------------------------------------------------------------

    def of(self, kind: type[FeedItem]) -> list[FeedItem]:
        return [one for one in self.seen if isinstance(one, kind)]

    def numbers(self, stream: str = STREAM, *, late: bool | None = None) -> list[int]:
        """That were delivered, in order."""
        return [
            one.sequence
            for one in self.seen
            if isinstance(one, FeedDelivery) and one.stream == stream and not one.part and late in (None, one.late)
        ]

    def lost(self, stream: str = STREAM) -> list[int]:
        return [
            number
            for one in self.seen
            if isinstance(one, Lost) and one.stream == stream
            for number in range(one.first, one.last + 1)
        ]

    def _save(self) -> None:
        change = self.core.changes()
        if change is not None:
            self._store.commit(change)
        self._durable = self._committed

    def _execute(self, commands: Sequence[Command]) -> None:
        for command in commands:
            if isinstance(command, Unfollow):
                for partition in command.partitions:
                    self._taken.pop(partition, None)
            else:
                self._follow(command)

    def _follow(self, command: Follow) -> None:
        for partition, where in command.partitions.items():
            if isinstance(where, TakeUp):
                log = self.logs[partition]
                offset = next((at for at, one in enumerate(log) if one.append_ms >= where.append_ms), len(log))
                offset = min(self.taken_up_at.get(partition, offset), len(log))
                position = ReadPosition(offset, log[offset - 1].append_ms if offset else 0)
            else:
                position = where
            self._taken[partition] = command.episode, position.offset
            self.core.started(partition, command.episode, position)


def either(logs: Sequence[Log]) -> list[int]:
    """The numbers of STREAM that one of the logs has."""
    return sorted(
        {
            one.content.sequence
            for log in logs
            for one in log
            if isinstance(one.content, FeedMessage) and one.content.stream == STREAM and not one.content.part
        }
    )


def _is_beyond(record: Logged, stream: str, last: int) -> bool:
    """Whether nothing up to `last` is expected behind it."""
    is_word = isinstance(record.content, PassedRecord)
    return record.content.stream == stream and record.content.sequence + is_word > last
