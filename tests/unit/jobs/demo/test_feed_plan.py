"""What the feeds' demo plans: who loses what, when adapters are killed (S2, S3)."""

from datetime import time
from itertools import pairwise

import msgspec
import pytest

from feeds.message import FEEDS, Feed
from jobs.demo.errors import DemoError
from jobs.demo.feed_plan import FIRST_KILL, LAST_KILL, SOURCE, outages, plan_feeds

BEGIN_S = 1_720_248_189.5


def lines(count: int, epoch: int = 1) -> list[bytes]:
    """A message every tenth of a second, as the sequencer numbers them."""
    return [
        b"%d:%d\t%s" % (epoch, number, msgspec.json.encode({"timestamp": BEGIN_S + number / 10, "frame": "8f"}))
        for number in range(1, count + 1)
    ]


def test_a_plan_follows_from_its_seed() -> None:
    assert plan_feeds(lines(2_000), 1, 20) == plan_feeds(lines(2_000), 1, 20)
    assert plan_feeds(lines(2_000), 1, 20).truth != plan_feeds(lines(2_000), 2, 20).truth


def test_what_a_way_brings_and_what_it_loses_are_all_messages() -> None:
    plan = plan_feeds(lines(20_000), 3, 80)
    assert set(plan.payloads) == set(range(1, 20_001))
    for feed in FEEDS:
        brought = [copy.message.sequence for copy in plan.ways[feed].copies]
        lost = {number for _, number in plan.truth.missing[feed]}
        assert len(brought) == len(set(brought))
        assert set(brought).isdisjoint(lost)
        assert set(brought) | lost == set(plan.payloads)
        assert 0.002 < len(lost) / 20_000 < 0.03
    assert plan.truth.lost == plan.truth.missing[Feed.ACTIVE] & plan.truth.missing[Feed.BACKUP]
    assert plan.truth.lost


@pytest.mark.parametrize("seed", range(20))
def test_both_ways_bring_the_last_message_last(seed: int) -> None:
    """Nobody could tell that a last message is missing."""
    plan = plan_feeds(lines(50), seed, 80)
    for way in plan.ways.values():
        assert way.copies[-1].message.sequence == 50
        assert [copy.at_us for copy in way.copies] == sorted(copy.at_us for copy in way.copies)


def test_lines_keep_their_numbers_on_the_way_and_payloads_have_none() -> None:
    sent = lines(10)
    plan = plan_feeds(sent, 1, 1)
    assert plan.stream == f"{SOURCE}@1"
    for copy in plan.ways[Feed.ACTIVE].copies:
        number = copy.message.sequence
        assert copy.message.payload == sent[number - 1]
        assert sent[number - 1] == b"1:%d\t%s" % (number, plan.payloads[number])


def test_the_replay_takes_the_recordings_time_by_the_speed() -> None:
    plan = plan_feeds(lines(1_001), 1, 20)
    assert plan.seconds == pytest.approx(100 / 20, abs=0.01)
    assert plan.begin_us == pytest.approx((BEGIN_S + 0.1) * 1e6, abs=1)


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("seconds", [1.0, 20.0, 60.0, 4_800.0])
def test_both_adapters_are_killed_but_never_both_at_once(seed: int, seconds: float) -> None:
    found = outages(seed, seconds)
    assert {one.feed for one in found} == set(FEEDS)
    assert found[0].at_s >= FIRST_KILL * seconds
    assert found[-1].until_s <= LAST_KILL * seconds
    assert all(one.at_s < one.until_s for one in found)
    assert all(one.until_s < other.at_s for one, other in pairwise(found))


@pytest.mark.parametrize("line", [b"no number", b"1:2\tno JSON", b'1:2\t{"frame": "8f"}'])
def test_what_is_no_numbered_line_with_a_time_is_refused(line: bytes) -> None:
    with pytest.raises(DemoError):
        plan_feeds([*lines(1), line], 1, 20)


def test_only_what_was_sent_before_a_time_in_paris_is_replayed() -> None:
    """The recording begins at 08:43:09.5, Paris time."""
    plan = plan_feeds(lines(2_000), 1, 20, time(8, 44))
    assert max(plan.payloads) == 504
    assert len(plan_feeds(lines(2_000), 1, 20, time(11)).payloads) == 2_000
    with pytest.raises(DemoError, match="after 08:43"):
        plan_feeds(lines(2_000), 1, 20, time(8))


def test_one_message_is_not_enough() -> None:
    with pytest.raises(DemoError, match="less than two"):
        plan_feeds(lines(1), 1, 20)
