"""What waits until outputs have it: bounded in messages and bytes, in order (S2)."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from edge.feeds.adapter.resume import FilePlace, Outgoing
from feeds.message import FeedMessage

RECORD_BYTES: Final = 300
"""About what a message takes besides its payload."""


class Batch(NamedTuple):
    """`is_whole`: it ends where something that the source brought ends; then `place` is where to read on, if the source
    is a file."""

    records: list[Outgoing]
    is_whole: bool
    place: FilePlace | None


@dataclass(slots=True)
class _Entry:
    records: Sequence[Outgoing]
    place: FilePlace | None
    size: int
    start: int = 0  # of what is not in a batch yet


class Buffer:
    """`messages` and `size` bytes at most; more only if it was empty."""

    def __init__(self, messages: int, size: int) -> None:
        self._messages_max, self._bytes_max = messages, size
        self._entries: deque[_Entry] = deque()
        self._messages = self._bytes = 0
        self._filled, self._drained = asyncio.Event(), asyncio.Event()

    def __len__(self) -> int:
        return self._messages

    @property
    def has_capacity(self) -> bool:
        """Whether more may be put in."""
        return self._messages < self._messages_max and self._bytes < self._bytes_max

    async def capacity(self) -> None:
        """Returns once more may be put in."""
        while not self.has_capacity:
            self._drained.clear()
            await self._drained.wait()

    def put(self, records: Sequence[Outgoing], place: FilePlace | None = None) -> None:
        """Puts it in, behind all the rest, whether there is capacity or not."""
        if not records and place is None:
            return
        size = sum(map(size_of, records))
        self._entries.append(_Entry(records, place, size))
        self._messages += len(records)
        self._bytes += size
        self._filled.set()

    async def next(self, messages: int, size: int) -> Batch:
        """The next batch, of at most `messages` and about `size` bytes, once there is one. It counts until
        :meth:`stored`."""
        while not self._entries:
            self._filled.clear()
            await self._filled.wait()
        batch = Batch([], True, None)
        while self._entries:
            entry = self._entries[0]
            is_too_much = len(batch.records) + len(entry.records) > messages or entry.size > size
            if batch.records and (is_too_much or not batch.is_whole):
                break
            batch, size = _with(batch, entry, messages, size)
            if entry.start == len(entry.records):
                self._entries.popleft()
        return batch

    def stored(self, batch: Batch) -> None:
        """Outputs have it."""
        self._messages -= len(batch.records)
        self._bytes -= sum(map(size_of, batch.records))
        self._drained.set()


def size_of(one: Outgoing) -> int:
    """About how many bytes it takes."""
    return RECORD_BYTES + (len(one.payload) if isinstance(one, FeedMessage) else 0)


def _with(batch: Batch, entry: _Entry, messages: int, size: int) -> tuple[Batch, int]:
    """The batch with what fits of the entry, or its first message, and how many bytes are left."""
    start = entry.start
    while entry.start < len(entry.records) and len(batch.records) < messages and (size > 0 or not batch.records):
        batch.records.append(entry.records[entry.start])
        size -= size_of(entry.records[entry.start])
        entry.start += 1
    is_whole = entry.start == len(entry.records)
    entry.size -= sum(map(size_of, entry.records[start : entry.start]))
    return Batch(batch.records, is_whole, (entry.place or batch.place) if is_whole else batch.place), size
