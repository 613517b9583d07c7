"""The subscriber's core: beginnings, epochs, switches, limits, and time that only passes while all is read (S3, S6)."""

from edge.feed_subscriber.batch import SearchResult
from edge.feed_subscriber.items import Different, Ended, Gap, Lost, Switched
from edge.feed_subscriber.limits import FeedLimits
from feeds.merge_settings import MergeSettings
from feeds.message import Feed, stream_id
from tests.unit.edge.feed_subscriber.core_harness import STREAM, Harness, Log, Logged, message, passed

A, B = Feed.ACTIVE, Feed.BACKUP


def log(*numbers: int, stream: str = STREAM, payload: bytes = b"x") -> Log:
    return [Logged(message(one, stream, payload=payload), one + 1) for one in numbers]


def test_a_stream_begins_with_the_lower_number_of_both_feeds() -> None:
    harness = Harness([log(3, 4, 5), log(1, 2, 3)])
    harness.read(A, 3)
    harness.wait(0.1)
    assert len(harness.core.outputs) == 0, "the backup has not brought it yet"
    harness.read(B, 3)
    harness.take(10)
    assert harness.numbers(late=False) == [1, 2, 3, 4, 5]


def test_a_stream_of_one_feed_begins_after_a_while() -> None:
    harness = Harness([log(3, 4), []])
    harness.read(A, 2)
    harness.wait(0.3)
    harness.take(10)
    assert harness.numbers() == [3, 4]


def test_what_waits_unread_is_no_gap_and_is_not_given_up() -> None:
    """S3: an outage of the brokers, or a slow application, longer than the deadline."""
    harness = Harness([log(0, 3), log(0, 1, 2, 3)])
    harness.read(A)
    harness.read(B)
    harness.wait(1.0, is_read=False)
    harness.read(A)
    for _ in range(20):
        harness.wait(1.0, is_read=False)
    harness.read(B, 3)
    harness.wait(1.0)
    harness.take(10)
    assert harness.numbers() == [0, 1, 2, 3]
    assert harness.of(Lost) == harness.of(Gap) == []


def test_an_outage_declares_nobody_dead() -> None:
    harness = Harness([[], []])
    harness.alive = {A: True, B: True}
    harness.wait(1.0)
    harness.alive = {A: False, B: False}
    harness.wait(60.0, is_read=False)
    harness.alive = {A: True, B: True}
    harness.wait(1.0)
    harness.take(10)
    assert harness.of(Switched) == []


def test_deaths_returns_and_assignments_are_told() -> None:
    """S3, S6."""
    harness = Harness([[], []])
    harness.alive = {A: True, B: True}
    harness.wait(1.0)
    harness.alive[A] = False
    harness.wait(1.0)
    harness.assign("backup", 1)
    harness.wait(0.1)
    harness.alive[A] = True
    harness.wait(0.3)
    harness.take(10)
    told = [(one.slot, one.what, one.adapter, one.reason) for one in harness.of(Switched) if isinstance(one, Switched)]
    assert told == [
        ("active", "dead", "a0", ""),
        ("backup", "assigned", "", "test"),
        ("active", "alive", "a0", ""),
    ]


def test_an_epoch_ends_when_both_have_left_it_or_one_and_the_other_is_dead() -> None:
    """S3: what is missing is lost, once; late copies are dropped; a restart knows."""
    new = stream_id("radar", 1)
    limits = FeedLimits(epoch_s=1)
    logs = [log(0, 2, 3) + log(0, 1, stream=new), log(0)]
    harness = Harness(logs, limits)
    harness.alive = {A: True, B: True}
    harness.wait(0.5)
    harness.read_all()
    harness.wait(3.0)
    assert all(not isinstance(one, Ended) for one in harness.seen)
    harness.alive[B] = False
    harness.wait(3.0)
    harness.take(100)
    assert harness.numbers() == [0, 2, 3]
    assert harness.numbers(new) == [0, 1]
    assert harness.lost() == [1]
    assert [one.stream for one in harness.of(Ended) if isinstance(one, Ended)] == [STREAM]
    logs[B] += log(1, 2)
    harness.kill()
    harness.wait(0.5)
    harness.read_all()
    harness.wait(0.5)
    harness.take(100)
    assert harness.numbers() == [0, 2, 3]
    assert harness.core.counts["expired"] == 2


def test_an_end_that_is_not_committed_comes_again() -> None:
    new = stream_id("radar", 1)
    harness = Harness([log(0, 1) + log(0, stream=new), log(0, 1) + log(0, stream=new)], FeedLimits(epoch_s=0.1))
    harness.read_all()
    harness.wait(0.5)
    harness.take(3)
    harness.kill()
    harness.read_all()
    harness.wait(0.5)
    harness.take(10)
    assert harness.numbers() == [0, 1]
    assert harness.numbers(new) == [0]
    assert len(harness.of(Ended)) == 1


def test_a_difference_is_told() -> None:
    harness = Harness([log(0, 1), log(0, 1, payload=b"y")])
    harness.read(A, 2)
    harness.read(B, 2)
    harness.take(10)
    assert [(one.sequence, one.adapter) for one in harness.of(Different) if isinstance(one, Different)] == [
        (0, "adapter"),
        (1, "adapter"),
    ]


def test_more_source_streams_than_allowed_are_refused() -> None:
    streams = [stream_id(f"s{number}", 0) for number in range(3)]
    logs: list[Log] = [[one for stream in streams for one in log(0, stream=stream)] for _ in (A, B)]
    harness = Harness(logs, FeedLimits(merge=MergeSettings(streams=2)))
    harness.read_all()
    harness.take(10)
    assert [harness.numbers(stream) for stream in streams] == [[0], [0], []]
    assert harness.core.counts["refused"] == 2


def test_administrative_messages_are_given_once_over_restarts() -> None:
    """S4: they follow their number, and have none themselves."""
    logs: list[Log] = [log(0, 1), log(0, 1)]
    for one in logs:
        one.insert(1, Logged(message(0, part=1), 1))
        one.insert(2, Logged(message(0, part=2), 1))
    harness = Harness(logs)
    harness.read_all()
    harness.take(2)
    harness.kill()
    harness.read_all()
    harness.take(10)
    assert [(one.sequence, one.part) for one in harness.seen] == [(0, 0), (0, 1), (0, 2), (1, 0)]  # type: ignore[union-attr]


def test_a_snapshot_is_waited_for_after_both_logs_were_read() -> None:
    harness = Harness([log(0, 3), log(0, 3)])
    core = harness.core
    core._merging._gaps = []  # as with has_snapshots
    harness.read_all()
    harness.wait(0.05)
    (gap,) = core.take_gaps()
    harness.wait(1.0)
    core.take_snapshot(gap, {2: b"found", 9: b"not asked for"}, harness.now)
    harness.wait(0.1)
    harness.take(10)
    assert harness.numbers() == [0, 2, 3]
    assert harness.lost() == [1]


def test_the_log_of_a_dead_slot_that_is_not_read_is_searched_to_its_end() -> None:
    """S3: in mode cold; nothing more is expected of it then."""
    harness = Harness([log(0, 1, 5), log(0, 1, 2)], FeedLimits(merge=MergeSettings(deadline_ms=1e9)), "cold")
    harness.alive = {A: True, B: False}
    harness.beat(B)
    harness.read_all()
    harness.wait(2.0)
    while harness.search():
        harness.wait(0.1)
    harness.wait(0.1)
    harness.take(10)
    assert harness.numbers() == [0, 1, 2, 5]
    assert harness.lost() == [3, 4]


def test_a_search_that_did_not_go_beyond_is_made_again() -> None:
    harness = Harness([log(0, 3), log(0)], FeedLimits(merge=MergeSettings(deadline_ms=1e9)), "cold")
    harness.read_all()
    harness.wait(0.1)
    assert harness.search()
    assert not harness.search(), "not at once"
    harness.wait(0.1)
    wanted = harness.core.next_search()
    assert wanted is not None
    assert wanted.ranges == [(STREAM, 1, 2)]
    assert harness.core.next_search() is None, "one at a time"
    harness.core.take_search(SearchResult(wanted, [message(1), message(2)], [(STREAM, 1, 2)], ended=True), harness.now)
    harness.take(10)
    assert harness.numbers() == [0, 1, 2, 3]


def test_a_word_that_nothing_comes_is_not_forgotten_by_a_restart() -> None:
    """S3: what is known to be lost only by it is reported."""
    harness = Harness([[*log(0), Logged(passed(2), 3)], [*log(0), Logged(passed(2), 3)]])
    harness.read_all()
    harness.take(1)
    harness.kill()
    harness.read_all()
    harness.wait(0.2)
    harness.take(10)
    assert harness.numbers() == [0]
    assert harness.lost() == [1, 2]
