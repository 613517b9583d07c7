"""`up --only`: which parts of a stack start."""

import pytest

from jobs.errors import StackError
from jobs.stack.local import selected
from jobs.stack.part import Part

PARTS = [
    Part("broker", ("kafka",), {}, dict),
    Part("topics", (), {}, dict, after=("broker",)),
    Part("ledger", ("ledger",), {}, dict, after=("topics",)),
    Part("gateway", ("gateway",), {}, dict, after=("topics",)),
]


def names(only: set[str]) -> list[str]:
    return [part.name for part in selected(PARTS, only)]


def test_a_part_starts_with_those_that_it_needs_in_their_order() -> None:
    assert names({"gateway"}) == ["broker", "topics", "gateway"]
    assert names({"gateway", "ledger"}) == ["broker", "topics", "ledger", "gateway"]
    assert names({"broker"}) == ["broker"]


def test_without_a_choice_all_start() -> None:
    assert names(set()) == ["broker", "topics", "ledger", "gateway"]


def test_an_unknown_part_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(StackError, match="no part gate, way: the parts are broker, topics, ledger, gateway"):
        names({"way", "gate", "broker"})
