"""The comparison of two slots: bounded, and of each feed by itself (S5)."""

import weakref
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from prometheus_client import CollectorRegistry, generate_latest

from jobs.observe.feeds import FeedMetrics
from pipelines.feeds.comparison import FeedComparison, Limits, Pairs, SlotState

AT = datetime(2026, 1, 1, tzinfo=UTC)


class Reported:
    def __init__(self) -> None:
        self.pairs: list[tuple[str, list[float], int]] = []
        self.lost: dict[str, int] = {}
        self.slots: Sequence[SlotState] = ()
        self.behind: dict[tuple[str, str], int] = {}

    def brought(self, feed: str, slot: str, copies: int, duplicates: int) -> None: ...

    def paired(self, pairs: Pairs) -> None:
        self.pairs.append((pairs.feed, pairs.lags_s.round(3).tolist(), pairs.differences))

    def states(self, slots: Sequence[SlotState], lost: Mapping[str, int]) -> None:
        self.lost, self.slots = dict(lost), slots
        self.behind = {(one.feed, one.slot): one.behind for one in slots}


def copies(feed: str, slot: str, numbers: Sequence[int], ms: int = 0, crc32: int = 1, part: int = 0) -> pa.Table:
    count = len(numbers)
    fixed = {"feed": feed, "stream": "s@0", "slot": slot, "part": part, "crc32": crc32, "payload_bytes": 9}
    columns = {name: [value] * count for name, value in fixed.items()}
    appended = pa.array([AT + timedelta(milliseconds=ms + n) for n in numbers], pa.timestamp("us", "UTC"))
    return pa.table({**columns, "sequence": pa.array(numbers, pa.int64()), "appended": appended})


def progress(feed: str, slot: str, highest: int | None, passed: int | None = None) -> dict[str, object]:
    counts = {"copies": 1, "duplicates": 0, "highest": highest, "passed": passed}
    return {"feed": feed, "stream": "s@0", "slot": slot, "appended": AT, **counts}


def test_pairs_are_found_over_batches_and_feeds_are_apart() -> None:
    reported = Reported()
    comparison = FeedComparison(reported)
    comparison.take(copies("f", "active", [1, 2, 3]), [progress("f", "active", 3)])
    comparison.take(copies("g", "backup", [1, 2]), [progress("g", "backup", 2)])
    assert reported.pairs == []
    comparison.take(copies("f", "backup", [2], 40, 7), [progress("f", "backup", 2)])
    comparison.take(copies("f", "backup", [3], -5), [progress("f", "backup", 3, passed=6)])
    assert reported.pairs == [("f", [0.04], 1), ("f", [-0.005], 0)]
    assert reported.behind == {("f", "active"): 3, ("f", "backup"): 0, ("g", "backup"): 0}
    assert reported.lost == {"f": 0, "g": 0}
    comparison.take(None, [progress("f", "active", None, passed=6)])
    assert reported.lost == {"f": 3, "g": 0}


def test_an_administrative_message_is_a_pair_and_no_number_of_the_source() -> None:
    reported = Reported()
    comparison = FeedComparison(reported)
    for slot in ("active", "backup"):
        comparison.take(copies("f", slot, [5]), [progress("f", slot, 5)])
        comparison.take(copies("f", slot, [5], part=1), [progress("f", slot, 5)])
    assert [differences for _, _, differences in reported.pairs] == [0, 0]
    assert reported.lost == {"f": 0}


def test_what_waits_for_the_other_slot_is_bounded_and_so_are_streams() -> None:
    reported = Reported()
    comparison = FeedComparison(reported, Limits(copies_max=2, streams_max=1))
    comparison.take(copies("f", "active", [1, 2, 3, 4]), [progress("f", "active", 4)])
    comparison.take(copies("f", "backup", [1, 2, 3, 4], 1), [progress("f", "backup", 4)])
    assert reported.pairs == [("f", [0.001, 0.001], 0)]
    comparison.take(copies("g", "active", [1]), [progress("g", "active", 1)])
    assert reported.lost == {"f": 0, "g": 0}


def test_a_slot_that_is_silent_since_before_the_start_is_known() -> None:
    reported = Reported()
    comparison = FeedComparison(reported)
    rows = [
        {"feed": "f", "slot": slot, "appended": AT - timedelta(hours=n)} for n in (1, 2) for slot in ("active", "b")
    ]
    comparison.resume(pa.Table.from_pylist(rows).to_batches(max_chunksize=3))
    assert {(one.slot, one.appended_s) for one in reported.slots} == {
        (slot, (AT - timedelta(hours=1)).timestamp()) for slot in ("active", "b")
    }
    comparison.take(copies("f", "active", [1]), [progress("f", "active", 1)])
    assert {one.slot: one.appended_s for one in reported.slots}["active"] == AT.timestamp()


def test_what_was_brought_before_the_start_is_taken_batch_by_batch() -> None:
    """A week of a thousand source streams has a hundred million rows."""
    earlier: list[weakref.ref[pa.RecordBatch]] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for n in range(20):
            assert sum(one() is not None for one in earlier) <= 1, "the last one, if any"
            rows = pa.RecordBatch.from_pylist([{"feed": "f", "slot": "active", "appended": AT + timedelta(hours=n)}])
            earlier.append(weakref.ref(rows))
            yield rows

    reported = Reported()
    FeedComparison(reported).resume(batches())
    assert [(one.slot, one.appended_s) for one in reported.slots] == [
        ("active", (AT + timedelta(hours=19)).timestamp())
    ]


def test_metrics_are_what_is_reported() -> None:
    registry = CollectorRegistry()
    comparison = FeedComparison(FeedMetrics(registry))
    comparison.take(copies("f", "active", [1, 2, 4]), [progress("f", "active", 4)])
    comparison.take(copies("f", "backup", [2, 4], 30, 7), [progress("f", "backup", 4)])
    shown = generate_latest(registry).decode().splitlines()
    for line in (
        'waystation_feed_differences_total{feed="f"} 2.0',
        'waystation_feed_lag_seconds_bucket{feed="f",later="backup",le="0.025"} 0.0',
        'waystation_feed_lag_seconds_bucket{feed="f",later="backup",le="0.05"} 2.0',
        'waystation_feed_lag_seconds_count{feed="f",later="backup"} 2.0',
        'waystation_feed_lag_seconds_sum{feed="f",later="backup"} 0.06',
        'waystation_feed_lost_numbers{feed="f"} 1.0',
        'waystation_feed_behind_numbers{feed="f",slot="backup"} 0.0',
        'waystation_feed_last_append_timestamp_seconds{feed="f",slot="active"} 1.7672256e+09',
        'waystation_feed_ledger_copies_total{feed="f",slot="active"} 1.0',
    ):
        assert line in shown, line
