"""Messages of MoldUDP64 are put into order; what is missing is requested, within limits (S2)."""

import random
from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st

from edge.feeds.adapter.mold_order import MoldLimits, MoldOrder
from edge.feeds.formats.moldudp64 import EndOfSession, Heartbeat, Request
from edge.feeds.source import Malformed, SourceMessage
from tests.unit.edge.feeds.adapter.adapter_data import message

STREAM = "src@0"
WITHOUT = MoldLimits(reorder_ms=20, reorder_messages=1_000)
WITH = MoldLimits(
    reorder_ms=20, has_server=True, request_ms=50, within_ms=500, requests_per_s=1_000, request_messages=7
)


def got(found: list[object]) -> list[int | None]:
    return [one.number for one in found if isinstance(one, SourceMessage)]


@given(st.integers(0, 2**32), st.booleans())
@example(461, True).via("ten packets with the same number would be lost in a row")
def test_in_order_once_whatever_the_network_does(seed: int, has_server: bool) -> None:
    """With a request server that answers nothing is missing; without one only what was lost is."""
    draws = random.Random(seed)
    count = 60
    sent = [number for number in range(1, count + 1) if number == 1 or draws.random() > 0.2]
    came = sorted([*sent, *draws.sample(sent, 10)], key=lambda number: number + draws.uniform(0, 4) * (number > 1))
    order = MoldOrder(WITH if has_server else WITHOUT, {})
    out: list[object] = []
    unanswered = Counter[int]()
    now = 0.0
    for number in came:
        out += order.take([message(number)], now)
        now += 1
    out += order.take([Heartbeat(STREAM, count + 1)], now)
    while order.due_ms(now) is not None:
        now += 5
        out += order.expire(now)
        for request in order.requests(now):
            assert 1 <= request.count <= WITH.request_messages
            # The server's packet may be lost, too, but not each time, and carry less than was asked for.
            if unanswered[request.number] == 4 or draws.random() > 0.3:
                unanswered[request.number] = 0
                answered = range(request.number, request.number + draws.randint(1, request.count))
                out += order.take([message(one) for one in answered], now)
            else:
                unanswered[request.number] += 1
    numbers = [number for number in got(out) if number is not None]
    assert numbers == sorted(set(numbers))
    assert set(numbers) >= set(sent)
    if has_server:
        assert numbers == list(range(1, count + 1))
    assert order.given_up + len(numbers) == count


def test_a_silent_end_is_noticed() -> None:
    """The heartbeat says that there was more: it is requested, and passed when nobody has it."""
    order = MoldOrder(WITH, {})
    order.take([message(1)], 0)
    assert order.take([Heartbeat(STREAM, 4)], 1) == []
    assert order.requests(10) == []
    assert order.requests(30) == [Request("S", 2, 2)]
    assert order.requests(40) == []
    assert order.requests(90) == [Request("S", 2, 2)]
    assert order.expire(502) == [Heartbeat(STREAM, 4)]
    assert order.due_ms(502) is None
    assert order.take([EndOfSession(STREAM, 4)], 510) == [EndOfSession(STREAM, 4)]


def test_it_continues_behind_the_log() -> None:
    """After a restart what came meanwhile is requested; what the log has is dropped."""
    order = MoldOrder(WITH, {STREAM: 10})
    assert got(order.take([message(9), message(11), message(14)], 0)) == [11]
    assert order.requests(30) == [Request("S", 12, 2)]


def test_a_source_that_lies_costs_little() -> None:
    """One number far ahead, then more of them: gaps are ranges, requests are few, what waits is bounded."""
    order = MoldOrder(MoldLimits(reorder_messages=50, has_server=True), {})
    out = list(order.take([message(1)], 0))
    for at in range(1_000):
        out += order.take([message(2**62 + 2 * at)], 1 + at / 1_000)
    asked = [one for step in range(200) for one in order.requests(25 + step / 10)]
    assert 1 <= len(asked) <= 15
    assert got(out)[0] == 1
    assert sorted(number for number in got(out) if number) == [number for number in got(out) if number]
    out += order.expire(10_000)
    assert len(got(out)) == 1_001


def test_what_comes_after_it_was_given_up_is_written_once() -> None:
    order = MoldOrder(WITHOUT, {})
    order.take([message(1), message(3)], 0)
    assert got(order.expire(20)) == [3]
    assert got(order.take([message(2), message(2)], 21)) == [2]
    assert (order.late, order.doubled, order.given_up) == (1, 1, 1)


def test_sessions_are_bounded_and_a_damaged_datagram_uses_up_nothing() -> None:
    order = MoldOrder(WITHOUT, {})
    for session in range(1_000):
        order.take([message(5, stream=f"src@{session}")], 0)
    assert len(order._sessions) == 8
    assert order.take([Malformed(3, "torn", STREAM, 7)], 0) == [Malformed(3, "torn")]
