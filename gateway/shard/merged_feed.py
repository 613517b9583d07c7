"""The merge of one redundant feed in one shard: its merger, and the copies that it holds (S3, S6). Pure: time comes in.

:mod:`gateway.shard.merged_feeds` has the theory. A single adapter causes no waiting: without a gap nothing waits. With
one, the other slot is expected to have the number; if that has been silent for long, while the first one goes on, the
timer declares it dead, until its next copy. Time in which both were silent does not count: the source was.

Where a shard has had no route for a feed, it has got nothing of it. That is no gap: such a stream is *asleep*, and goes
on with the next copy. If that is the slower slot's, what the faster one brings waits for it as behind any gap: the
numbers between are on their way, and come in order. A stream is *old* from when its source has a newer epoch; after
the deadline the timer ends it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple

from feeds.merge import Merger
from feeds.merge_events import Delivered, Duplicate, Event, Expired, Late, Lost, Recovered, Refused, Suspected
from feeds.merge_inputs import Alive, Dead, Forget, GiveUp, Reason, Suspect
from feeds.merge_settings import MergeSettings
from feeds.merge_state import MergerState, StreamState
from feeds.message import FEEDS, NUMBER_MAX, Feed, FeedMessage, epoch_of, name_of
from gateway.shard.feed_records import Decided, FeedCopy
from gateway.shard.feed_states import VERSION, HeldState, SourceState

Verdict = Literal["next", "late", "dropped"]
"""What becomes of a copy: to be delivered, in order or late; or not."""

_Number = tuple[str, int, int]
"""Source stream, sequence, part."""

_DROPPED: Final[dict[type, str]] = {
    Late: "feed_late_dropped",
    Duplicate: "feed_duplicates",
    Expired: "feed_expired",
    Refused: "feed_refused",
}


class _Held(NamedTuple):
    """A copy that waits behind a gap; `copy` is None from a restart until it is read again."""

    position: int
    slot: int
    size: int
    copy: FeedCopy | None


class MergedFeed:
    """The feed `name`. What happens is counted in `counts`."""

    def __init__(
        self, name: str, settings: MergeSettings, silent_ms: float, counts: Counter[str], now_ms: float
    ) -> None:
        self._name = name
        self._settings = settings
        self._silent_ms = silent_ms
        self._counts = counts
        self._merger = Merger(settings, None, now_ms)
        self._held: dict[_Number, _Held] = {}
        self._held_at: dict[int, _Number] = {}
        self._sources: dict[str, dict[str, None]] = {}  # of each source the streams that are known
        self._source_of: dict[str, str] = {}
        self._asleep: set[str] = set()
        self._old: dict[str, float] = {}  # since when
        # Of each slot, since when the other one has brought what it has not; None if there is nothing.
        self._behind_ms: list[float | None] = [None for _ in FEEDS]
        self._last_ms = now_ms  # when either has brought one
        self._changed: dict[str, None] = {}

    # -- inputs --------------------------------------------------------------------------------------------------------

    def take(self, copy: FeedCopy, now_ms: float) -> list[tuple[FeedCopy, Verdict]]:
        """A copy that was not applied before; what is let go by it."""
        merger, stamps, slot = self._merger, copy.stamps, copy.slot
        events = merger.apply(Alive(slot), now_ms) if merger.dead[slot] else []
        events += merger.take(slot, (stamps,), now_ms)
        self._note_behind(slot, stamps, now_ms)
        if stamps.stream in self._asleep:
            events += self._wake(stamps, now_ms)
        self._note(stamps.stream, now_ms)
        is_new = copy.instruction is not None  # and no copy that the home may have written before
        if len(events) == 1 and type(events[0]) is Delivered and events[0].message is stamps:  # as it mostly is
            return [(copy, "next")]
        is_over, let_go = False, list[tuple[FeedCopy, Verdict]]()
        for event in events:
            if isinstance(event, Delivered | Late | Duplicate | Expired | Refused) and event.message is stamps:
                is_over = True
                verdict = _verdict_of(event)
                if verdict == "dropped" and is_new:
                    self._counts[_DROPPED[type(event)]] += 1
                let_go.append((copy, verdict))
            else:
                let_go += self._let_go(event)
        if not is_over:
            self._hold(
                (stamps.stream, stamps.sequence, stamps.part), _Held(copy.position, slot, len(stamps.payload), copy)
            )
        return let_go

    def decide(self, one: Decided, now_ms: float) -> list[tuple[FeedCopy, Verdict]]:
        """A decision of the timer; what is let go by it."""
        let_go = [one for event in self._decide(one, now_ms) for one in self._let_go(event)]
        if one.stream:
            self._changed[name_of(one.stream)] = None
        return let_go

    def found_again(self, copy: FeedCopy) -> bool:
        """A copy is read again after a restart; whether it is held."""
        number = self._held_at.get(copy.position)
        if number is None:
            return False
        self._held[number] = self._held[number]._replace(copy=copy)
        return True

    # -- the timer -----------------------------------------------------------------------------------------------------

    def due_ms(self) -> float | None:
        """When the timer has something to decide; None if nothing is missing, and no stream is old."""
        at = self._merger.due_ms()
        due = [] if at is None else [at, *(since + self._silent_ms for _, since in self._may_die())]
        if self._old:
            due.append(min(self._old.values()) + self._settings.deadline_ms)
        return min(due, default=None)

    def proposals(self, now_ms: float, *, may_give_up: bool) -> list[Decided]:
        """What the timer decides. With `may_give_up` False copies are known to be on their way: then nobody is declared
        dead, and nothing is lost."""
        forgotten = self._settings.deadline_ms
        found = [Decided("forget", stream) for stream, since in self._old.items() if since + forgotten <= now_ms]
        if may_give_up and self._merger.due_ms() is not None:
            silent = [slot for slot, since in self._may_die() if since + self._silent_ms <= now_ms]
            found += [Decided("dead", number=int(slot)) for slot in silent]
        for one in self._merger.proposals(now_ms):
            if isinstance(one, Suspect):
                found.append(Decided("suspect", one.stream, one.through))
            elif may_give_up:
                found.append(Decided("give_up", one.stream, one.through, one.reason))
        return found

    @property
    def is_awake(self) -> bool:
        """Whether a stream is known that is not asleep."""
        return len(self._source_of) > len(self._asleep)

    # -- what a checkpoint stores --------------------------------------------------------------------------------------

    @property
    def dead(self) -> tuple[bool, ...]:
        """Whether each slot is declared dead."""
        return self._merger.dead

    @property
    def held_at(self) -> Iterable[int]:
        """Positions on `egress[shard]` of what is held."""
        return self._held_at

    @property
    def held(self) -> list[FeedCopy]:
        """What is held, as far as it is here."""
        return [held.copy for held in self._held.values() if held.copy is not None]

    def take_changed(self) -> list[str]:
        """The sources that have changed since the last call."""
        changed, self._changed = [*self._changed], {}
        return changed

    def state_of(self, source: str, number: int) -> SourceState:
        """The state of a source, for the commit `number`."""
        streams = self._sources.get(source, {})
        states = [state for stream in streams if (state := self._merger.export_stream(stream)) is not None]
        held = list[HeldState]()
        for state in states:
            for _, stamps in state.held:
                of = self._held[stamps.stream, stamps.sequence, stamps.part]
                held.append(HeldState(stamps.stream, stamps.sequence, stamps.part, of.slot, of.position, of.size))
        asleep = [stream for stream in streams if stream in self._asleep]
        bare = [state._replace(held=()) for state in states]
        return SourceState(VERSION, number, self._name, source, self._merger.ended_epoch(source), asleep, bare, held)

    def restore(self, states: list[SourceState], dead: tuple[bool, ...], now_ms: float) -> None:
        """Takes up stored states, once, before anything else. What is held comes with `found_again`."""
        streams = list[StreamState]()
        for state in states:
            held: dict[str, list[tuple[int, FeedMessage]]] = {}
            for one in state.held:
                # As long as the payload, which is read again: the limit counts it.
                stamps = FeedMessage(one.stream, one.sequence, one.part, 0, 0, "", bytes(one.size))
                held.setdefault(one.stream, []).append((one.slot, stamps))
                self._hold((one.stream, one.sequence, one.part), _Held(one.position, one.slot, one.size, None))
            streams += [of._replace(held=tuple(held.get(of.stream, ()))) for of in state.streams]
            self._sources[state.source] = dict.fromkeys(of.stream for of in state.streams)
            self._source_of |= dict.fromkeys(self._sources[state.source], state.source)
            self._asleep.update(state.asleep)
            self._note_old(state.source, now_ms)
        ended = tuple((state.source, state.ended) for state in states if state.ended is not None)
        self._merger = Merger(self._settings, MergerState(tuple(streams), dead, ended), now_ms)

    # -- within --------------------------------------------------------------------------------------------------------

    def _note(self, stream: str, now_ms: float) -> None:
        source = self._source_of.get(stream)
        if source is None:
            if self._merger.export_stream(stream) is None:  # it was refused, or is over
                return
            source = self._source_of[stream] = name_of(stream)
            self._sources.setdefault(source, {})[stream] = None
            self._note_old(source, now_ms)
        self._changed[source] = None

    def _note_behind(self, slot: Feed, stamps: FeedMessage, now_ms: float) -> None:
        """Counts for how long the other slot has been silent while this one goes on; not the time before, in which both
        were."""
        behind, other = self._behind_ms, Feed(1 - slot)
        if now_ms - self._last_ms >= self._silent_ms:
            behind[other] = None
        behind[slot], self._last_ms = None, now_ms
        if behind[other] is None and self._merger.is_behind(other, stamps):
            behind[other] = now_ms

    def _note_old(self, source: str, now_ms: float) -> None:
        newest = max(self._sources[source], key=epoch_of, default=None)
        for stream in self._sources[source]:
            if stream != newest:
                self._old.setdefault(stream, now_ms)

    def _hold(self, number: _Number, held: _Held) -> None:
        self._held[number] = held
        self._held_at[held.position] = number

    def _decide(self, one: Decided, now_ms: float) -> list[Event]:
        match one.kind:
            case "suspect":
                return self._merger.apply(Suspect(one.stream, one.number), now_ms)
            case "give_up":
                return self._merger.apply(GiveUp(one.stream, one.number, Reason(one.reason)), now_ms)
            case "dead":
                return self._merger.apply(Dead(Feed(one.number)), now_ms)
            case "pause":
                return self._pause(now_ms)
            case "forget":
                self._source_of.pop(one.stream, None)
                self._sources.get(name_of(one.stream), {}).pop(one.stream, None)
                self._asleep.discard(one.stream)
                self._old.pop(one.stream, None)
                return self._merger.apply(Forget(one.stream), now_ms)

    def _pause(self, now_ms: float) -> list[Event]:
        events: list[Event] = []
        for stream, source in self._source_of.items():
            if stream not in self._asleep:
                events += self._skip(stream, NUMBER_MAX, now_ms)
                self._asleep.add(stream)
                self._changed[source] = None
        return events

    def _wake(self, stamps: FeedMessage, now_ms: float) -> list[Event]:
        """What is between the last number before and this one is no gap."""
        self._asleep.discard(stamps.stream)
        return self._skip(stamps.stream, stamps.sequence if stamps.part else stamps.sequence - 1, now_ms)

    def _skip(self, stream: str, through: int, now_ms: float) -> list[Event]:
        events = self._merger.apply(GiveUp(stream, through, Reason.PASSED), now_ms)
        return [one for one in events if not isinstance(one, Lost)]

    def _may_die(self) -> Iterator[tuple[Feed, float]]:
        """Slots that are not dead while only the other one brings copies, and since when it does."""
        for slot in FEEDS:
            since = self._behind_ms[slot]
            if since is not None and not self._merger.dead[slot]:
                yield slot, since

    def _let_go(self, event: Event) -> list[tuple[FeedCopy, Verdict]]:
        """What becomes of a copy that was held; and counts the rest."""
        match event:
            case Delivered(_, stamps):
                held = self._held.pop((stamps.stream, stamps.sequence, stamps.part))
                del self._held_at[held.position]
                if held.copy is None:  # Kafka does not have it any more
                    self._counts["feed_expired"] += 1
                    return []
                return [(held.copy, "next")]
            case Suspected():
                self._counts["feed_gaps"] += 1
            case Recovered():
                self._counts["feed_recovered"] += 1
            case Lost(_, first, last, _):
                self._counts["feed_lost"] += last - first + 1
        return []


def _verdict_of(event: Delivered | Late | Duplicate | Expired | Refused) -> Verdict:
    if isinstance(event, Delivered):
        return "next"
    return "late" if isinstance(event, Late) and event.deliver else "dropped"
