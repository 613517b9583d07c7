"""The subscriber without I/O: batches of both slots, beats and time in; items, commands and what to store out (S3, S6).

Theory of operation. The merger runs ahead of the application. Its events become items; when the application commits
an item, the items up to it are applied to the views of their source streams (:mod:`.merging`), and batches of which
nothing is left are forgotten (:mod:`.replay`). What is stored is the views that have changed, and per partition the
offset of the oldest batch that is left. A restart reads from there: what the views have is dropped as a duplicate, and
the rest comes again. So nothing is missing, and nothing that was committed comes again, however the two copies
interleave this time.

Time is the reading time of :mod:`.reading_clock`.
"""

from collections.abc import Mapping
from typing import Final

from edge.feed_subscriber.batch import Batch, Search, SearchResult
from edge.feed_subscriber.following import Command, Following, TakeUp
from edge.feed_subscriber.items import Gap, Switched
from edge.feed_subscriber.limits import FeedLimits
from edge.feed_subscriber.merging import Merging
from edge.feed_subscriber.reading_clock import ReadingClock
from edge.feed_subscriber.replay import ReadPosition, ReplayPosition
from edge.feed_subscriber.searches import Searches
from edge.feed_subscriber.slots import Slots
from edge.feed_subscriber.state import StateChange, StoredState
from edge.feed_subscriber.stream_view import Place
from feeds.merge_inputs import Alive, Copy, Dead, Searched
from feeds.message import FEEDS, Feed, partition_of
from feeds.registry_records import SLOTS, RegistryKey, RegistryRecord
from schemas.feed_words import SubscriberMode

_SEARCH_MS: Final = 100


class SubscriberCore:
    """Of the feed named `feed`, whose topic has `partitions`. `begins`: numbers with which source streams begin, unless
    they are stored. Raises FeedStateError for a state that is contradictory."""

    def __init__(
        self,
        feed: str,
        partitions: int,
        limits: FeedLimits,
        mode: SubscriberMode,
        stored: StoredState,
        now: float,
        begins: Mapping[str, int],
        *,
        has_snapshots: bool = False,
    ) -> None:
        self._limits, self._partitions = limits, partitions
        self.clock = ReadingClock(now)
        self._merging = Merging(limits, stored, begins, has_snapshots=has_snapshots)
        self.outputs, self.counts = self._merging.outputs, self._merging.counts
        self._slots = Slots(feed, limits.adapter_timeout_s, limits.adapters)
        self._following = Following(mode, partitions, stored.current, frozenset())
        self._searches = Searches(limits.search_again_ms / 1000)
        self._positions: dict[int, ReplayPosition] = {}
        self._episodes: dict[int, int] = {}  # of partitions that are read, or are to be read
        self._stored_positions = dict(stored.partitions)
        self._stored_current = stored.current
        self._is_read = False  # by the last news of it

    # -- which partitions are read -------------------------------------------------------------------------------------

    def start(self, fresh: Mapping[int, ReadPosition]) -> list[Command]:
        """What is to be read first: what is stored, or else the `fresh` positions."""
        following, stored = self._following, self._stored_positions
        if not stored and following.is_cold:
            following.switch(self._slots.preferred)
        wanted = {following.current} if following.is_cold else set(FEEDS)
        found: list[Command] = []
        for feed in sorted(wanted | {following.feed_of(partition) for partition in stored}):
            partitions: dict[int, ReadPosition | TakeUp] = {}
            for partition in following.partitions_of(feed):
                sibling = stored.get(following.sibling(partition))
                if partition in stored:
                    partitions[partition] = stored[partition]
                elif sibling is not None:
                    partitions[partition] = self._take_up(sibling.append_ms)
                else:
                    partitions[partition] = fresh[partition]
            found.append(self._follow(feed, partitions))
            if any(isinstance(one, TakeUp) for one in partitions.values()):
                self._merging.reposition(feed, 0.0)
        for feed in set(FEEDS) - following.followed:
            self._merging.reposition(feed, 0.0)
        return found

    def started(self, partition: int, episode: int, position: ReadPosition) -> None:
        """A partition is read from there on."""
        if self._episodes.get(partition) != episode:
            return
        if partition in self._positions:
            self._positions[partition].move(position)
        else:
            self._positions[partition] = ReplayPosition(position)

    @property
    def is_started(self) -> bool:
        """Whether all partitions that were to be read are."""
        return all(partition in self._positions for partition in self._episodes)

    # -- inputs --------------------------------------------------------------------------------------------------------

    def take_batch(self, batch: Batch, now: float) -> None:
        """Records that were read; those of an earlier following of the partition are ignored."""
        position = self._positions.get(batch.partition)
        if position is None or self._episodes.get(batch.partition) != batch.episode:
            return
        now_s = self.clock.advance(now)
        feed = self._following.feed_of(batch.partition)
        places: dict[str, Place] = {}
        self.counts["malformed"] += batch.malformed
        for part in batch.parts:
            self._merging.take_part(feed, part, now_s, places)
        self._merging.begin_streams(now_s, self._expected)
        position.add(self._merging.without_ended(places), self.outputs.produced, batch.end)

    def take_registry(self, key: RegistryKey, record: RegistryRecord | None, now: float, *, is_old: bool) -> None:
        """A record of the topic `feeds`."""
        self._slots.apply(key, record, None if is_old else self.clock.advance(now))

    def take_search(self, result: SearchResult, now: float) -> None:
        """What a search in a log has found."""
        now_s = self.clock.advance(now)
        feed = self._following.feed_of(result.search.partition)
        for message in result.copies:
            self._merging.apply(Copy(feed, message, from_log=True), now_s)
        # Of a slot whose adapter is dead nothing more comes: the end of its log is beyond every number.
        is_complete = result.ended and self._slots.is_dead(feed)
        for stream, first, last in result.search.ranges if is_complete else result.reached:
            self._merging.apply(Searched(feed, stream, first, last), now_s)
        self._searches.done(now_s)

    def take_gaps(self) -> list[Gap]:
        """With snapshots: the gaps that were found since the last time. Each is to be answered by
        :meth:`take_snapshot`, within its deadline: until then it is not given up because both feeds have passed it."""
        return self._merging.take_gaps()

    def take_snapshot(self, gap: Gap, found: Mapping[int, bytes], now: float) -> None:
        """The payloads that a snapshot has of a gap, by number; empty if it has none."""
        self._merging.take_snapshot(self._following.current, gap, found, self.clock.advance(now))

    def tick(self, now: float, *, is_read: bool | None = None) -> list[Command]:
        """What time does; `is_read`: news of whether all is read. Returns what is to be read from now on."""
        if is_read is not None:
            self.clock.note(now, is_read=is_read)
            self._is_read = is_read
        now_s = self.clock.advance(now)
        self._merging.begin_streams(now_s, self._expected)
        for feed, item in self._slots.changes(now_s):
            self.outputs.add(Switched, slot=item.slot, what=item.what, adapter=item.adapter, reason=item.reason)
            if item.what != "assigned" and not self._following.is_cold:
                self._merging.apply(Dead(feed) if item.what == "dead" else Alive(feed), now_s)
        self._merging.tick(now_s, self._is_gone)
        return self._follow_wanted(now_s) if self._following.is_cold else []

    def due_s(self) -> float | None:
        """After how many seconds :meth:`tick` or :meth:`next_search` has something to do; None: not before something
        comes, or before the clock runs."""
        if not self.clock.is_running:
            return None
        now_s = self.clock.now_s
        due = (self._merging.due(now_s), self._slots.due(now_s), self._searches.due(self._merging.has_requests, now_s))
        return min((max(0.0, one - now_s) for one in due if one is not None), default=None)

    def next_search(self) -> Search | None:
        """What is to be searched for in a log now; its result is to be given before there is another one."""
        if not self._searches.is_due(self._merging.has_requests, self.clock.now_s):
            return None
        found: dict[int, list[tuple[str, int, int]]] = {}
        for one in self._merging.unread(self._following.followed):
            partition = partition_of(one.feed, one.stream, self._partitions)
            found.setdefault(partition, []).append((one.stream, one.first, one.last))
        return self._searches.begin([Search(at, ranges, self._missing_ms(at)) for at, ranges in found.items()])

    # -- the application -----------------------------------------------------------------------------------------------

    def commit(self, ordinal: int) -> None:
        """The application is done with all items up to this one."""
        self._merging.commit(ordinal)

    def changes(self) -> StateChange | None:
        """What is to be stored since the last time; None: nothing."""
        streams, ended = self._merging.changes()
        partitions: dict[int, ReadPosition | None] = {}
        for partition, position in list(self._positions.items()):
            position.release(self.outputs.committed, self._merging.is_committed)
            if position.is_done and partition not in self._episodes:
                del self._positions[partition]
                partitions[partition] = None
            elif position.again != self._stored_positions.get(partition):
                partitions[partition] = position.again
        for partition, stored in partitions.items():
            if stored is None:
                self._stored_positions.pop(partition, None)
            else:
                self._stored_positions[partition] = stored
        current = None if self._following.current is self._stored_current else self._following.current
        if not (streams or partitions or ended or current is not None):
            return None
        self._stored_current = self._following.current
        return StateChange(streams, partitions, ended, current)

    # -- inside --------------------------------------------------------------------------------------------------------

    @property
    def _expected(self) -> frozenset[Feed]:
        """The feeds that bring new source streams, for all that is known."""
        return frozenset(one for one in self._following.followed if not self._slots.is_dead(one))

    def _is_gone(self, feed: Feed) -> bool:
        return feed not in self._expected

    def _follow_wanted(self, now_s: float) -> list[Command]:
        """In mode cold: takes another slot up, and leaves the one that is not needed any more."""
        following = self._following
        wanted = following.wanted(self._slots, now_s, self._limits.adapter_timeout_s)
        if wanted is not following.current:
            following.switch(wanted)
            self.outputs.add(Switched, slot=SLOTS[wanted], what="read")
            if wanted in following.followed:
                return []
            partitions: dict[int, ReadPosition | TakeUp] = {}
            for partition in following.partitions_of(wanted):
                before = self._positions.get(following.sibling(partition))
                partitions[partition] = self._take_up(0 if before is None else before.read.append_ms)
            return [self._follow(wanted, partitions)]
        left = following.left
        if left is None or not (self.is_started and self._is_read and self._merging.is_quiet):
            return []
        for partition in following.partitions_of(left):
            self._episodes.pop(partition, None)
        self._merging.reposition(left, now_s)
        return [following.unfollow(left)]

    def _follow(self, feed: Feed, partitions: dict[int, ReadPosition | TakeUp]) -> Command:
        command = self._following.follow(feed, partitions)
        self._is_read = False
        for partition in partitions:
            self._episodes[partition] = command.episode
        return command

    def _take_up(self, append_ms: int) -> TakeUp:
        return TakeUp(max(0, append_ms - self._limits.take_up_ms))

    def _missing_ms(self, partition: int) -> int:
        """About when the records that are missing were appended to a partition: a little before the oldest that is not
        committed was appended to the other slot's. If that is too late, the search goes back."""
        sibling = self._positions.get(self._following.sibling(partition))
        return max(0, (0 if sibling is None else sibling.again.append_ms) - _SEARCH_MS)
