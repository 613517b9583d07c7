"""A stream that begins in a shard with the slower slot's copy: what the faster slot brings waits for it (S3).

The fold and its timer are simulated: each decision is written down, and read back at once.
"""

from collections import Counter
from itertools import pairwise

import pytest

from feeds.merge_settings import MergeSettings
from feeds.message import Feed
from gateway.shard.feed_records import Decided, DecisionRecord, FeedCopy
from gateway.shard.merged_feeds import Merged, MergedFeeds
from tests.unit.gateway.shard.feed_harness import FEED, STREAM, A, B
from tests.unit.gateway.shard.test_merged_feeds import copy

SETTINGS = MergeSettings(recovers=False, compared=1, deadline_ms=5_000)
STEP_MS = 25.0
FIRST = 100


class SimulatedShard:
    """`let_go` has each number that is let go: whether it is late, and when."""

    def __init__(self) -> None:
        self.records: list[FeedCopy | DecisionRecord] = []
        self.counts: Counter[str] = Counter()
        self.feeds = MergedFeeds([FEED], SETTINGS, 1_000, self.counts)
        self.let_go: list[tuple[int, bool, float]] = []

    def simulate(self, slow: Feed, lag_ms: float, last: int) -> None:
        """The source sends number n at n * `STEP_MS`. The slower slot brings it `lag_ms` later, the other one at once;
        the shard gets what comes from when the slower one brings `FIRST` until it brings `last`."""
        ahead = int(lag_ms / STEP_MS)
        for number in range(FIRST, last + 1):
            now = number * STEP_MS + lag_ms
            self.take(slow, number, now)
            self.take(Feed(1 - slow), number + ahead, now + 1)
            self.decide(now + 2)

    def take(self, slot: Feed, number: int, now_ms: float) -> None:
        record = copy(len(self.records), slot, STREAM, number)
        self.records.append(record)
        self._note(self.feeds.take(record, now_ms), now_ms)

    def decide(self, now_ms: float) -> None:
        while found := [*self.feeds.proposals(now_ms, may_give_up=True)]:
            for name, decisions in found:
                self.apply(DecisionRecord(1, name, decisions), now_ms)

    def apply(self, record: DecisionRecord, now_ms: float) -> None:
        self.records.append(record)
        self._note(self.feeds.decide(record, len(self.records) - 1, now_ms), now_ms)

    def of_another_home(self) -> list[tuple[int, bool]]:
        """What it lets go by the same records."""
        feeds, let_go = MergedFeeds([FEED], SETTINGS), list[Merged]()
        for position, one in enumerate(self.records):
            let_go += feeds.take(one, 0.0) if isinstance(one, FeedCopy) else feeds.decide(one, position, 0.0)
        return [(one.copy.stamps.sequence, one.release.is_late) for one in let_go if one.release is not None]

    def _note(self, merged: list[Merged], now_ms: float) -> None:
        for one in merged:
            if one.release is not None:
                self.let_go.append((one.copy.stamps.sequence, one.release.is_late, now_ms))


def begun(slow: Feed, *, is_asleep: bool) -> SimulatedShard:
    """A shard in which the stream is asleep, or new."""
    shard = SimulatedShard()
    if is_asleep:
        shard.take(slow, 0, 0.0)
        shard.take(Feed(1 - slow), 0, 0.0)
        shard.apply(DecisionRecord(1, FEED, [Decided("pause")]), 0.0)
    return shard


@pytest.mark.parametrize("is_asleep", [True, False])
@pytest.mark.parametrize("lag_ms", [200.0, 4_500.0])
@pytest.mark.parametrize("slow", [A, B])
def test_a_slot_within_the_deadline_is_waited_for(slow: Feed, lag_ms: float, is_asleep: bool) -> None:
    """All comes in order, and nothing is lost."""
    shard = begun(slow, is_asleep=is_asleep)
    shard.simulate(slow, lag_ms, 1_000)
    assert [(number, is_late) for number, is_late, _ in shard.let_go if number] == [
        (number, False) for number in range(FIRST, 1_001 + int(lag_ms / STEP_MS))
    ]
    assert not shard.counts["feed_lost"]


@pytest.mark.parametrize("is_asleep", [True, False])
@pytest.mark.parametrize("lag_ms", [6_000.0, 60_000.0])
@pytest.mark.parametrize("slow", [A, B])
def test_a_slot_that_is_farther_behind_is_waited_for_until_the_deadline(
    slow: Feed, lag_ms: float, is_asleep: bool
) -> None:
    """Until then it goes on in order at the slower slot's pace; then with the faster one's. What the slower one brings
    later comes marked as late: nothing is missing, and nothing twice. Each number that was given up is counted."""
    shard = begun(slow, is_asleep=is_asleep)
    ahead = int(lag_ms / STEP_MS)
    shard.simulate(slow, lag_ms, FIRST + 2 * ahead)
    let_go = [one for one in shard.let_go if one[0]]
    in_order = [(number, at) for number, is_late, at in let_go if not is_late]
    assert in_order == sorted(in_order)
    assert all(later[1] - earlier[1] <= 2 * STEP_MS for earlier, later in pairwise(in_order))
    leaps = [at for (number, at), (following, _) in pairwise(in_order) if following > number + 1]
    assert [at - let_go[0][2] for at in leaps] == [pytest.approx(SETTINGS.deadline_ms, abs=2 * STEP_MS)]
    assert sorted(number for number, _, _ in let_go) == [*range(FIRST, FIRST + 3 * ahead + 1)]
    assert shard.counts["feed_lost"] == shard.counts["feed_late"] > 0
    assert shard.of_another_home() == [(number, is_late) for number, is_late, _ in shard.let_go]
