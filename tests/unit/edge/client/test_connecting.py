"""The two-phase connect: what is tried, in which order, how often, and what is reported (G1, G3, G10, G14)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.client.connect_points import ConnectPoint
from edge.client.connecting import HOPS_MAX, Ask, Connected, Connecting, Step, Try, Wait
from edge.client.errors import NotReachable
from edge.reconnect import FullJitter
from mqtt.errors import LocalProtocolError

Machine = Connecting[str]


def point(number: int) -> ConnectPoint:
    return ConnectPoint("mqtt", f"gateway-{number}", 1883)


def machine(access_points: int = 0, points: int = 0, tries: int = 2, draw: float = 1.0) -> Machine:
    names = [f"access-{n}" for n in range(access_points)]
    return Connecting(names, [point(n) for n in range(points)], tries=tries, backoff=FullJitter(1.0, 8.0, lambda: draw))


def fail_round(machine: Machine, answers: dict[str, list[ConnectPoint]]) -> tuple[list[str], NotReachable]:
    """Everything that is tried until the round ends, if every connection fails."""
    tried: list[str] = []
    while True:
        step = machine.step
        if isinstance(step, Wait):
            machine.waited()
        elif isinstance(step, Ask) and answers.get(step.access_point):
            tried.append(step.access_point)
            machine.answered(answers[step.access_point])
        elif isinstance(step, Ask | Try):
            target = step.access_point if isinstance(step, Ask) else str(step.point)
            tried.append(target)
            error = machine.failed(f"{target} is away")
            if error is not None:
                return tried, error


def test_each_point_in_order_twice_then_the_next_access_point() -> None:
    a, b, c = (str(point(n)) for n in range(3))
    answers = {"access-0": [point(0), point(1)], "access-2": [point(2)]}
    tried, error = fail_round(machine(3), answers)
    assert tried == ["access-0", a, b, a, b, "access-1", "access-2", c, c]
    assert [attempt.target for attempt in error.attempts] == [a, b, a, b, "access-1", c, c]
    for attempt in error.attempts:
        assert f"{attempt.target}: {attempt.target} is away" in str(error)


def test_if_no_access_point_answers_the_last_known_points_are_tried() -> None:
    """An access point may be switched off while its gateway goes on serving phase two (G12)."""
    asked = machine(2)
    asked.answered([point(5)])
    asked.connected()
    asked.lost(has_lasted=True)
    tried, error = fail_round(asked, {})
    assert tried == ["access-0", "access-1", str(point(5)), str(point(5))]
    assert len(error.attempts) == 4


def test_after_a_loss_the_access_point_is_asked_again() -> None:
    """So gateways may join and leave (G14); a new list replaces the old one."""
    asked = machine(1)
    asked.answered([point(1), point(2)])
    asked.connected()
    steps: list[Step[str]] = [asked.step]
    asked.lost(has_lasted=True)
    steps.append(asked.step)
    asked.waited()
    steps.append(asked.step)
    asked.answered([point(3)])
    steps.append(asked.step)
    assert steps == [Connected(point(1)), Wait(1.0), Ask("access-0"), Try(point(3))]


def test_pauses_grow_to_a_bound_until_a_connection_has_lasted() -> None:
    alone, pauses = machine(points=1), []
    for _ in range(12):
        if isinstance(alone.step, Wait):
            pauses.append(alone.step.seconds)
            alone.waited()
        else:
            alone.failed("away")
    assert pauses == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    for has_lasted, expected in ((False, 8.0), (True, 1.0)):
        if isinstance(alone.step, Wait):
            alone.waited()
        alone.connected()
        alone.lost(has_lasted=has_lasted)
        assert alone.step == Wait(expected)


def test_it_goes_on_for_ever_and_each_round_has_its_own_error() -> None:
    alone = machine(points=2)
    errors = [fail_round(alone, {})[1] for _ in range(50)]
    assert {len(error.attempts) for error in errors} == {4}


def test_a_reason_that_a_server_wrote_is_one_line_and_bounded() -> None:
    alone = machine(points=1)
    for _ in range(2):
        error = alone.failed("refused:\n" + "x\n" * 30_000)
        if isinstance(alone.step, Wait):
            alone.waited()
    assert error is not None
    assert all(len(attempt.reason) <= 300 and "\n" not in attempt.reason for attempt in error.attempts)


@pytest.mark.parametrize("wrong", [(0, 0, 2), (1, 1, 2), (1, 0, 1)])
def test_what_is_not_allowed(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError):
        machine(*wrong)


def test_where_a_gateway_sends_the_client_is_tried_next() -> None:
    """G14: and if that fails the round goes on where it was."""
    sent = machine(points=2)
    assert sent.failed("go there", point(7)) is None
    assert sent.step == Try(point(7))
    sent.failed("away")
    assert sent.step == Try(point(1))
    sent.failed("go there", point(8))
    sent.connected()
    assert sent.step == Connected(point(8))


def test_nobody_is_sent_around_for_ever() -> None:
    sent = machine(points=2)
    for number in range(HOPS_MAX):
        sent.failed("go there", point(10 + number))
        assert sent.step == Try(point(10 + number))
    sent.failed("go there", point(20))
    assert sent.step == Try(point(1))
    sent.failed("go there", point(20))
    assert isinstance(sent.step, Wait)


def test_a_connection_that_ends_with_another_gateways_name() -> None:
    """After a pause, because all of a gateway's clients may be sent at once. If the other one fails, the round begins;
    who is sent back each time soon goes through the round instead."""
    moved = machine(1)
    moved.answered([point(1)])
    moved.connected()
    moved.lost(has_lasted=True, sent_to=point(2))
    assert moved.step == Wait(1.0)
    moved.waited()
    assert moved.step == Try(point(2))
    moved.failed("away")
    assert moved.step == Ask("access-0")
    moved.answered([point(1)])
    for _ in range(HOPS_MAX - 1):
        moved.connected()
        moved.lost(has_lasted=False, sent_to=point(2))
        moved.waited()
        assert moved.step == Try(point(2))
    moved.connected()
    moved.lost(has_lasted=False, sent_to=point(2))
    moved.waited()
    assert moved.step == Ask("access-0")


def test_what_cannot_happen() -> None:
    alone = machine(points=1)
    for impossible in (alone.waited, lambda: alone.answered([point(1)]), lambda: alone.lost(has_lasted=True)):
        with pytest.raises(LocalProtocolError):
            impossible()
    alone = machine(points=1)
    alone.connected()
    with pytest.raises(LocalProtocolError):
        alone.failed("?")
    with pytest.raises(LocalProtocolError):
        alone.connected()


@given(
    access_points=st.integers(1, 4),
    tries=st.integers(2, 4),
    draw=st.floats(0, 1),
    offers=st.lists(st.lists(st.integers(0, 5), min_size=0, max_size=4, unique=True), min_size=4, max_size=4),
)
def test_every_point_of_every_answer_is_tried_so_often(
    access_points: int, tries: int, draw: float, offers: list[list[int]]
) -> None:
    names = [f"access-{n}" for n in range(access_points)]
    answers = {name: [point(n) for n in offer] for name, offer in zip(names, offers, strict=False)}
    tried, error = fail_round(machine(access_points, 0, tries, draw), answers)
    wanted: list[str] = []
    for name in names:
        wanted += [name, *(str(one) for _ in range(tries) for one in answers[name])]
    assert tried == wanted
    failed = [name for name in wanted if not answers.get(name)]
    assert [attempt.target for attempt in error.attempts] == failed


@given(st.lists(st.sampled_from(["answer", "fail", "connect", "lose", "flap"]), max_size=60), st.floats(0, 1))
def test_there_is_always_a_next_step(events: list[str], draw: float) -> None:
    """Whatever happens; and no pause is longer than the bound."""
    both, seen = machine(2, 0, 2, draw), list[Step[str]]()
    for event in events:
        seen.append(both.step)
        match both.step:
            case Wait(seconds):
                assert 0 <= seconds <= 8
                both.waited()
            case Ask():
                if event == "answer":
                    both.answered([point(1), point(2)])
                else:
                    both.failed("?")
            case Try():
                if event == "connect":
                    both.connected()
                else:
                    both.failed("?")
            case Connected():
                both.lost(has_lasted=event == "lose")
