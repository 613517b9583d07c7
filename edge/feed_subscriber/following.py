"""Which slots' partitions are read (S3, S6). Pure.

Warm: both, always. Cold: one; another slot is taken up if its own adapter is alive and the present one's is not, or if
it is the assigned one again. It is read from before the last record of the present slot on, by the broker's times, and
the present one is read on until both are read up to their ends. What is before the place of taking up counts as not
passed by that feed, so the merger asks its log for it.
"""

from typing import NamedTuple

from edge.feed_subscriber.replay import ReadPosition
from edge.feed_subscriber.slots import Slots
from feeds.message import FEEDS, Feed, feed_of_partition, partitions_of, sibling_of
from schemas.feed_words import SubscriberMode


class TakeUp(NamedTuple):
    """Read a partition from the first record on that was appended at `append_ms` or later (ms since the epoch)."""

    append_ms: int


class Follow(NamedTuple):
    """Read these partitions from there on; `episode` is to be given with each batch."""

    episode: int
    partitions: dict[int, ReadPosition | TakeUp]


class Unfollow(NamedTuple):
    """Read these partitions no longer."""

    partitions: tuple[int, ...]


Command = Follow | Unfollow


class Following:
    """`current`: in mode cold, the slot that is read; `followed`: which are."""

    def __init__(self, mode: SubscriberMode, partitions: int, current: Feed, followed: frozenset[Feed]) -> None:
        self._mode, self._partitions = mode, partitions
        self.current = current
        self.followed = followed
        self._episode = 0

    def feed_of(self, partition: int) -> Feed:
        """The slot of a partition."""
        return feed_of_partition(partition, self._partitions)

    def partitions_of(self, feed: Feed) -> range:
        return partitions_of(feed, self._partitions)

    def sibling(self, partition: int) -> int:
        """The partition of the other slot that has the same source streams."""
        return sibling_of(partition, self._partitions)

    def wanted(self, slots: Slots, now_s: float, timeout_s: float) -> Feed:
        """In mode cold: the slot that should be read."""
        other = FEEDS[1 - self.current]
        if not slots.is_alive(other):
            return self.current
        is_down = not slots.is_alive(self.current) and now_s >= timeout_s
        return other if is_down or slots.preferred is other else self.current

    def follow(self, feed: Feed, partitions: dict[int, ReadPosition | TakeUp]) -> Follow:
        """Reads a slot too."""
        self.followed |= {feed}
        self._episode += 1
        return Follow(self._episode, partitions)

    def unfollow(self, feed: Feed) -> Unfollow:
        """Reads a slot no longer."""
        self.followed -= {feed}
        return Unfollow(tuple(self.partitions_of(feed)))

    def switch(self, feed: Feed) -> None:
        """In mode cold: `feed` is the slot that is read."""
        self.current = feed

    @property
    def left(self) -> Feed | None:
        """In mode cold: the slot that is still read, and need not be."""
        other = FEEDS[1 - self.current]
        return other if self._mode == "cold" and other in self.followed else None

    @property
    def is_cold(self) -> bool:
        return self._mode == "cold"
