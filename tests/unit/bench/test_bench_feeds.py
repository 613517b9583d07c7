"""The merger that is measured: its copies are what two adapters would write."""

from bench.feeds import STREAMS, copies, merge_per_s, without
from feeds.merge import Merger
from feeds.merge_events import Delivered, Duplicate
from feeds.message import Feed, decode, encode


def test_the_copies_are_of_the_same_messages() -> None:
    active, backup = (copies(feed, 4 * STREAMS) for feed in Feed)
    merger = Merger()
    assert all(isinstance(event, Delivered) for event in merger.take(Feed.ACTIVE, active, 0))
    assert all(isinstance(event, Duplicate) for event in merger.take(Feed.BACKUP, backup, 0))
    assert [decode(*encode(message)) for message in active] == active


def test_what_is_missing_on_one_feed_is_on_the_other() -> None:
    thinned = {feed: without(copies(feed, 1_000), 100, 37 * feed) for feed in Feed}
    assert [len(found) for found in thinned.values()] == [990, 990]
    numbers = [{(one.stream, one.sequence) for one in found} for found in thinned.values()]
    assert len(numbers[0] | numbers[1]) == 1_000
    assert merge_per_s(thinned) > 0
