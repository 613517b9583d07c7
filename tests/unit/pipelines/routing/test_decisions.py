"""What is right about the instructions of a message, and every kind of fault (R3, R6, R7)."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pipelines.routing.decisions import DIFFERS, LATER, RIGHT, Instructed, Judged, Watermarks, judged
from schemas.identity import shard_of

SHARDS = 4
AT = datetime(2026, 1, 1, 23, 30, tzinfo=UTC)
WANTED = (0, 2, 3)
"""The shards that want `a/x`; nobody wants `b`."""
HOME = shard_of("bob", SHARDS)
BEFORE, AFTER = AT, AT + timedelta(seconds=1)
"""Watermarks that do not watermarks the message, and that do."""

Found = list[tuple[str, str, tuple[int, ...]]]


def decided(scope: str, shards: Iterable[int]) -> tuple[Instructed, ...]:
    """A whole decision, as a router makes it."""
    shards = list(shards)
    last = len(shards) - 1
    return tuple(Instructed(scope, s, n, len(shards) if n == last else None) for n, s in enumerate(shards))


R = decided("routed", WANTED)
E = decided("everyone", range(SHARDS))
FAULTS: list[tuple[str, tuple[Instructed, ...], bool, Found]] = [
    ("a/x", R, False, []),
    ("a/x", R + E, False, []),
    ("a/x", E, False, []),
    ("b", (), True, []),
    ("b", E, True, []),
    ("b", E, False, []),
    ("@bob", decided("routed", [HOME]), False, []),
    ("a/x", R[:1] + R[2:], False, [("missing", "routed", (2,))]),
    ("a/x", R[:2], False, [("missing", "routed", (3,))]),
    ("a/x", (), False, [("missing", "routed", (0, 2, 3))]),
    ("a/x", decided("routed", range(4)), False, [("superfluous", "routed", (1,))]),
    ("a/x", decided("routed", [0, 1, 3]), False, [("missing", "routed", (2,)), ("superfluous", "routed", (1,))]),
    ("a/x", (R[0], R[1]._replace(number=2), R[2]), False, [("numbering", "routed", (0, 2, 3))]),
    ("a/x", (*R[:2], R[2]._replace(limit=None)), False, [("numbering", "routed", (0, 2, 3))]),
    ("a/x", (R[0], R[1]._replace(limit=3), R[2]), False, [("numbering", "routed", (0, 2, 3))]),
    ("a/x", (*R[:2], R[2]._replace(limit=4)), False, [("numbering", "routed", (0, 2, 3))]),
    ("a/x", (*R, R[0]), False, [("numbering", "routed", (0, 2, 3))]),
    ("a/x", R + E[1:], False, [("missing", "everyone", (0,))]),
    ("a/x", decided("everyone", range(5)), False, [("superfluous", "everyone", (4,))]),
    ("a/x", (), True, [("untouched", "routed", (0, 2, 3))]),
    ("b", (), False, [("undecided", "routed", ())]),
    ("b", decided("routed", [1]), False, [("superfluous", "routed", (1,))]),
    ("@bob", E, False, [("superfluous", "everyone", (0, 1, 2, 3))]),
    ("@bob", (), True, [("untouched", "routed", (HOME,))]),
    ("", R, False, [("unknown", "routed", (0, 2, 3))]),
    ("", (), True, [("unknown", "routed", ())]),
]
"""Destination (none: the ledger lacks the message), instructions, whether it was reported as untouched, and what is
wrong."""


def rows(instructed: Sequence[Instructed], offset: int = 0) -> list[dict[str, Any]]:
    return [{"partition": 0, "offset": offset, **one._asdict()} for one in instructed]


def copy(destination: str, offset: int = 0) -> dict[str, Any]:
    wanted = {"a/x": WANTED, "b": (), "@bob": (HOME,)}[destination]
    return {"partition": 0, "offset": offset, "appended": AT, "destination": destination, "wanted": wanted}


def found(one: Judged) -> tuple[str, Found]:
    return one.judgement.verdict, [tuple(difference) for difference in one.judgement.differences]


@pytest.mark.parametrize(("destination", "instructed", "untouched", "wrong"), FAULTS)
def test_every_fault_is_found(
    destination: str, instructed: tuple[Instructed, ...], untouched: bool, wrong: Found
) -> None:
    copies = [copy(destination)] if destination else []
    reports = [AT] if untouched else []
    (one,) = judged(copies, rows(instructed), reports, AT, SHARDS, Watermarks(AFTER, AFTER, AFTER, AFTER))
    assert found(one) == (DIFFERS if wrong else RIGHT, wrong)


@pytest.mark.parametrize(
    ("lacking", "destination", "instructed"),
    [("routes", "a/x", R[:1]), ("instructions", "a/x", R[:2]), ("untouched", "b", ()), ("messages", "", R)],
)
def test_what_may_still_come_is_not_judged(lacking: str, destination: str, instructed: tuple[Instructed, ...]) -> None:
    watermarks = Watermarks(AFTER, AFTER, AFTER, AFTER)._replace(**{lacking: BEFORE})
    copies = [copy(destination)] if destination else []
    (one,) = judged(copies, rows(instructed), [], AT, SHARDS, watermarks)
    assert found(one) == (LATER, [])


def test_what_is_too_much_is_sure_although_something_may_still_come() -> None:
    watermarks = Watermarks(AFTER, None, None, None)
    (one,) = judged([copy("a/x")], rows(decided("routed", [0, 1])), [], AT, SHARDS, watermarks)
    assert found(one) == (DIFFERS, [("superfluous", "routed", (1,))])


def test_each_copy_has_its_own_instructions() -> None:
    """A retry was accepted as a second message; what belongs to neither is shown with the first."""
    watermarks, stray = Watermarks(AFTER, AFTER, AFTER, None), R[:1]
    instructions = rows(R, 4) + rows(R[:2], 5) + rows(stray, 9)
    first, second = judged([copy("a/x", 4), copy("a/x", 5)], instructions, [], AT, SHARDS, watermarks)
    assert found(first) == (DIFFERS, [("unknown", "routed", (0,))])
    assert found(second) == (DIFFERS, [("missing", "routed", (3,))])
    assert [one["offset"] for one in first.instructions] == [4, 4, 4, 9]
    assert [one["offset"] for one in second.instructions] == [5, 5]


def test_a_report_that_nobody_wants_it_is_about_one_copy() -> None:
    """R7: the copy with that append time; the other was wanted."""
    first, second = copy("b", 4), copy("a/x", 5) | {"appended": AT + timedelta(seconds=1)}
    watermarks = Watermarks(*[AFTER + timedelta(seconds=1)] * 4)
    for reports, verdicts in (([AT], [RIGHT, RIGHT]), ([second["appended"]], [DIFFERS, DIFFERS])):
        both = judged([first, second], rows(R, 5), reports, AT, SHARDS, watermarks)
        assert [one.judgement.verdict for one in both] == verdicts
