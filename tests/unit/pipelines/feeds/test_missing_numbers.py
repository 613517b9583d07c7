"""What neither slot has brought, batch by batch, is what a set of numbers says (S5)."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipelines.feeds.missing_numbers import MissingNumbers

SLOTS = ("active", "backup")
BATCHES = st.lists(
    st.tuples(
        st.sampled_from(SLOTS), st.lists(st.integers(0, 40), max_size=12), st.none() | st.integers(0, 50)
    ),
    max_size=12,
)  # fmt: skip


@given(BATCHES)
def test_it_is_what_a_set_says(batches: list[tuple[str, list[int], int | None]]) -> None:
    """From the lowest number of the first batch on; a batch's mark comes behind its copies."""
    missing, got, reached, base, top = MissingNumbers(1000), set[int](), dict[str, int](), None, -1
    for slot, numbers, mark in batches:
        missing.take(np.array(numbers, np.int64))
        got.update(numbers)
        if base is None and numbers:
            base, top = min(numbers), max(numbers)
        top = max([top, *numbers])
        for passed in (max(numbers, default=None), mark):
            if passed is not None:
                missing.passed(slot, passed)
                reached[slot] = max(passed, reached.get(slot, passed))
                top = max(top, passed) if base is not None else top
        ends = {of: min(reached.get(one, -1) for one in of) for of in (SLOTS, SLOTS[:1])}
        for of, end in ends.items():
            lost = [n for n in range(base if base is not None else top + 1, top + 1) if n not in got and n <= end]
            assert missing.lost(of) == len(lost)
        for one in SLOTS:
            wanted = max(0, top - reached[one]) if base is not None and one in reached else 0
            assert missing.behind(one) == wanted


def test_only_so_many_ranges_are_remembered_however_far_numbers_are_apart() -> None:
    missing = MissingNumbers(3)
    for number in range(0, 100, 10):
        missing.take(np.array([number], np.int64))
    missing.take(np.array([2**62], np.int64))
    missing.passed("active", 2**62)
    assert missing.lost(["active"]) == 9 + 9 + 2**62 - 91


def test_numbers_of_a_lying_source() -> None:
    """S5: up to 2^63-1, and backwards."""
    missing = MissingNumbers(10)
    for numbers in ([2**32 - 1, 2**32, 2**63 - 1], [2**63 - 1, 5], [2**32 + 2]):
        missing.take(np.array(numbers, np.int64))
    for slot in SLOTS:
        missing.passed(slot, 2**63 - 1)
    assert missing.lost(SLOTS) == 2**63 - 1 - 2**32 - 2
    assert missing.behind("active") == 0


def calls_of(work: Callable[[], Any]) -> int:
    """How many functions are called."""
    calls, before = 0, sys.getprofile()

    def count(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def test_the_work_for_a_number_does_not_grow_with_the_ranges() -> None:
    """The second slot of a feed that has lost every other number: each of its numbers is a run of its own."""
    numbers = np.arange(0, 4_000, 2)

    def calls(ranges_max: int) -> int:
        missing = MissingNumbers(ranges_max)
        missing.take(numbers)
        return calls_of(lambda: missing.take(numbers))

    assert calls(1_000) < 2 * calls(10)


def test_late_numbers_that_split_a_range_leave_only_so_many() -> None:
    missing = MissingNumbers(3)
    missing.take(np.array([0, 100], np.int64))
    missing.take(np.arange(10, 90, 10))
    missing.passed("active", 100)
    assert missing.lost(["active"]) == 9 + 9 + 19, "the highest three ranges"
