"""Where an adapter continues after a restart: what the feed's log has, and what of it a file brings again (S2). Pure.

A **checkpoint** is a place in the source, and places in the own slot's log behind all that was read before it. What the
log has beyond them is what a file brings again after the restart: exactly that is left out, in whatever order the
source has it. Without a checkpoint, because its file is lost or the adapter was moved, a file is read from its
beginning, and what the log has is left out. If only the log's end was read, because the log is long, it counts as
having all that is below the lowest number found there.

Only a file brings anything again that must be left out. What other sources repeat is written again; readers drop it.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from feeds.message import FeedMessage
from feeds.passed import PassedRecord

Outgoing = FeedMessage | PassedRecord
"""What an adapter writes."""


class FilePlace(Struct, frozen=True):
    """A place in a file: which file, and the offset of the first byte that has not been read. `head`: what the file
    begins with (:func:`edge.feeds.adapter.sources.rotation.head_of`), as another file may have the inode later; None:
    not compared."""

    device: int
    inode: int
    offset: int
    head: int | None = None


class Checkpoint(Struct, frozen=True):
    """What is on disk. `source`: what it is about; of another source it does not count. `offsets`: the next one of each
    partition of the own slot; `highest`: the highest number of each source stream; `written`: the last message sequence
    number."""

    source: str
    place: FilePlace | None = None
    offsets: dict[int, int] = {}
    highest: dict[str, int] = {}
    written: int = 0


NOTHING_MORE: Final = 20_000
"""After so many messages in a row that the log does not have, a file brings nothing again: what it should have brought
is no longer in it."""


class Repeated:
    """What a file brings again. `numbers`: by source stream, those that the log has; `counts`: how many of a stream
    without numbers; `through`: by source stream, a number up to which all is left out until a higher one comes. False
    once nothing comes again."""

    def __init__(
        self,
        numbers: Mapping[str, set[int]] | None = None,
        counts: Mapping[str, int] | None = None,
        through: Mapping[str, int] | None = None,
    ) -> None:
        self._numbers = {stream: set(found) for stream, found in (numbers or {}).items() if found}
        self._counts = {stream: count for stream, count in (counts or {}).items() if count > 0}
        self._through = dict(through or {})
        self._new = 0  # in a row

    def __bool__(self) -> bool:
        return self._new < NOTHING_MORE and bool(self._numbers or self._counts or self._through)

    def leaves_out(self, stream: str, number: int | None) -> bool:
        """Whether the log has it. To be asked for each message, in the source's order."""
        is_left_out = self._is_there(stream, number)
        self._new = 0 if is_left_out else self._new + 1
        return is_left_out

    def _is_there(self, stream: str, number: int | None) -> bool:
        if number is None:
            return self._count(stream)
        through = self._through.get(stream)
        if through is not None:
            if number <= through:
                return True
            del self._through[stream]
        numbers = self._numbers.get(stream)
        if numbers is None or number not in numbers:
            return False
        numbers.remove(number)
        if not numbers:
            del self._numbers[stream]
        return True

    def _count(self, stream: str) -> bool:
        left = self._counts.get(stream, 0)
        if left > 1:
            self._counts[stream] = left - 1
        elif left:
            del self._counts[stream]
        return left > 0


class LogFold:
    """What the end of the feed's log has, as a fold over its records. `adapter`: whose restart it is; `is_complete`:
    all records since the checkpoint are there, or all that there ever were."""

    def __init__(self, adapter: str, checkpoint: Checkpoint | None, *, is_complete: bool = False) -> None:
        self._adapter, self._checkpoint, self._is_complete = adapter, checkpoint, is_complete
        self._numbers: dict[str, set[int]] = defaultdict(set)
        self._counts: dict[str, int] = defaultdict(int)
        self.highest = dict(checkpoint.highest) if checkpoint else {}
        """Of each source stream, in the own slot."""
        self.elsewhere: dict[str, int] = {}
        """Of each source stream, in the other slot."""
        self.written = checkpoint.written if checkpoint else 0
        self.parts: set[tuple[str, int, int]] = set()
        """Administrative messages of the own slot: source stream, number, part."""

    def own(self, record: Outgoing, *, is_since: bool) -> None:
        """A record of the own slot; `is_since`: behind the checkpoint."""
        if record.adapter == self._adapter:
            self.written = max(self.written, record.message_sequence)
        if isinstance(record, FeedMessage):
            if record.part:
                self.parts.add((record.stream, record.sequence, record.part))
                return
            if is_since:
                self._numbers[record.stream].add(record.sequence)
                self._counts[record.stream] += record.adapter == self._adapter
        _raise_to(self.highest, record)

    def other(self, record: Outgoing) -> None:
        """A record of the other slot."""
        if not (isinstance(record, FeedMessage) and record.part):
            _raise_to(self.elsewhere, record)

    def repeated(self, *, is_numbered: bool) -> Repeated:
        """What a file brings again from the checkpoint on, or from its beginning without one."""
        if not is_numbered:
            return Repeated(counts=self.highest if self._checkpoint is None else self._counts)
        if self._is_complete:
            return Repeated(self._numbers)
        return Repeated(self._numbers, through={stream: min(found) - 1 for stream, found in self._numbers.items()})


def _raise_to(highest: dict[str, int], record: Outgoing) -> None:
    if highest.get(record.stream, -1) < record.sequence:
        highest[record.stream] = record.sequence
