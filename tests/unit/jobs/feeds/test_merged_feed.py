"""Both slots of a feed as one stream, with searches in the other slot's log (S3)."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feeds.merge_events import Delivered, Event, Late, Lost
from feeds.merge_settings import MergeSettings
from feeds.message import FEEDS, Feed
from feeds.passed import PassedRecord
from jobs.feeds.feed_log import Entry, FeedLog
from jobs.feeds.merged_feed import MergedFeed
from jobs.feeds.replaying import Part, merged, raw
from jobs.feeds.subscribing import plan_of
from schemas.feed_api import FeedAdapterDetail, FeedAssignment, FeedDetail, FeedPlace
from tests.unit.jobs.feeds.feed_copies import STREAM, copy_of

SETTINGS = MergeSettings()


class MemoryLog(FeedLog):
    """The records of the two slots; nothing is on Kafka."""

    def __init__(self, entries: dict[Feed, list[Entry]]) -> None:
        self.entries = entries
        self.searches = 0

    def part(self, partition: int, from_ms: int | None, to_ms: int | None = None) -> Any:
        for entry in self.entries[Feed(partition)]:
            if (from_ms is None or entry.appended_ms >= from_ms) and (to_ms is None or entry.appended_ms < to_ms):
                yield entry

    def partitions_of(self, feed: Feed, stream: str | None) -> list[int]:
        return [feed]

    @property
    def _partitions(self) -> int:  # type: ignore[override]
        return 2


class Reader:
    """Reads entries as `feed subscribe` does: `live` slots as they come, logs when they are asked for."""

    def __init__(self, log: MemoryLog) -> None:
        self.feed = MergedFeed(SETTINGS)
        self.log = log
        self.events: list[Event] = []
        self.now_ms = 0.0

    def read(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.now_ms += 1
            self.events += self.feed.take([entry], self.now_ms)
        self.run_until(self.now_ms)

    def run_until(self, until_ms: float) -> None:
        while True:
            self.events += self.feed.late(self.now_ms)
            for asked, from_ms in list(self.feed.searches(self.now_ms)):
                copies, is_all = self.log.search(asked.feed, asked.stream, asked.first, asked.last, from_ms)
                self.events += self.feed.searched(asked, copies, is_all, self.now_ms)
            due = self.feed.due_ms()
            if due is None or due > until_ms:
                return
            self.now_ms = max(due, self.now_ms + 1)

    def numbers(self, *kinds: type) -> list[int]:
        return [event.message.sequence for event in self.events if isinstance(event, kinds)]


def entries_of(feed: Feed, numbers: Iterable[int], at_ms: int = 100_000) -> list[Entry]:
    return [Entry(feed, copy_of(number), at_ms + 10 * number) for number in numbers]


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(1, 28)), st.sets(st.integers(1, 28)), st.booleans())
def test_whatever_is_missing_on_each_a_reader_gets_what_either_had(
    lost_active: set[int], lost_backup: set[int], is_cold: bool
) -> None:
    """S3: in order, once; and exactly what both lack is lost. Also if the backup is only searched."""
    log = MemoryLog(
        {
            feed: entries_of(feed, (n for n in range(30) if n not in lost))
            for feed, lost in zip(FEEDS, (lost_active, lost_backup), strict=True)
        }
    )
    reader = Reader(log)
    live = log.entries[Feed.ACTIVE] if is_cold else [*log.entries[Feed.ACTIVE], *log.entries[Feed.BACKUP]]
    reader.read(sorted(live, key=lambda entry: entry.appended_ms))
    reader.run_until(reader.now_ms + 2 * SETTINGS.deadline_ms)
    assert reader.numbers(Delivered, Late) == [n for n in range(30) if n not in lost_active & lost_backup]
    lost = {n for event in reader.events if isinstance(event, Lost) for n in range(event.first, event.last + 1)}
    assert lost == lost_active & lost_backup
    assert reader.feed.due_ms() is None


def test_a_log_that_does_not_reach_far_enough_is_searched_again() -> None:
    """S3: a backup that is behind will still bring what is missing."""
    log = MemoryLog({Feed.ACTIVE: [], Feed.BACKUP: entries_of(Feed.BACKUP, range(3))})
    reader = Reader(log)
    reader.read(entries_of(Feed.ACTIVE, [0, 1, 2, 5]))
    reader.run_until(200)
    assert reader.numbers(Delivered) == [0, 1, 2]
    log.entries[Feed.BACKUP] += entries_of(Feed.BACKUP, range(3, 7))
    reader.run_until(400)
    assert reader.numbers(Delivered) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("is_all_there", [True, False])
def test_what_has_come_after_all_is_searched_for_no_longer(is_all_there: bool) -> None:
    """S3: also if the log never reaches beyond it, because its adapter is gone."""
    log = MemoryLog({Feed.ACTIVE: [], Feed.BACKUP: entries_of(Feed.BACKUP, range(3))})
    reader = Reader(log)
    reader.read(entries_of(Feed.ACTIVE, [0, 1, 2, 6]))
    reader.run_until(200)
    assert reader.feed.due_ms() is not None
    reader.read(entries_of(Feed.ACTIVE, [3, 4, 5] if is_all_there else [4]))
    reader.run_until(300)
    assert (reader.feed.due_ms() is None) == is_all_there
    log.entries[Feed.BACKUP] += entries_of(Feed.BACKUP, range(3, 7))
    reader.run_until(600)
    assert reader.numbers(Delivered) == [0, 1, 2, 3, 4, 5, 6]
    assert reader.feed.due_ms() is None


def test_a_slot_that_is_joined_later_is_read_from_a_moment_before() -> None:
    """S3: so that nothing of the time in between is missing, even if nothing more comes after it."""
    reader = Reader(MemoryLog({feed: [] for feed in FEEDS}))
    assert reader.feed.join_ms is None
    reader.read(entries_of(Feed.ACTIVE, range(5000)))
    assert reader.feed.join_ms == 100_000 + 49_990 - 30_000
    reader.read(entries_of(Feed.BACKUP, range(4990, 5010)))
    assert reader.numbers(Delivered) == list(range(5010))


def test_records_that_are_none_are_counted() -> None:
    reader = Reader(MemoryLog({feed: [] for feed in FEEDS}))
    reader.read([Entry(Feed.ACTIVE, None, 1), *entries_of(Feed.ACTIVE, [0])])
    assert reader.feed.malformed == 1


def test_a_replay_is_merged_by_append_times_or_is_one_slot_as_it_is() -> None:
    """S3: bounds of time and number; what both lack is said; the same lines each time."""
    word = Entry(Feed.BACKUP, PassedRecord(STREAM, 9, 9, 0, "b"), 100_095)
    log = MemoryLog(
        {
            Feed.ACTIVE: entries_of(Feed.ACTIVE, [0, 1, 1, 2, 5, 6]),
            Feed.BACKUP: [*entries_of(Feed.BACKUP, [0, 1, 2, 3, 6, 7], 100_005), word],
        }
    )

    def numbers(lines: Iterable[str]) -> list[str]:
        found = []
        for line in lines:
            fields = msgspec.json.decode(line)
            kind = fields["type"]
            found.append(str(fields.get("sequence")) if kind == "message" else f"{kind} {fields.get('first')}")
        return found

    whole = list(merged(log, Part()))
    assert [one for one in numbers(whole) if not one.startswith("suspected")] == [
        *("0", "1", "2", "3", "lost 4", "5", "6", "7", "lost 8"),
    ]
    assert list(merged(log, Part())) == whole
    assert numbers(raw(log, Feed.ACTIVE, Part(first=1, last=5, stream=STREAM))) == ["1", "1", "2", "5"]
    assert numbers(raw(log, Feed.BACKUP, Part(from_ms=100_015, to_ms=100_035))) == ["1", "2"]
    assert numbers(raw(log, Feed.BACKUP, Part(stream="other@0"))) == []


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (1, 3, ["1", "2", "3"]),
        (1, 4, ["1", "2", "3", "lost 4 to 4"]),
        (2, 5, ["2", "3", "lost 4 to 4", "5"]),
        (6, 8, ["6", "7", "lost 8 to 8"]),
    ],
)
def test_a_part_of_a_replay_ends_with_its_last_number(first: int, last: int, expected: list[str]) -> None:
    """S3: what is missing up to there is lost, as later numbers show; what is beyond is not asked for."""
    word = Entry(Feed.BACKUP, PassedRecord(STREAM, 9, 9, 0, "b"), 100_095)
    log = MemoryLog(
        {
            Feed.ACTIVE: entries_of(Feed.ACTIVE, [0, 1, 1, 2, 5, 6]),
            Feed.BACKUP: [*entries_of(Feed.BACKUP, [0, 1, 2, 3, 6, 7], 100_005), word],
        }
    )
    found = [msgspec.json.decode(line) for line in merged(log, Part(stream=STREAM, first=first, last=last))]
    shown = {"message": "{sequence}", "lost": "lost {first} to {last}"}
    assert [shown[one["type"]].format(**one) for one in found if one["type"] in shown] == expected


def detail(state: str, active: str | None, *alive: str) -> FeedDetail:
    place = None if active is None else FeedPlace(slot=active, adapter="x", machine="m", zone="")  # type: ignore[arg-type]
    adapters = [
        FeedAdapterDetail(
            name=slot,
            slot=slot,
            state="up",
            alive=True,
            reason="",
            machine="m",
            zone="",  # type: ignore[arg-type]
            source="",
            messages=0,
            malformed=0,
            streams={},  # type: ignore[arg-type]
        )
        for slot in alive
    ]
    return FeedDetail(
        name="f",
        state=state,  # type: ignore[arg-type]
        active=place,
        backup=None,
        reason="",
        revision=0,
        adapters=adapters,
        subscribers=0,
        assignment=FeedAssignment(active="active", revision=0),
        pair=None,
        lag=[],
        advice=[],
    )


def test_streams_that_are_no_pair_are_never_merged() -> None:
    """S1: of a refused pair one is read, also by a warm subscriber; a cold one reads the active stream."""
    active, backup = FEEDS
    refused = plan_of(detail("refused", "backup", "active", "backup"), "warm")
    assert refused == ({backup}, {backup})
    assert plan_of(detail("redundant", "active", "active", "backup"), "warm") == ({active, backup}, {active, backup})
    assert plan_of(detail("redundant", "active", "active", "backup"), "cold") == ({active}, {active, backup})
    assert plan_of(detail("single", "backup", "backup"), "cold") == ({backup}, {backup})
    assert plan_of(detail("down", None), "cold") == ({active}, set())


def test_the_log_of_an_adapter_that_has_died_is_still_searched() -> None:
    """S3: it may have what is missing."""
    log = MemoryLog({Feed.ACTIVE: [], Feed.BACKUP: entries_of(Feed.BACKUP, range(7))})
    reader = Reader(log)
    for entry in entries_of(Feed.ACTIVE, [0, 1, 2, 6]):
        reader.now_ms += 1
        reader.events += reader.feed.take([entry], reader.now_ms)
    reader.now_ms += SETTINGS.reorder_ms
    reader.events += reader.feed.late(reader.now_ms)
    reader.feed.is_alive(Feed.BACKUP, reader.now_ms, alive=False)
    reader.run_until(reader.now_ms + 10)
    assert reader.numbers(Delivered) == [0, 1, 2, 3, 4, 5, 6]
