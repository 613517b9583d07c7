"""Administrative messages of two adapters, over all interleavings, crashes and switches (S4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feeds.registry_records import AdministrativeResult
from feeds.synchronise import OnRefusal, SynchroniseSettings
from tests.unit.edge.feeds.adapter.administration_pair import KEEP_S, Pair

SETTINGS = [SynchroniseSettings(threshold=6, on_refusal=policy, put_off=2) for policy in OnRefusal]
ACTIONS = [
    "advance",
    "receive",
    "step",
    "say",
    "request",
    "switch",
    "crash",
    "crash and say later",
    "ghost",
    "misjudge",
]
CALM = ["advance", "receive", "step", "say", "request", "switch"]


def run(pair: Pair, actions: list[tuple[str, int, int]]) -> None:
    """`(action, which adapter, a number)`, one after the other."""
    ghosts: list[list[object]] = [[], []]
    for action, which, number in actions:
        side = pair.sides[which]
        match action:
            case "advance":
                for _ in range(number):
                    side.advance()
            case "receive":
                side.receive(number)
            case "step":
                side.step()
            case "say":
                side.say()
            case "request":
                pair.request(number or None)
            case "switch":
                pair.preferred = "backup" if pair.preferred == "active" else "active"
            case "crash":
                side.start()
            case "crash and say later":
                ghosts[which] = list(side.unsent)
                side.start()
            case "ghost":  # what a process that is gone had said reaches the topic now
                pair.topic += ghosts[which]  # type: ignore[arg-type]
                ghosts[which] = []
            case "misjudge":
                side.thinks_other_is_there = not side.thinks_other_is_there


def actions(kinds: list[str]) -> st.SearchStrategy[list[tuple[str, int, int]]]:
    return st.lists(st.tuples(st.sampled_from(kinds), st.integers(0, 1), st.integers(0, 4)), max_size=60)


@given(st.sampled_from(SETTINGS), actions(ACTIONS))
def test_never_two_messages_at_one_place(settings: SynchroniseSettings, drawn: list[tuple[str, int, int]]) -> None:
    """Whoever crashes, whatever reaches the topic late, and whatever they think of each other (S4)."""
    pair = Pair(settings)
    run(pair, drawn)
    pair.settle()
    doubled = {place: found for place, found in pair.places().items() if len(found) > 1}
    assert not doubled
    assert pair.results().keys() == {b"%d" % (number + 1) for number in range(pair.requested)}, "each has a result"


@given(st.sampled_from(SETTINGS), actions(CALM))
def test_each_is_sent_at_one_place_or_cancelled(
    settings: SynchroniseSettings, drawn: list[tuple[str, int, int]]
) -> None:
    """Without crashes, over any delays and switches: at one place, in both logs if the result says so (S4)."""
    pair = Pair(settings)
    run(pair, drawn)
    pair.settle()
    for payload, results in pair.results().items():
        outcome = results[-1].outcome
        places = [place for place, found in pair.places().items() if payload in found]
        logs = sum(any(payload == found for _, part, found in side.log if part) for side in pair.sides)
        if outcome == "both":
            assert len(places) == 1
            assert logs == 2
            assert places[0] == (results[-1].after, results[-1].part)
        elif outcome == "alone":
            assert len(places) == 1
            assert logs == 1
        else:
            assert not places


def calm_pair(policy: OnRefusal = OnRefusal.SEND) -> Pair:
    return Pair(SynchroniseSettings(threshold=6, on_refusal=policy, put_off=2))


def test_both_send_at_the_same_point() -> None:
    pair = calm_pair()
    for _ in range(2):
        pair.request()
    pair.settle()
    active, backup = ([entry for entry in side.log if entry[0] < 10] for side in pair.sides)
    assert active == backup
    assert [entry for entry in active if entry[1]] == [(3, 1, b"1"), (3, 2, b"2")]
    assert {one.outcome for found in pair.results().values() for one in found} == {"both"}


@pytest.mark.parametrize(
    ("policy", "outcome", "announced"), [("send", "alone", 1), ("put_off", "both", 2), ("cancel", "cancelled", 1)]
)
def test_a_backup_that_is_ahead_refuses(policy: str, outcome: str, announced: int) -> None:
    """The message goes alone, is put off, or is cancelled, as set (S4)."""
    pair = calm_pair(OnRefusal(policy))
    active, backup = pair.sides
    active.other_last = lambda: 0  # the active does not know yet how far the backup is
    for _ in range(5):
        backup.advance()
    pair.request()
    pair.settle()
    assert [found[-1].outcome for found in pair.results().values()] == [outcome]
    assert len(pair.announcements()) == announced


def test_one_alone_sends_alone() -> None:
    pair = calm_pair()
    pair.sides[0].thinks_other_is_there = False
    pair.request()
    for _ in range(8):
        active = pair.sides[0]
        active.receive(9)
        active.step()
        active.say()
        active.advance()
    (results,) = pair.results().values()
    assert results[-1].outcome == "alone"
    assert pair.places() == {(results[-1].after, 1): {b"1"}}


def test_a_source_that_has_ended_cancels() -> None:
    pair = calm_pair()
    pair.request(4)
    for _ in range(2):
        for side in pair.sides:
            side.receive(9)
            side.step()
            side.say()
    pair.sides[0].has_ended = True
    pair.settle()
    (results,) = pair.results().values()
    assert results[0].outcome == "cancelled"
    assert "ended" in results[0].reason


def test_what_is_asked_of_an_unknown_stream_is_refused_and_removed_later() -> None:
    pair = calm_pair()
    pair.request()
    pair.sides[0].last.clear()
    active = pair.sides[0]
    for _ in range(2):
        active.receive(9)
        active.step()
        active.say()
    (results,) = pair.results().values()
    assert results[-1] == AdministrativeResult(outcome="refused", reason="this feed has no source stream 'src@0'")
    active.now += KEEP_S
    active.step()
    active.say()
    assert [key.kind for key, record in pair.topic if record is None] == ["request", "announcement", "answer", "result"]
    active.receive(9)
    active.step()
    assert not active.unsent
