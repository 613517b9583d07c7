"""The stored form of a source stream's state: round trips, every truncation, and what is contradictory (S3)."""

import contextlib

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from feeds.errors import FeedStateError
from feeds.merge import Merger
from feeds.merge_events import Recover
from feeds.merge_inputs import Begin, Copy, GiveUp, Input, Passed, Reason, Repositioned, Searched, Suspect
from feeds.merge_settings import MergeSettings
from feeds.merge_state import GapState, MergerState, StreamState
from feeds.message import FEEDS, NUMBER_MAX
from feeds.state_codec import VERSION, decode_state, encode_state
from tests.unit.feeds.merged import STREAM, A, MergeRun, message

SETTINGS = MergeSettings()
SMALL = MergeSettings(gaps=2, lost_ranges=2, held_messages=3, compared=2, administrative=2)
feeds_of = st.sampled_from(FEEDS)
any_number = st.sampled_from([*range(8), 2**62, NUMBER_MAX - 1, NUMBER_MAX])
any_message = st.builds(message, any_number, part=st.sampled_from([0, 0, 0, 1, 2, NUMBER_MAX]))
any_input = st.one_of(
    st.builds(Copy, feeds_of, any_message, st.booleans()),
    st.builds(Passed, feeds_of, st.just(STREAM), any_number),
    st.builds(Begin, st.just(STREAM), any_number),
    st.builds(Repositioned, feeds_of, st.just(STREAM)),
    st.builds(Searched, feeds_of, st.just(STREAM), any_number, any_number),
    st.builds(Suspect, st.just(STREAM), any_number),
    st.builds(GiveUp, st.just(STREAM), any_number, st.just(Reason.DEADLINE)),
)


def state_of(copies: list[tuple[int, int, int]]) -> StreamState:
    merger = Merger(SETTINGS)
    merger.apply(Begin(STREAM, 0), 0)
    for feed, sequence, part in copies:
        merger.apply(Copy(FEEDS[feed], message(sequence, part=part)), 0)
    merger.apply(Suspect(STREAM, 3), 30)
    return merger.export().streams[0]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 9), st.integers(0, 2)), max_size=15))
def test_what_is_stored_is_restored(copies: list[tuple[int, int, int]]) -> None:
    """With gaps, what is held, and administrative messages; and a merger goes on with it."""
    state = state_of(copies)
    found = decode_state(encode_state(state), SETTINGS)
    assert found == state
    assert Merger(SETTINGS, MergerState((found,), (False, False), ())).export().streams[0] == state


@settings(max_examples=100, deadline=None)
@given(st.lists(any_input, max_size=20))
@example([Copy(FEEDS[0], message(0)), Passed(FEEDS[1], STREAM, NUMBER_MAX)])
@example([Copy(FEEDS[0], message(0)), Copy(FEEDS[1], message(NUMBER_MAX, part=1))])
def test_whatever_adapters_write_is_stored_and_restored(given_inputs: list[Input]) -> None:
    """S3: up to the highest number, and at the limits."""
    merger = Merger(SMALL)
    for one in given_inputs:
        merger.apply(one, 0)
    for state in merger.export().streams:
        found = decode_state(encode_state(state), SMALL)
        assert found == state
        assert Merger(SMALL, MergerState((found,), (False, False), ())).export().streams[0] == state


def test_what_is_cut_off_or_of_another_version_is_refused() -> None:
    raw = encode_state(state_of([(0, 0, 0), (0, 4, 0), (1, 5, 1)]))
    for end in range(len(raw)):
        with pytest.raises(FeedStateError, match="damaged"):
            decode_state(raw[:end], SETTINGS)
    for begin in (b"\x92\x01", b"\x92\x01\x9c", b""):
        with pytest.raises(FeedStateError, match="damaged"):
            decode_state(begin + b"\x91" * 100_000, SETTINGS)  # nested too deeply
    other = msgspec.msgpack.encode((VERSION + 1, state_of([])))
    with pytest.raises(FeedStateError, match=f"version {VERSION + 1}"):
        decode_state(other, SETTINGS)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"lost": ((5, 3),)}, "out of order"),
        ({"lost": ((0, 2), (2, 3))}, "out of order"),
        ({"gaps": (GapState(1, 99, False, 0),)}, "out of order"),
        ({"lost": tuple((n, n) for n in range(0, 4_000, 2)), "end": 5_000}, "more than 1000"),
        ({"first": (0,)}, "2 feeds"),
        ({"highest": (0, 2**63)}, "out of range"),
        ({"first": (0, 2**63 + 1)}, "out of range"),
        ({"end": -1}, "out of range"),
        ({"held": ((2, message(0)),)}, "another feed"),
        ({"held": ((0, message(0, "ships@0")),)}, "another feed"),
        ({"digests": ((99, 1),)}, "out of range"),
        ({"parts": ((0, 0, 1),)}, "out of range"),
        ({"stream": "nameless"}, "name@epoch"),
    ],
)
def test_what_is_contradictory_is_refused(change: dict[str, object], problem: str) -> None:
    """A damaged file is found before anything is decided by it."""
    state = state_of([(0, 0, 0), (0, 1, 0), (0, 2, 0)])._replace(**change)
    with pytest.raises(FeedStateError, match=problem):
        decode_state(encode_state(state), SETTINGS)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_are_a_state(raw: bytes) -> None:
    with contextlib.suppress(FeedStateError):
        decode_state(raw, SETTINGS)


def test_a_feed_that_was_repositioned_has_passed_nothing() -> None:
    """S3, S6: its log is asked for what is missing, although it brings higher numbers."""
    run = MergeRun()
    run.apply(Begin(STREAM, 0))
    run.copy(A, 0)
    run.apply(Repositioned(A, STREAM))
    run.copy(A, 3)
    asked = [one for one in run.wait(30) if isinstance(one, Recover)]
    assert [(one.feed, one.first, one.last) for one in asked] == [(FEEDS[0], 1, 2), (FEEDS[1], 1, 2)]
