"""The merge of redundant feeds in one shard, for its subscribers by MQTT (S3, S6). Pure: time comes in.

Theory of operation. Both adapters' copies come to a shard as instructions. For each feed the shard has a merger
(:mod:`feeds.merge`), which is a fold: it takes the copies in the order of `egress[shard]`, and the timer's decisions
where they stand there (:mod:`gateway.shard.feed_records`). Nothing else decides. So every life of the home, and every
other home, comes to the same decisions, however often it reads the records. A decision that is written late, because
the home has not read all that is there, does no harm either: it stands behind those records, and finds no gap.

What is merged gets a *release*: its number in the order of all that the shard has merged, and the position of the
record that let it go. Copies may be held, and so leave in another order than they came in. Therefore the order of
releases, and not of positions, is the one in which sessions get them, and by which they remember what is settled
(:mod:`gateway.shard.cursor`). Whoever subscribes gets what is released from then on: no gap, whichever copy is the
first.

A restart takes up the state of the last checkpoint, which has applied all records before `applied_to`. It reads three
kinds of those again: copies that were held, to hold them again; copies that were released and not finished, to offer
them again, in the order of their releases; and further instructions. From `applied_to` on it goes on as before. So what
is held, like what is live, keeps the position from which a restart reads; the deadline and the limits bound both.

Where gateways share the shards, an owner that has lost the shard may still write decisions, or its Kafka client may:
they follow from what it knew long ago, by its timer. So the first record of each owner is a fence, and what homes of
lower epochs have written behind it is void. The order on `egress[shard]` says so, and nothing else, so this is a part
of the fold too; the highest epoch so far belongs to the state.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from feeds.merge_settings import MergeSettings
from feeds.message import FEEDS
from gateway.shard.feed_records import DECISIONS_AT_MOST, Decided, DecisionRecord, FeedCopy
from gateway.shard.feed_states import VERSION, SourcePlaces, SourceState
from gateway.shard.merged_feed import MergedFeed, Verdict
from gateway.shard.messages import PendingMessage, Release
from gateway.shard.window import CopyWindows


class Merged(NamedTuple):
    """What becomes of a copy: it is released; or with None dropped, and its instructions are to be relinquished."""

    copy: FeedCopy
    release: Release | None


class FeedsPosition(msgspec.Struct):
    """What belongs to the shard's positions: `number` of the last commit that counts
    (:mod:`gateway.shard.feed_states`); the records before `applied_to` are applied; `released` is how many releases
    there were; `windows` as in :class:`gateway.shard.shard.ShardPosition`, for copies; `live`: position, and the
    release's number, position, and whether it is late, of what was not finished; `dead`: the slots that are, by
    feed; `epoch`: the highest one in which a home has written any of the records that are applied."""

    number: int
    applied_to: int
    released: int
    windows: list[tuple[str, int, int, bytes]]
    live: list[tuple[int, int, int, bool]]
    dead: dict[str, tuple[bool, ...]]
    epoch: int = 0


class MergedFeeds:
    """The feeds `names` of one shard. A slot is dead after `silent_ms`. What happens is counted in `counts`."""

    def __init__(
        self,
        names: Sequence[str] = (),
        settings: MergeSettings | None = None,
        silent_ms: float = 1_000,
        counts: Counter[str] | None = None,
    ) -> None:
        self._names = frozenset(names)
        self._settings = settings or MergeSettings(recovers=False, compared=1)
        self._silent_ms = silent_ms
        self._counts: Counter[str] = Counter() if counts is None else counts
        self._feeds: dict[str, MergedFeed] = {}
        self._places = SourcePlaces()
        self._to_write: dict[tuple[str, str], None] = {}
        self._released = 0
        self._is_stored = False
        self._epoch = 0
        self._again: dict[int, tuple[Release, FeedCopy | None]] = {}  # by position, in the order of releases
        self.copies = CopyWindows()
        self.applied_to = 0

    def has(self, name: str) -> bool:
        """Whether this is one of the feeds."""
        return name in self._names

    # -- inputs, in the order of egress[shard] -------------------------------------------------------------------------

    def counts(self, epoch: int) -> bool:
        """Whether what a home has written in `epoch` counts: not behind a record of a higher epoch. What has none, as
        of earlier versions, always does."""
        if not epoch:
            return True
        if epoch < self._epoch:
            return False
        self._epoch = epoch
        return True

    def take(self, copy: FeedCopy, now_ms: float) -> list[Merged]:
        """A copy that was not applied before; what becomes of it, and of those that it lets go."""
        feed = self._feeds.get(copy.name)
        if feed is None:
            feed = self._feeds[copy.name] = self._new_feed(copy.name, now_ms)
        self._counts["feed_copies"] += copy.instruction is not None
        return [self._released_or_dropped(*one, copy.position) for one in feed.take(copy, now_ms)]

    def decide(self, record: DecisionRecord, position: int, now_ms: float) -> list[Merged]:
        """Decisions of the timer, read back at `position`."""
        feed = self._feeds.get(record.name)
        if feed is None:
            return []
        let_go = chain.from_iterable(feed.decide(one, now_ms) for one in record.decisions)
        return [self._released_or_dropped(*one, position) for one in let_go]

    def found_again(self, copy: FeedCopy) -> list[Merged]:
        """A copy that was applied before a restart, and is not finished; what is to be offered again by now."""
        feed = self._feeds.get(copy.name)
        if feed is not None and feed.found_again(copy):
            return []
        if copy.position not in self._again:
            return [Merged(copy, None)]
        self._again[copy.position] = self._again[copy.position][0], copy
        return [*self._offered_again(is_over=False)]

    def refused(self, position: int) -> list[Merged]:
        """The record at a position cannot be read, so it is not to be offered again; what is to be by now."""
        return [*self._offered_again(is_over=False)] if self._again.pop(position, None) else []

    def nothing_again(self) -> list[Merged]:
        """What was to be read again has come, or Kafka does not have it any more."""
        return [*self._offered_again(is_over=True)] if self._again else []

    # -- the timer -----------------------------------------------------------------------------------------------------

    def due_ms(self) -> float | None:
        """When the timer has something to decide; None if nothing is missing, and no stream is old."""
        return min((due for feed in self._feeds.values() if (due := feed.due_ms()) is not None), default=None)

    def proposals(self, now_ms: float, *, may_give_up: bool) -> Iterator[tuple[str, list[Decided]]]:
        """What the timer decides, by feed, in as many lists as it takes records: :meth:`MergedFeed.proposals`."""
        for name, feed in self._feeds.items():
            found = feed.proposals(now_ms, may_give_up=may_give_up)
            for start in range(0, len(found), DECISIONS_AT_MOST):
                yield name, found[start : start + DECISIONS_AT_MOST]

    def awake(self) -> list[str]:
        """The feeds of which a stream is not asleep."""
        return [name for name, feed in self._feeds.items() if feed.is_awake]

    # -- what a checkpoint stores --------------------------------------------------------------------------------------

    @property
    def held(self) -> int:
        """How many copies wait behind gaps."""
        return sum(len([*feed.held_at]) for feed in self._feeds.values())

    def positions(self) -> set[int]:
        """Positions on `egress[shard]` of copies that are held, and of those that are still to be offered again."""
        return {*self._again, *chain.from_iterable(feed.held_at for feed in self._feeds.values())}

    def further(self) -> set[int]:
        """Positions of further instructions for these."""
        return {at for copy in self._waiting() for at in copy.copies}

    def find(self, place: tuple[int, int]) -> FeedCopy | None:
        """The copy at `place` on `ingress` that is held, or is to be offered again."""
        return next((copy for copy in self._waiting() if copy.place == place), None)

    def save(self, position: int, live: Iterable[PendingMessage]) -> tuple[dict[bytes, bytes], bytes | None]:
        """For a commit, with the shard at `position`: the records of sources that have changed, by key; and what
        belongs to the positions, None if there never was a copy."""
        self.applied_to = max(self.applied_to, position)
        for name, feed in self._feeds.items():
            self._to_write |= dict.fromkeys((name, source) for source in feed.take_changed())
        if not (self._feeds or self._to_write or self._is_stored or self._epoch):
            return {}, None
        self._is_stored = True
        written = dict[bytes, bytes]()
        if self._to_write:
            number = self._places.next_number()
            written = dict(self._places.put(self._state_of(*source, number)) for source in self._to_write)
            self._to_write.clear()
        releases = {at: release for at, (release, _) in self._again.items()}
        releases |= {pending.position: pending.release for pending in live if pending.release is not None}
        of_live = [(at, *release) for at, release in sorted(releases.items(), key=lambda item: item[1])]
        dead = {name: feed.dead for name, feed in self._feeds.items()}
        windows = self.copies.save()
        saved = FeedsPosition(self._places.number, self.applied_to, self._released, windows, of_live, dead, self._epoch)
        return written, msgspec.msgpack.encode(saved)

    def restore(self, stored: Iterable[tuple[bytes, bytes]], raw: bytes | None, now_ms: float) -> None:
        """Takes up what the spool has, once, before anything else. What it has of a feed that is not one of `names` any
        more is removed, as decisions about it are not read back: the feed begins anew if it is named again."""
        saved = FeedsPosition(0, 0, 0, [], [], {}) if raw is None else msgspec.msgpack.decode(raw, type=FeedsPosition)
        states, uncommitted = self._places.restore(stored, saved.number)
        self._to_write = dict.fromkeys(uncommitted)
        self._is_stored = raw is not None
        self._released, self.applied_to, self._epoch = saved.released, saved.applied_to, saved.epoch
        self.copies.restore(saved.windows)
        self._again = {at: (Release(number, place, is_late), None) for at, number, place, is_late in saved.live}
        by_feed: dict[str, list[SourceState]] = {name: [] for name in saved.dead if self.has(name)}
        for state in states:
            if self.has(state.name):
                by_feed.setdefault(state.name, []).append(state)
            else:
                self._to_write[state.key] = None
        for name, of in by_feed.items():
            self._feeds[name] = self._new_feed(name, now_ms)
            self._feeds[name].restore(of, saved.dead.get(name, (False,) * len(FEEDS)), now_ms)

    # -- within --------------------------------------------------------------------------------------------------------

    def _new_feed(self, name: str, now_ms: float) -> MergedFeed:
        return MergedFeed(name, self._settings, self._silent_ms, self._counts, now_ms)

    def _released_or_dropped(self, copy: FeedCopy, verdict: Verdict, position: int) -> Merged:
        if verdict == "dropped":
            return Merged(copy, None)
        self._released += 1
        self._counts["feed_delivered"] += 1
        self._counts["feed_late"] += verdict == "late"
        return Merged(copy, Release(self._released, position, verdict == "late"))

    def _offered_again(self, *, is_over: bool) -> Iterator[Merged]:
        for position, (release, copy) in list(self._again.items()):
            if copy is None and not is_over:
                return
            del self._again[position]
            if copy is not None:
                yield Merged(copy, release)

    def _waiting(self) -> Iterator[FeedCopy]:
        for feed in self._feeds.values():
            yield from feed.held
        yield from (copy for _, copy in self._again.values() if copy is not None)

    def _state_of(self, name: str, source: str, number: int) -> SourceState:
        feed = self._feeds.get(name)
        if feed is None:
            return SourceState(VERSION, number, name, source, None, [], [], [])
        return feed.state_of(source, number)
