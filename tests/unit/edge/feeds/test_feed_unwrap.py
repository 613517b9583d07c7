"""Numbers that start over: late and early ones within half the range are what they were (S2)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.feeds.errors import FrameError
from edge.feeds.unwrap import StreamUnwrapper, Unwrapper
from feeds.counter import MINISEED, UINT32, Counter
from feeds.errors import FeedSettingsError
from tests.draw import examples

few = settings(max_examples=examples(40))

COUNTERS = st.sampled_from([MINISEED, UINT32, Counter(0, 999_999), Counter(1, 10), Counter(0, 1), Counter(5, 11)])


def shown(counter: Counter, number: int) -> int:
    """What the counter shows of a number."""
    return counter.first + (number - counter.first) % counter.size


@few
@given(COUNTERS, st.integers(0, 2**63), st.data())
def test_numbers_within_half_the_range_of_the_highest_are_right(
    counter: Counter, near: int, data: st.DataObject
) -> None:
    unwrapper = Unwrapper(counter, near)
    highest, half = near, counter.size // 2
    for _ in range(8):
        number = highest + data.draw(st.integers(-half, counter.size - half - 1))
        assert unwrapper.unwrap(shown(counter, number)) == number
        highest = max(highest, number)
        assert unwrapper.highest == highest


@few
@given(COUNTERS.filter(lambda counter: counter.size > 9), st.data())
def test_reordered_numbers_around_where_it_starts_over(counter: Counter, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, 3)) * counter.size + counter.last - data.draw(st.integers(0, 6))
    wanted = [start + step for step in data.draw(st.permutations(range(-2, 3)))]
    unwrapper = Unwrapper(counter, start)
    assert [unwrapper.unwrap(shown(counter, number)) for number in wanted] == wanted


@pytest.mark.parametrize(
    ("counter", "values", "numbers"),
    [
        (MINISEED, [999_998, 999_999, 1, 2], [999_998, 999_999, 1_000_000, 1_000_001]),
        (MINISEED, [999_998, 1, 999_999, 2], [999_998, 1_000_000, 999_999, 1_000_001]),
        (UINT32, [2**32 - 1, 0, 2**32 - 2, 1], [2**32 - 1, 2**32, 2**32 - 2, 2**32 + 1]),
    ],
)
def test_where_counters_start_over(counter: Counter, values: list[int], numbers: list[int]) -> None:
    unwrapper = Unwrapper(counter)
    assert list(map(unwrapper.unwrap, values)) == numbers


def test_many_rounds_stay_in_step() -> None:
    unwrapper = Unwrapper(Counter(0, 99))
    for number in range(0, 10_000, 7):
        assert unwrapper.unwrap(number % 100) == number


def test_an_adapter_that_starts_later_agrees_if_it_is_told_where_the_stream_is() -> None:
    first = StreamUnwrapper(Counter(0, 9))
    numbers = [first.unwrap("a", number % 10) for number in range(25)]
    assert numbers == list(range(25))
    late = StreamUnwrapper(Counter(0, 9), first.highest())
    assert [late.unwrap("a", number % 10) for number in (25, 23, 26)] == [25, 23, 26]
    alone = StreamUnwrapper(Counter(0, 9))
    assert alone.unwrap("a", 5) == 5  # round 0: it cannot know better


def test_streams_are_apart_and_bounded() -> None:
    streams = StreamUnwrapper(MINISEED, streams_max=2)
    assert [streams.unwrap("a", 999_999), streams.unwrap("b", 5), streams.unwrap("a", 1)] == [999_999, 5, 1_000_000]
    with pytest.raises(FrameError, match="more than 2 streams"):
        streams.unwrap("c", 1)
    assert streams.unwrap("b", 6) == 6


def test_a_value_that_the_counter_does_not_have() -> None:
    for value in (0, 1_000_000, -1):
        with pytest.raises(FrameError, match="not in the counter's range, 1 to 999999"):
            StreamUnwrapper(MINISEED).unwrap("a", value)
    streams = StreamUnwrapper(MINISEED)
    streams.unwrap("a", 1)
    with pytest.raises(FrameError, match="from before the first"):
        streams.unwrap("a", 999_999)
    with pytest.raises(FeedSettingsError, match="two values or more"):
        Unwrapper(Counter(1, 1))
