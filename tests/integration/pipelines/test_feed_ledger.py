"""The ledger of redundant feeds against the truth about two faulty receivers (S5)."""

import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from pyspark.sql import SparkSession

from feeds.message import FEEDS, Feed, stream_id
from jobs.demo.feed_receivers import (
    Loss,
    Received,
    Receiver,
    SourceMessage,
    Truth,
    in_order,
    numbered,
    ranges,
    receive,
    truth_of,
)
from jobs.query.ledger_reader import LedgerReader
from pipelines.feeds.comparison import Pairs, SlotState
from tests import draw
from tests.integration.edge.test_feed_samples import records
from tests.integration.pipelines.feed_ledger import FeedTopic, written
from tools.install_feed_samples import samples_directory

HOUR_US = 3_600_000_000
LOSSES = Loss(0.05, 0.4)
FAULTY = Receiver(LOSSES, 3_000, 4_000, 0.05, 25_000, 0.05, 60_000, 0.05, -90_000)
FAULTS = {
    "radar": (FAULTY, Receiver(LOSSES, 1_000, 9_000, 0.02, 40_000, 0.02, 90_000, 0.02, 70_000)),
    "slow": (Receiver(LOSSES), Receiver(LOSSES, lag_us=HOUR_US)),
}
COUNT = 800

QUAKES = stream_id("quakes/BW.BGLD..EHE", 0)
IN_GAPS = set(range(763_445, 763_577)) - {763_446, 763_449, 763_452, 763_453}
IN_OTHER = set(range(763_445, 763_546))
"""The numbers of two recordings of ObsPy; those that both have differ in content."""
RECORDINGS = {"gaps.mseed": IN_GAPS, "timingquality.mseed": IN_OTHER}


def recorded(name: str) -> dict[int, bytes]:
    """The records of a recording by number; without the recording (`make samples`) its numbers, with a content."""
    if not (samples_directory(os.environ) / name).exists():
        return dict.fromkeys(sorted(RECORDINGS[name]), name.encode())
    return {number: found.payload for number, found in sorted(records(name).items())}


class Injected(NamedTuple):
    source: list[SourceMessage]
    sides: tuple[Received, Received]
    truth: Truth


class Recorder:
    """What the comparison reports for metrics."""

    def __init__(self) -> None:
        self.duplicates: Counter[tuple[str, str]] = Counter()
        self.differences: Counter[str] = Counter()
        self.lags: defaultdict[str, list[float]] = defaultdict(list)
        self.lost: Mapping[str, int] = {}
        self.slots: Sequence[SlotState] = ()

    def brought(self, feed: str, slot: str, copies: int, duplicates: int) -> None:
        self.duplicates[feed, slot] += duplicates

    def paired(self, pairs: Pairs) -> None:
        self.differences[pairs.feed] += pairs.differences
        self.lags[pairs.feed] += pairs.lags_s.tolist()

    def states(self, slots: Sequence[SlotState], lost: Mapping[str, int]) -> None:
        self.slots, self.lost = slots, lost


class Ledger(NamedTuple):
    reader: LedgerReader
    injected: dict[str, Injected]
    recorder: Recorder


@pytest.fixture(scope="module")
def ledger(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """Two feeds of two source streams each, and the pair of recordings; all is sent again at the end."""
    topics = {name: FeedTopic(name) for name in (*FAULTS, "quakes")}
    injected, again = {}, []
    batches: list[list[tuple[object, ...]]] = [[], [], []]
    for name, (active, backup) in FAULTS.items():
        streams = stream_id("a", 1), stream_id("b", 0)
        payloads = (b"%d" % (n % 7) for n in range(COUNT))
        source = [one for stream in streams for one in numbered(payloads, stream, first=10)]
        source = sorted(source, key=lambda one: one.at_us)
        sides = receive(source, active, Feed.ACTIVE, draw.SEED), receive(source, backup, Feed.BACKUP, draw.SEED)
        injected[name] = Injected(source, sides, truth_of(source, *sides))
        found = list(in_order(*sides))
        third = len(found) // 3
        for number, some in enumerate((found[:third], found[third : 2 * third], found[2 * third :])):
            batches[number] += topics[name].copies(some)
        end_us = found[-1].at_us
        batches[2] += [topics[name].passed(of, stream, 9 + COUNT, end_us) for of in FEEDS for stream in streams]
        again += topics[name].copies(found, later_us=24 * HOUR_US)
    quakes = [
        receive(
            [SourceMessage(QUAKES, n, 1_199_145_599_915_000 + n, of) for n, of in recorded(name).items()],
            Receiver(),
            feed,
            0,
        )
        for feed, name in zip(Feed, RECORDINGS, strict=True)
    ]
    batches[1] += topics["quakes"].copies(in_order(*quakes))
    recorder = Recorder()
    directory = tmp_path_factory.mktemp("feeds")
    reader = written(spark, directory, list(topics.values()), [*batches, again], recorder)
    return Ledger(reader, injected, recorder)


def numbers(ledger: Ledger, feed: str, slot: str, *states: str) -> set[tuple[str, int]]:
    """What `feed_gaps` says is missing."""
    rows = ledger.reader.query(
        "SELECT stream, first_number, last_number, state FROM feed_gaps WHERE feed = ? AND slot = ?", [feed, slot]
    ).rows
    found = [(stream, n) for stream, first, last, state in rows if state in states for n in range(first, last + 1)]
    assert len(found) == len(set(found))
    return set(found)


def known(injected: Injected) -> set[tuple[str, int]]:
    """Numbers of which a ledger can know: not below the first that any receiver got."""
    got = {key for side in injected.sides for key in side.first_us}
    lowest = {stream: min(n for of, n in got if of == stream) for stream, _ in got}
    return {one[:2] for one in injected.source if one.sequence >= lowest[one.stream]}


@pytest.mark.parametrize("feed", FAULTS)
def test_gaps_are_those_injected(ledger: Ledger, feed: str) -> None:
    """S5: per slot and in both; whatever comes late is a closed gap."""
    injected = ledger.injected[feed]
    for side in injected.sides:
        slot = side.feed.name.lower()
        missing = numbers(ledger, feed, slot, "open", "recent", "before", "behind")
        assert missing == injected.truth.missing[side.feed] & known(injected)
        late, highest = set(), defaultdict[str, int](int)
        seen = set()
        for copy in side.copies:
            key = copy.message[:2]
            if key not in seen and key[1] < highest[key[0]]:
                late.add(key)
            seen.add(key)
            highest[key[0]] = max(highest[key[0]], key[1])
        assert numbers(ledger, feed, slot, "closed") == late
        assert bool(late) == (feed == "radar")
    lost = injected.truth.lost & known(injected)
    assert lost
    assert numbers(ledger, feed, "both", "open", "recent") == lost
    assert numbers(ledger, feed, "both", "behind", "before", "closed") == set()
    assert ledger.recorder.lost[feed] == len(lost)


@pytest.mark.parametrize("feed", FAULTS)
def test_lags_and_differences_are_those_injected(ledger: Ledger, feed: str) -> None:
    """S5: the lag within a millisecond, also of a feed that is an hour behind."""
    truth = ledger.injected[feed].truth
    rows = ledger.reader.query(
        "SELECT stream, sequence, lag_ms, has_both, is_different, first_slot FROM feed_messages WHERE feed = ?", [feed]
    ).rows
    assert len(rows) == len({row[:2] for row in rows}) == len(known(ledger.injected[feed]) - truth.lost)
    lags = {row[:2]: row[2] for row in rows if row[3]}
    assert lags.keys() == truth.lag_us.keys()
    assert all(abs(lags[key] - us / 1000) <= 1 for key, us in truth.lag_us.items())
    assert all((lags[row[:2]] < 0) == (row[5] == "backup") for row in rows if row[3])
    assert {row[:2] for row in rows if row[4]} == truth.different
    differences = ledger.reader.query("SELECT stream, sequence FROM feed_differences WHERE feed = ?", [feed]).rows
    assert Counter(differences) == Counter(truth.different)
    assert ledger.recorder.differences[feed] == len(truth.different)
    assert sorted(ledger.recorder.lags[feed]) == pytest.approx(sorted(lag / 1000 for lag in lags.values()))


def test_health_sums_it_up(ledger: Ledger) -> None:
    """S5: duplicates are counted, those of the day that was sent again too; they add no rows."""
    for feed, injected in ledger.injected.items():
        lags = [us / 1000 for us in injected.truth.lag_us.values()]
        for side in injected.sides:
            slot = side.feed.name.lower()
            columns = "copies, duplicates, lost_in_both, differences, p50_lag_ms, p99_lag_ms, missing"
            (row,) = ledger.reader.query(
                f"SELECT {columns} FROM feed_health WHERE feed = ? AND slot = ?", [feed, slot]
            ).rows
            repeated = len(side.repeated) + len(side.copies)
            assert row[:2] == (len(side.first_us), repeated)
            assert ledger.recorder.duplicates[feed, slot] == repeated
            assert row[3] == len(injected.truth.different)
            assert row[4:6] == pytest.approx(np.quantile(lags, [0.5, 0.99]), abs=1)
            assert row[2] == len(numbers(ledger, feed, "both", "open"))
            assert row[6] == len(numbers(ledger, feed, slot, "open"))
    silent = ledger.reader.query("SELECT slot FROM feed_health WHERE feed = 'slow' AND silent_since IS NOT NULL").rows
    assert silent == [("active",)]


def test_the_pair_of_recordings(ledger: Ledger) -> None:
    """S5: ObsPy's two recordings of one station, if they are there, and otherwise what is known of them
    (integration/edge/test_feed_samples.py)."""
    gaps = ledger.reader.query(
        "SELECT slot, first_number, last_number, state FROM feed_gaps WHERE feed = 'quakes' ORDER BY ALL"
    ).rows
    assert gaps == [
        ("active", 763_446, 763_446, "open"), ("active", 763_449, 763_449, "open"),
        ("active", 763_452, 763_453, "open"), ("backup", 763_546, 763_576, "behind"),
    ]  # fmt: skip
    different = ledger.reader.query(
        "SELECT sequence, active_payload, backup_payload FROM feed_differences WHERE feed = 'quakes' ORDER BY 1"
    ).rows
    assert len(different) == 97
    active, backup = map(recorded, RECORDINGS)
    assert different == [(n, active[n], backup[n]) for n in sorted(IN_GAPS & IN_OTHER)]
    assert ranges(IN_OTHER - IN_GAPS) == [(763_446, 763_446), (763_449, 763_449), (763_452, 763_453)]


def test_keys_are_unique_and_times_are_the_records(ledger: Ledger) -> None:
    for table, key in (("feed_copies", "feed, stream, sequence, part, slot"),
                       ("feed_progress", 'feed, stream, "partition", "offset", appended')):  # fmt: skip
        assert ledger.reader.query(f"SELECT {key} FROM {table} GROUP BY ALL HAVING count(*) > 1").rows == []
    (clocks,) = ledger.reader.query(
        "SELECT DISTINCT round((epoch_us(read) - epoch_us(appended)) / 1e6, 1) FROM feed_copies "
        "WHERE feed = 'radar' AND slot = 'backup'"
    ).rows
    assert clocks == (0.1,), "the reader's clock is 70 ms ahead"


def test_beyond_the_window_a_day_that_is_sent_again_is_new(spark: SparkSession, tmp_path: Path) -> None:
    """S5: so it needs an epoch of its own, which is another source stream."""
    topic, days_us = FeedTopic("late"), 24 * HOUR_US
    source = numbered([b"x"] * 3, stream_id("a", 0))
    copies = receive(source, Receiver(), Feed.ACTIVE, 0).copies
    anew = receive(numbered([b"x"] * 3, stream_id("a", 1)), Receiver(), Feed.ACTIVE, 0).copies
    # A batch forgets what is too old after it has looked.
    other = receive(numbered([b"x"], stream_id("b", 0)), Receiver(), Feed.ACTIVE, 0).copies
    batches = [topic.copies(copies), topic.copies(other, 3 * days_us), topic.copies(copies, 3 * days_us),
               topic.copies(anew, 4 * days_us)]  # fmt: skip
    reader = written(spark, tmp_path, [topic], batches, kept_days=2)
    rows = reader.query("SELECT stream, count(*), count(DISTINCT sequence) FROM feed_copies GROUP BY 1 ORDER BY 1").rows
    assert rows == [("a@0", 6, 3), ("a@1", 3, 3), ("b@0", 1, 1)]
