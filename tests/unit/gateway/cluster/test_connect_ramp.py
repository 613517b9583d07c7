"""New connections after a loss: at a rate that grows, in order, none for too long, and without a loss not at all (R9,
G14; freenet-core#3210)."""

from bisect import bisect_right
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.cluster.connect_ramp import BURST_S, GROWTH, ConnectRamp
from tests.draw import examples

PER_S, LASTS_S, WAIT_S = 100.0, 10.0, 4.0


class Arrived(NamedTuple):
    """`let_in`: when; None if it was refused."""

    at: float
    let_in: float | None


def arrive(ramp: ConnectRamp, times: list[float]) -> list[Arrived]:
    delays = [(at, ramp.delay(at)) for at in times]
    return [Arrived(at, None if delay is None else at + delay) for at, delay in delays]


def test_without_a_loss_nobody_waits() -> None:
    ramp = ConnectRamp(PER_S, LASTS_S, WAIT_S)
    assert {ramp.delay(0.0) for _ in range(10_000)} == {0.0}
    assert not ramp.is_on


def test_a_few_clients_never_wait() -> None:
    ramp = ConnectRamp(PER_S, LASTS_S, WAIT_S)
    ramp.begin(0.0)
    delays = [ramp.delay(0.0) for _ in range(int(PER_S * BURST_S) + 2)]
    assert delays[:-1] == [0.0] * (len(delays) - 1)
    assert delays[-1] is not None
    assert 0 < delays[-1] <= 1 / PER_S


def test_what_comes_all_at_once_is_spread_and_the_rest_refused() -> None:
    ramp = ConnectRamp(PER_S, LASTS_S, WAIT_S)
    ramp.begin(5.0)
    found = arrive(ramp, [5.0] * 10_000)
    let_in = [one.let_in for one in found if one.let_in is not None]
    in_wait_s = PER_S * WAIT_S + (GROWTH - 1) * PER_S * WAIT_S**2 / (2 * LASTS_S)
    assert abs(len(let_in) - PER_S * BURST_S - in_wait_s) <= 2
    assert let_in == sorted(let_in)
    assert all(one.let_in is None for one in found[len(let_in) :])
    firsts = sum(1 for at in let_in if at < 6.0)
    lasts = sum(1 for at in let_in if at >= 8.0)
    assert firsts < lasts, "the rate grows"


def test_a_refused_connection_takes_no_place() -> None:
    ramp = ConnectRamp(PER_S, LASTS_S, WAIT_S)
    ramp.begin(0.0)
    arrive(ramp, [0.0] * 100_000)
    assert ramp.delay(WAIT_S) is not None


def test_the_ramp_ends_once_its_time_is_over_and_nobody_waits() -> None:
    ramp = ConnectRamp(PER_S, LASTS_S, WAIT_S)
    ramp.begin(0.0)
    ramp.delay(LASTS_S - 0.001)
    assert ramp.is_on
    assert {ramp.delay(LASTS_S + 1.0) for _ in range(10_000)} == {0.0}
    assert not ramp.is_on


def test_who_waits_at_the_end_of_the_time_is_not_overtaken() -> None:
    ramp = ConnectRamp(PER_S, LASTS_S, WAIT_S)
    ramp.begin(0.0)
    late = arrive(ramp, [LASTS_S - 0.5] * 1_500)
    last = late[-1].let_in
    assert last is not None
    assert last > LASTS_S
    after = arrive(ramp, [LASTS_S + 0.1])[0]
    assert after.let_in is not None
    assert after.let_in >= last


losses = st.lists(st.floats(0.0, 20.0), min_size=1, max_size=4)
arrivals = st.lists(st.tuples(st.floats(0.0, 30.0), st.integers(1, 400)), max_size=25)


@settings(max_examples=examples(80), deadline=None)
@given(losses, arrivals)
def test_whatever_comes_the_rate_is_bounded_and_the_order_kept(
    lost: list[float], groups: list[tuple[float, int]]
) -> None:
    ramp = ConnectRamp(PER_S, LASTS_S, WAIT_S)
    first, found = min(lost), []
    happens = [(at, None) for at in lost] + [(at, count) for at, count in groups]
    for at, count in sorted(happens, key=lambda event: (event[0], event[1] is not None)):
        if count is None:
            ramp.begin(at)
        else:
            found += arrive(ramp, [at] * count)
    let_in = [one.let_in for one in found if one.let_in is not None]
    assert let_in == sorted(let_in)
    assert all(one.at <= one.let_in <= one.at + WAIT_S for one in found if one.let_in is not None)
    within = [at for at in let_in if first <= at < first + LASTS_S]
    most = PER_S * BURST_S * len(lost) + GROWTH * PER_S + 1
    for index, at in enumerate(within):
        assert bisect_right(within, at + 1.0) - index <= most, "more within a second than the last rate allows"
    assert all(one.let_in is not None for one in found if one.at < first)
