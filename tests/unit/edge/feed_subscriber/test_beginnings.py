"""Source streams that wait to begin take no more memory than what is held may take (S3)."""

from edge.feed_subscriber.beginnings import Beginnings
from edge.feed_subscriber.limits import FeedLimits
from feeds.held import MESSAGE_BYTES
from feeds.merge_settings import MergeSettings
from feeds.message import FEEDS, Feed, stream_id
from tests.unit.edge.feed_subscriber.core_harness import Harness, Logged, message

BOTH = frozenset(FEEDS)


def test_the_streams_that_have_waited_longest_begin_if_there_is_too_much() -> None:
    """Only as many as have to."""
    beginnings = Beginnings(wait_s=10.0, bytes_max=3 * (MESSAGE_BYTES + 100))
    for number in range(5):
        beginnings.add(Feed.ACTIVE, message(0, stream_id(f"s{number}", 0), payload=b"x" * 100), now_s=0.0)
    found = beginnings.pop_ready(0.0, BOTH)
    assert [stream for stream, _ in found] == ["s0@0", "s1@0"]
    assert len(beginnings) == 3
    assert beginnings.pop_ready(0.0, BOTH) == []


def test_a_backlog_of_many_streams_of_one_slot_is_bounded() -> None:
    """Time stands still while it is read, so none of them begins by the clock."""
    streams = [stream_id(f"s{number}", 0) for number in range(100)]
    log = [Logged(message(number, stream, payload=b"x" * 1_000), 0) for number in range(50) for stream in streams]
    limits = FeedLimits(merge=MergeSettings(held_bytes=100_000))
    harness = Harness([log, []], limits)
    harness.core.clock.note(harness.now, is_read=False)
    harness.read(0, len(log))
    assert len(harness.core.outputs) >= len(log) - 100_000 // 1_000, "the others wait"
