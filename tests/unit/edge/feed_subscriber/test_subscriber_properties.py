"""Any two lossy copies, read in any order, with kills and commits anywhere: each message once, in order (S3, S6)."""

from hypothesis import given, settings
from hypothesis import strategies as st

from edge.feed_subscriber.limits import FeedLimits
from feeds.merge_settings import MergeSettings
from feeds.message import FEEDS, Feed
from tests import draw
from tests.unit.edge.feed_subscriber.core_harness import STREAM, Harness, Log, Logged, either, message, passed

COUNT = 12
PATIENT = FeedLimits(merge=MergeSettings(deadline_ms=1e9), take_up_ms=2)
feeds = st.sampled_from(FEEDS)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("read"), feeds, st.integers(1, 6)),
        st.tuples(st.just("wait"), st.sampled_from([0.01, 0.03, 0.3])),
        st.tuples(st.just("take"), st.integers(1, 8), st.booleans(), st.booleans()),
        st.tuples(st.just("search"), st.integers(0, COUNT)),
        st.tuples(st.just("kill")),
        st.tuples(st.just("adapter"), feeds, st.booleans()),
        st.tuples(st.just("assign"), st.sampled_from(["active", "backup"])),
    ),
    max_size=40,
)


def log_of(has: list[bool]) -> Log:
    """Of a feed that has some of the numbers, and has passed all in the end."""
    numbers = [number for number in range(COUNT) if has[number]]
    return [*(Logged(message(one), one + 1) for one in numbers), Logged(passed(COUNT - 1), COUNT + 1)]


def run(harness: Harness, drawn: list[tuple]) -> None:  # type: ignore[type-arg]
    revision = 0
    for step in drawn:
        match step:
            case "read", feed, count:
                harness.read(feed, count)
            case "wait", seconds:
                harness.wait(seconds)
            case "take", count, commits, saves:
                harness.take(count, commits=commits, saves=saves)
            case "search", records:
                harness.search(records)
            case ("kill",):
                harness.kill()
            case "adapter", feed, is_alive:
                harness.alive[feed] = is_alive
            case "assign", slot:
                revision += 1
                harness.assign(slot, revision)


def finish(harness: Harness) -> None:
    """All is read, searched and waited for, and one adapter at least lives; the application commits all."""
    harness.alive = {Feed.ACTIVE: True, Feed.BACKUP: True}
    for _ in range(12):
        harness.wait(0.3)
        harness.read_all()
        while harness.search():
            harness.wait(0.05)
    harness.take(1_000)


@settings(max_examples=draw.examples(60), deadline=None)
@given(st.data())
def test_warm(data: st.DataObject) -> None:
    """S3: nothing that either feed has is missing or doubled; what both lack is reported once."""
    has = [data.draw(st.lists(st.booleans(), min_size=COUNT, max_size=COUNT)) for _ in FEEDS]
    harness = Harness([log_of(one) for one in has], PATIENT, "warm", {STREAM: 0})
    run(harness, data.draw(steps))
    finish(harness)
    wanted = either(harness.logs)
    assert harness.numbers(late=False) == wanted
    assert harness.lost() == [number for number in range(COUNT) if number not in wanted]


@settings(max_examples=draw.examples(60), deadline=None)
@given(st.data())
def test_cold(data: st.DataObject) -> None:
    """S3, S6: over any switches and failbacks, wherever the other log is taken up."""
    has = [data.draw(st.lists(st.booleans(), min_size=COUNT, max_size=COUNT)) for _ in FEEDS]
    harness = Harness([log_of(one) for one in has], PATIENT, "cold", {STREAM: 0})
    harness.alive = {Feed.ACTIVE: True, Feed.BACKUP: True}
    harness.taken_up_at = data.draw(st.dictionaries(feeds, st.integers(0, COUNT + 1)))
    run(harness, data.draw(steps))
    finish(harness)
    wanted = either(harness.logs)
    assert harness.numbers(late=False) == wanted
    assert harness.lost() == [number for number in range(COUNT) if number not in wanted]
