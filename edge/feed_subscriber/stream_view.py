"""A source stream as the application has committed it, and the merger's state that continues from there (S3).

The merger is ahead of the application. What is stored is therefore not its state, but what it would be if all that is
not committed had not been read: next number, what was lost, which administrative messages were given. What was read
since is read again, from the offsets in :mod:`edge.feed_subscriber.replay`. So a stored stream takes a few bytes, and
neither held messages nor gaps are in it.
"""

from typing import Final, Self

from edge.feed_subscriber.items import FeedDelivery, FeedItem, Lost
from feeds.administrative_parts import AdministrativeParts
from feeds.errors import FeedStateError
from feeds.lost_numbers import LostNumbers
from feeds.merge_settings import MergeSettings
from feeds.merge_state import StreamState
from feeds.message import FEEDS, Feed, FeedMessage

NOT_JOINED: Final = -1

Place = tuple[int, int]
"""Number and part."""


class StreamView:
    """Begins with number `next`. `first`: the number at which each feed was joined."""

    __slots__ = ("_lost", "_parts", "_settings", "first", "next", "place", "stream")

    def __init__(self, stream: str, next_number: int, settings: MergeSettings, *, is_start: bool) -> None:
        self.stream, self.next, self._settings = stream, next_number, settings
        self.place: Place = (next_number - 1, 0)
        """The last that is committed."""
        self.first = [next_number if is_start else NOT_JOINED for _ in FEEDS]
        before = [(0, next_number - 1)] if next_number and not is_start else []
        self._lost = LostNumbers(settings.lost_ranges, before)
        self._parts = AdministrativeParts(settings.administrative)

    @classmethod
    def restored(cls, state: StreamState, settings: MergeSettings) -> Self:
        """From what :meth:`state` gave. Raises FeedStateError if it is a state with gaps."""
        if state.gaps or state.held:
            raise FeedStateError(f"the state of {state.stream} has gaps, which a subscriber's has not")
        view = cls(state.stream, state.end, settings, is_start=True)
        view.first = list(state.first)
        view._lost = LostNumbers(settings.lost_ranges, state.lost, state.horizon)
        view._parts = AdministrativeParts(settings.administrative, state.parts, state.parts_horizon)
        return view

    def join(self, feed: Feed, first: int) -> None:
        """The feed has brought its first number, or one beyond `first` - 1."""
        if self.first[feed] == NOT_JOINED:
            self.first[feed] = first

    def leave(self, feed: Feed) -> None:
        """The feed is read on from another position, or no longer."""
        self.first[feed] = NOT_JOINED

    def commit(self, item: FeedItem) -> None:
        """The application is done with an item of this stream; items come in order."""
        match item:
            case Lost(first=first, last=last):
                self._lost.add(first, last)
                self._go_to(last, 0)
            case FeedDelivery(sequence=sequence, part=0, late=late):
                if late and sequence < self.next:  # a gateway's may be late for others, and new here
                    self._lost.remove(sequence)
                else:
                    self._go_to(sequence, 0)
            case FeedDelivery():
                self._parts.add(_as_message(item), self.next)
                self.place = max(self.place, (item.sequence, item.part))

    def has(self, item: FeedDelivery) -> bool:
        """Whether this message was given before."""
        if item.part:
            return _as_message(item) in self._parts or item.sequence < self._parts.horizon
        return item.sequence < self.next and item.sequence not in self._lost

    def state(self) -> StreamState:
        """The merger's, from which it continues. A feed that was joined before `next` has brought all before it."""
        first, highest = [], []
        for joined in self.first:
            is_followed = NOT_JOINED < joined <= self.next
            first.append(self.next if is_followed else joined)
            highest.append(self.next - 1 if is_followed else NOT_JOINED)
        return StreamState(
            self.stream,
            self.next,
            tuple(first),
            tuple(highest),
            (),
            self._lost.export(),
            self._lost.horizon,
            (),
            (),
            self._parts.export(),
            self._parts.horizon,
        )

    def _go_to(self, sequence: int, part: int) -> None:
        self.next = sequence + 1
        self.place = sequence, part


def _as_message(item: FeedDelivery) -> FeedMessage:
    return FeedMessage(item.stream, item.sequence, item.part, 0, item.read_us, item.adapter, item.payload)
