"""A merger with what it was given and what it decided, and checks of what must hold of any such history (S3)."""

import msgspec

from feeds.merge import Merger
from feeds.merge_events import Delivered, Duplicate, Event, Expired, Late, Lost, Refused
from feeds.merge_inputs import Begin, Copy, Input
from feeds.merge_settings import MergeSettings
from feeds.merge_state import MergerState
from feeds.message import Feed, FeedMessage, stream_id

STREAM = stream_id("radar", 0)
ONCE = (Delivered, Late, Duplicate, Expired, Refused)
A, B = Feed.ACTIVE, Feed.BACKUP

Key = tuple[str, int, int]


def message(sequence: int, stream: str = STREAM, part: int = 0, payload: bytes | None = None) -> FeedMessage:
    """The content depends on little, so it repeats legitimately."""
    content = b"%d" % (sequence % 3) if payload is None else payload
    return FeedMessage(stream, sequence, part, sequence, 0, "adapter", content)


def key_of(message: FeedMessage) -> Key:
    return message.stream, message.sequence, message.part


class MergeRun:
    """Applies inputs and writes down everything."""

    def __init__(self, settings: MergeSettings = MergeSettings(), merger: Merger | None = None) -> None:  # noqa: B008
        self.settings = settings
        self.merger = merger or Merger(settings)
        self.inputs: list[Input] = []
        self.events: list[list[Event]] = []
        self.starts: dict[str, int] = {}
        self.now_ms = 0.0

    def apply(self, given: Input) -> list[Event]:
        is_new = isinstance(given, Begin) and given.stream not in self.streams()
        self.inputs.append(given)
        self.events.append(self.merger.apply(given, self.now_ms))
        if is_new and isinstance(given, Begin) and given.stream in self.streams():  # an ended epoch does not begin anew
            self.starts[given.stream] = given.sequence
        return self.events[-1]

    def copy(self, feed: Feed, sequence: int, part: int = 0, payload: bytes | None = None) -> list[Event]:
        return self.apply(Copy(feed, message(sequence, part=part, payload=payload)))

    def found(self, feed: Feed, sequence: int) -> list[Event]:
        """In the feed's log."""
        return self.apply(Copy(feed, message(sequence), from_log=True))

    def wait(self, ms: float) -> list[Event]:
        """What the timer does by then."""
        self.now_ms += ms
        found: list[Event] = []
        while proposals := self.merger.proposals(self.now_ms):
            for one in proposals:
                found += self.apply(one)
        return found

    @property
    def all_events(self) -> list[Event]:
        return [event for events in self.events for event in events]

    def streams(self) -> set[str]:
        return {one.stream for one in self.merger.export().streams}

    def seen(self, stream: str = STREAM) -> list[int]:
        """What the subscriber got, in order, without administrative messages and what was late."""
        delivered = [event.message for event in self.all_events if isinstance(event, Delivered)]
        return [one.sequence for one in delivered if one.stream == stream and not one.part]

    def lost(self, stream: str = STREAM) -> list[int]:
        ranges = [event for event in self.all_events if isinstance(event, Lost) and event.stream == stream]
        return [number for one in ranges for number in range(one.first, one.last + 1)]


def restored(merger: Merger, settings: MergeSettings, now_ms: float) -> Merger:
    """Another one that continues from the stored state."""
    stored = msgspec.msgpack.encode(merger.export())
    return Merger(settings, msgspec.msgpack.decode(stored, type=MergerState), now_ms)


def check(run: MergeRun) -> None:
    """Each copy has one outcome; each number is delivered once at most, in order, or reported lost, once; a duplicate
    is a copy of what was delivered or is held, and what was lost is never called a duplicate."""
    accepted, given_up, last = set[Key](), set[tuple[str, int]](), dict[str, tuple[int, int]]()
    pending = dict[Key, int]()
    for given, events in zip(run.inputs, run.events, strict=True):
        if isinstance(given, Copy):
            pending[key_of(given.message)] = pending.get(key_of(given.message), 0) + 1
        for event in events:
            if isinstance(event, Lost):
                numbers = {(event.stream, number) for number in range(event.first, event.last + 1)}
                assert not numbers & given_up
                given_up |= numbers
                assert last.get(event.stream, (-1, 0)) < (event.first, 0)
                last[event.stream] = event.last, 0
            if not isinstance(event, ONCE):
                continue
            key = stream, sequence, part = key_of(event.message)
            pending[key] -= 1
            assert pending[key] >= 0
            if isinstance(event, Delivered):
                assert key not in accepted
                assert part or (stream, sequence) not in given_up
                assert last.get(stream, (-1, 0)) < (sequence, part) or part
                last[stream] = max(last.get(stream, (-1, 0)), (sequence, part))
                accepted.add(key)
            elif isinstance(event, Late):
                assert key not in accepted
                if event.deliver:
                    accepted.add(key)
            elif isinstance(event, Duplicate):
                assert key in accepted or pending[key] > 0 or sequence < run.starts.get(stream, 0)
    assert not any(pending.values()), "after everything was given up nothing may be held"
