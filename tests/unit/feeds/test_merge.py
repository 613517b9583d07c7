"""How gaps are noticed, asked for and given up; what is late, a duplicate, different (S3, S6)."""

import pytest

from feeds.errors import FeedStateError
from feeds.held import MESSAGE_BYTES
from feeds.merge import Merger
from feeds.merge_events import (
    Delivered,
    Different,
    Duplicate,
    Expired,
    Late,
    Lost,
    Recover,
    Recovered,
    Refused,
    Suspected,
)
from feeds.merge_inputs import Alive, Begin, Copy, Dead, Forget, Passed, Reason, Searched
from feeds.merge_settings import MergeSettings
from feeds.message import NUMBER_MAX, stream_id
from tests.unit.feeds.merged import STREAM, A, B, MergeRun, message, restored


def run_with(*copies: int, **settings: float) -> MergeRun:
    """Both feeds were followed from 0; the active has brought these."""
    run = MergeRun(MergeSettings(**settings))  # type: ignore[arg-type]
    run.apply(Begin(STREAM, 0))
    for number in copies:
        run.copy(A, number)
    return run


def test_the_timer_finds_a_gap_before_a_silent_spot() -> None:
    """S3: after 7 nothing comes any more, on either feed."""
    run = run_with(0, 7)
    assert run.merger.due_ms() == 25
    assert run.wait(24.9) == []
    assert run.wait(0.1) == [Suspected(STREAM, 1, 6), Recover(B, STREAM, 1, 6)]
    assert run.wait(4974) == []
    assert run.merger.due_ms() == 5000
    assert run.wait(1) == [Lost(STREAM, 1, 6, Reason.DEADLINE), Delivered(A, message(7))]
    assert run.merger.due_ms() is None


def test_a_gap_that_is_filled_in_time_is_nothing() -> None:
    run = run_with(0, 2)
    run.wait(24)
    assert run.copy(B, 1) == [Delivered(B, message(1)), Delivered(A, message(2))]
    assert run.merger.due_ms() is None
    assert run.wait(10_000) == []


def test_exactly_the_missing_range_is_recovered() -> None:
    """S3: the backup's log has 1 and 3, but not 2."""
    run = run_with(0, 4)
    assert Recover(B, STREAM, 1, 3) in run.wait(25)
    assert run.found(B, 1) == [Recovered(B, STREAM, 1), Delivered(B, message(1))]
    assert run.found(B, 3) == [Recovered(B, STREAM, 3)]
    assert run.merger.requests() == [Recover(B, STREAM, 2, 2)] == restored(run.merger, run.settings, 0).requests()
    run.apply(Searched(B, STREAM, 1, 3))
    assert run.merger.requests() == []
    assert run.wait(24) == []
    assert run.wait(1)[0] == Lost(STREAM, 2, 2, Reason.PASSED)
    assert run.seen() == [0, 1, 3, 4]


def test_a_gap_on_both_feeds_is_lost_only_when_both_have_passed_it() -> None:
    run = run_with(0, 2)
    run.copy(B, 0)
    assert Recover(B, STREAM, 1, 1) in run.wait(1000)
    run.copy(B, 2)
    assert run.wait(24) == [], "the backup's copies may be out of order too"
    assert run.wait(1) == [Lost(STREAM, 1, 1, Reason.PASSED), Delivered(A, message(2))]


def test_a_feeds_word_is_as_good_as_a_message() -> None:
    """The last messages are missing, and nothing follows them."""
    run = run_with(0)
    run.apply(Passed(A, STREAM, 2))
    run.apply(Passed(B, STREAM, 2))
    assert run.wait(25) == [Suspected(STREAM, 1, 2), Lost(STREAM, 1, 2, Reason.PASSED)]


def test_nothing_is_expected_of_a_dead_feed() -> None:
    """S6: and all of it of one that is alive again."""
    run = run_with(0, 2)
    run.apply(Dead(B))
    run.apply(Alive(B))
    assert run.wait(25) == [Suspected(STREAM, 1, 1), Recover(B, STREAM, 1, 1)]
    run.apply(Dead(B))
    assert run.wait(25) == [Lost(STREAM, 1, 1, Reason.PASSED), Delivered(A, message(2))]
    run.apply(Alive(B))
    run.copy(A, 4)
    assert Recover(B, STREAM, 3, 3) in run.wait(25)
    assert run.copy(B, 3)[-2:] == [Delivered(B, message(3)), Delivered(A, message(4))]


def test_a_feed_that_was_joined_after_a_gap_has_not_passed_it() -> None:
    """S3: cold take-up of the backup; its log is asked for what was before."""
    run = MergeRun()
    run.copy(A, 3)
    run.copy(A, 5)
    run.copy(B, 6)
    assert run.wait(25) == [Suspected(STREAM, 4, 4), Recover(B, STREAM, 4, 4)]
    assert run.found(B, 4)[1:] == [Delivered(B, message(4)), Delivered(A, message(5)), Delivered(B, message(6))]


@pytest.mark.parametrize("limit", [{"held_messages": 3}, {"held_bytes": 3 * (MESSAGE_BYTES + 1)}])
def test_a_full_buffer_counts_as_the_deadline(limit: dict[str, float]) -> None:
    run = run_with(0, 2, 3, 4, **limit)
    assert run.seen() == [0]
    assert run.copy(A, 5)[0] == Lost(STREAM, 1, 1, Reason.FULL)
    assert run.seen() == [0, 2, 3, 4, 5]


def test_a_late_copy_is_delivered_once_and_marked() -> None:
    """S3."""
    run = run_with(0, 2, deadline_ms=25)
    run.wait(25)
    assert run.copy(B, 1) == [Late(B, message(1), deliver=True)]
    assert run.copy(A, 1) == [Duplicate(A, message(1))]


def test_late_copies_may_only_be_counted() -> None:
    """They are no duplicates, however many come."""
    run = run_with(0, 2, deadline_ms=25, delivers_late=False)
    run.wait(25)
    for feed in (B, A):
        assert run.copy(feed, 1) == [Late(feed, message(1), deliver=False)]


def test_what_nobody_remembers_is_not_called_a_duplicate() -> None:
    run = run_with(1, 3, 5, deadline_ms=25, lost_ranges=1)
    run.wait(25)
    assert run.lost() == [0, 2, 4]
    assert run.copy(B, 0) == [Expired(B, message(0))]
    assert run.copy(B, 4) == [Late(B, message(4), deliver=True)]


def test_without_a_known_start_the_first_copy_is_the_start() -> None:
    run = MergeRun()
    assert run.copy(A, 5) == [Delivered(A, message(5))]
    assert run.copy(B, 4) == [Late(B, message(4), deliver=True)]
    assert run.copy(B, 5) == [Duplicate(B, message(5))]


def test_a_difference_between_the_feeds_is_an_event() -> None:
    """Also if one feed repeats itself before the other's copy comes."""
    run = run_with()
    run.copy(A, 0, payload=b"21.5")
    run.copy(A, 0, payload=b"21.5")
    assert run.copy(B, 0, payload=b"21.4") == [
        Different(B, message(0, payload=b"21.4")),
        Duplicate(B, message(0, payload=b"21.4")),
    ]
    run.copy(A, 2, payload=b"x")
    assert Different(B, message(2, payload=b"y")) in run.copy(B, 2, payload=b"y"), "while it is held"


def test_a_new_epoch_is_a_new_stream_and_the_old_one_can_be_forgotten() -> None:
    """S3: numbers begin anew; nothing of the old epoch comes back."""
    run, new = run_with(0, 1, 3), stream_id("radar", 1)
    assert run.apply(Copy(A, message(0, new))) == [Delivered(A, message(0, new))]
    assert run.apply(Forget(STREAM)) == [Lost(STREAM, 2, 2, Reason.ENDED), Delivered(A, message(3))]
    assert run.copy(B, 2) == [Expired(B, message(2))]
    assert [one.stream for one in run.merger.export().streams] == [new]


def test_streams_beyond_the_limit_are_refused() -> None:
    run, other = run_with(0, streams=1), stream_id("other", 0)
    assert run.apply(Copy(A, message(0, other))) == [Refused(A, message(0, other), "streams")]


def test_numbers_may_be_as_large_as_kafka_and_spark_allow() -> None:
    run = MergeRun()
    run.copy(A, 0)
    run.copy(A, NUMBER_MAX)
    assert Recover(B, STREAM, 1, NUMBER_MAX - 1) in run.wait(25)
    assert run.wait(10_000) == [Lost(STREAM, 1, NUMBER_MAX - 1, Reason.DEADLINE), Delivered(A, message(NUMBER_MAX))]


def test_an_administrative_message_follows_its_number() -> None:
    """S4: it consumes no number; each copy after the first is a duplicate."""
    run = run_with(0)
    assert run.copy(A, 0, 1) == [Delivered(A, message(0, part=1))]
    assert run.copy(B, 0, 1) == [Duplicate(B, message(0, part=1))]
    assert run.copy(A, 1) == [Delivered(A, message(1))]
    assert run.copy(A, 2, 1) == [], "it says that 2 exists, so 2 is waited for"
    assert run.copy(B, 3) == []
    assert run.copy(B, 2) == [Delivered(B, message(2)), Delivered(A, message(2, part=1)), Delivered(B, message(3))]
    assert run.copy(B, 2, 2) == [Late(B, message(2, part=2), deliver=True)]


def test_an_administrative_message_outlives_the_loss_of_its_number() -> None:
    run = run_with(0)
    run.copy(A, 1, 1)
    run.copy(A, 2)
    run.apply(Dead(B))
    assert run.wait(50)[1:] == [
        Lost(STREAM, 1, 1, Reason.PASSED),
        Delivered(A, message(1, part=1)),
        Delivered(A, message(2)),
    ]


def test_an_administrative_message_shows_that_its_feed_has_passed_the_number() -> None:
    run = run_with(0, 2)
    run.copy(B, 2, 1)
    assert run.wait(25)[:2] == [Suspected(STREAM, 1, 1), Lost(STREAM, 1, 1, Reason.PASSED)]


def test_what_was_suspected_is_not_suspected_again_after_a_restart() -> None:
    run = run_with(0, 2)
    run.wait(25)
    again = restored(run.merger, run.settings, 0)
    assert again.proposals(100) == []
    assert again.due_ms() == 4975


def test_a_copy_from_a_log_may_open_a_gap() -> None:
    """And says nothing about the numbers before it."""
    run = run_with(0)
    assert run.found(B, 2) == []
    assert run.wait(25) == [Suspected(STREAM, 1, 1), Recover(A, STREAM, 1, 1), Recover(B, STREAM, 1, 1)]


def test_more_gaps_than_allowed_end_the_first() -> None:
    run = run_with(0, 2, 4, gaps=2)
    assert run.copy(A, 6)[0] == Lost(STREAM, 1, 1, Reason.FULL)
    assert run.seen() == [0, 2]


def test_a_contradictory_state_is_refused() -> None:
    run = run_with(0, 2)
    state = run.merger.export()
    with pytest.raises(FeedStateError, match="radar@0"):
        Merger(run.settings, state._replace(streams=(state.streams[0]._replace(held=()),)))


def test_settings_that_contradict_are_refused() -> None:
    with pytest.raises(ValueError, match="deadline"):
        MergeSettings(reorder_ms=30, deadline_ms=20)
    with pytest.raises(ValueError, match="gaps must be at least 1"):
        MergeSettings(gaps=0)
