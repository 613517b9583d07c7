"""What one adapter remembers of administrative messages, and what it is told besides (S4). Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from feeds.message import epoch_of, name_of
from feeds.registry_records import (
    AdministrativeRequest,
    AdministrativeResult,
    AnnouncementRecord,
    AnswerRecord,
    RegistryKey,
    RegistryRecord,
)
from feeds.synchronise import Announcement, Schedule, Verdict
from schemas.feed_words import Slot

Write = tuple[RegistryKey, RegistryRecord | None]


class View(NamedTuple):
    """What the adapter knows besides. `boot`: as in its beats; `is_acting`: it takes requests; `slot_of`: where an
    adapter writes, None if that is not known; `is_other_held`: an adapter that is alive writes to the other slot;
    `lead`: by source stream, how many messages ahead to announce; `other_last`: how far the other slot is;
    `has_ended`: the source brings no more."""

    slot: Slot
    boot: int
    is_acting: bool
    is_other_held: bool
    slot_of: Callable[[str], Slot | None]
    lead: Callable[[str], int]
    other_last: Mapping[str, int]
    has_ended: bool = False


class Steps(NamedTuple):
    """What to do: records for the topic `feeds`, and messages whose number has passed already, to be sent now."""

    writes: list[Write]
    overdue: list[Announcement]


@dataclass(slots=True)
class Item:
    """One request, by its id. `asked` is the attempt that was announced last, `answering` the one that was answered
    last, whether read back or not; `payload_bytes` counts against the limit."""

    request: AdministrativeRequest | None = None
    announcement: AnnouncementRecord | None = None
    answer: AnswerRecord | None = None
    result: AdministrativeResult | None = None
    result_at: float | None = None
    payload_bytes: int = 0
    is_refused: bool = False  # its payload does not fit
    asked: int = -1
    answering: int = -1
    is_scheduled: bool = False
    sent: int = -1  # the attempt that was sent
    sent_at: float = 0.0
    is_ending: bool = False  # a result was written
    is_removed: bool = False  # its records were

    @property
    def verdict(self) -> Verdict | None:
        """The backup's, on the present attempt."""
        found = self.announcement
        if found is None or self.answer is None or self.answer.attempt != found.attempt:
            return None
        return Verdict(self.answer.verdict)


@dataclass
class Streams:
    """Which messages wait for their number, by source stream. Streams are only added to `last`."""

    last: Mapping[str, int] = field(default_factory=dict)
    schedules: dict[str, Schedule] = field(default_factory=dict)
    _newest: dict[str, int] = field(default_factory=dict)
    _counted: int = 0

    def is_over(self, stream: str) -> bool:
        """Whether the source of a stream has gone on to a newer epoch, so that the stream brings nothing more."""
        for one in islice(self.last, self._counted, None):
            self._newest[name_of(one)] = max(epoch_of(one), self._newest.get(name_of(one), 0))
        self._counted = len(self.last)
        return stream in self.last and epoch_of(stream) < self._newest[name_of(stream)]
