"""What waits behind gaps of a source stream: messages, and administrative messages after them."""

from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Final

from feeds.message import FeedMessage

MESSAGE_BYTES: Final = 400
"""About what a held message takes besides its payload."""

Waiting = tuple[int, FeedMessage]
"""A message with the feed that brought it."""


class HeldBytes:
    """What all source streams of a merger hold together."""

    __slots__ = ("_max", "total")

    def __init__(self, bytes_max: int) -> None:
        self._max = bytes_max
        self.total = 0

    def add(self, message: FeedMessage) -> None:
        """It is held."""
        self.total += MESSAGE_BYTES + len(message.payload)

    def remove(self, message: FeedMessage) -> None:
        """It is held no longer."""
        self.total -= MESSAGE_BYTES + len(message.payload)

    @property
    def is_full(self) -> bool:
        return self.total > self._max


class Held:
    """Messages of one source stream by their number."""

    __slots__ = ("_bytes", "_messages", "_parts")

    def __init__(self, held_bytes: HeldBytes) -> None:
        self._bytes = held_bytes
        self._messages: dict[int, Waiting] = {}
        self._parts: dict[int, dict[int, Waiting]] = {}

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, feed: int, message: FeedMessage) -> None:
        """Holds a message that is not held yet."""
        self._bytes.add(message)
        if message.part:
            self._parts.setdefault(message.sequence, {})[message.part] = feed, message
        else:
            self._messages[message.sequence] = feed, message

    def pop(self, first: int, end: int) -> Iterator[Waiting]:
        """Takes out `first` to `end` - 1, of which none is missing, with the administrative messages after each."""
        for number in range(first, end):
            waiting = self._messages.pop(number)
            self._bytes.remove(waiting[1])
            yield waiting
            if number in self._parts:
                yield from self._pop_parts(number)

    def pop_parts(self, through: int) -> Iterator[Waiting]:
        """Takes out the administrative messages after numbers up to `through`."""
        for number in sorted(number for number in self._parts if number <= through):
            yield from self._pop_parts(number)

    def export(self) -> tuple[Waiting, ...]:
        """All, in order."""
        parts = [waiting for of in self._parts.values() for waiting in of.values()]
        return tuple(sorted([*self._messages.values(), *parts], key=_position))

    def restore(self, waiting: Iterable[Waiting]) -> None:
        """Holds what was exported."""
        for feed, message in waiting:
            self.add(feed, message)

    def _pop_parts(self, number: int) -> Iterator[Waiting]:
        for _, waiting in sorted(self._parts.pop(number).items(), key=itemgetter(0)):
            self._bytes.remove(waiting[1])
            yield waiting


def _position(waiting: Waiting) -> tuple[int, int]:
    return waiting[1].sequence, waiting[1].part
