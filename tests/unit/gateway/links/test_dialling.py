"""When a link is dialled and what is said of it: never that a member is dead unless a connection was refused (Q6)."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.cluster.life import LinkEnded, LinkHeard, RedialResult
from gateway.links.dialling import CONNECT_S, REDIAL_S, UNANSWERED, Close, Connect, Dialling, Ping
from schemas.leases import Claimant
from schemas.members import GatewayAddress
from tests.draw import examples

B = Claimant("b", 7)
ADDRESS = GatewayAddress("b.test", 7000)
PING_S = 0.2


class Effects(list[Any]):
    """As tuples, effects of different kinds may be equal; these are not."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, list) and [*map(str, self)] == [*map(str, other)]


class Line:
    """A link in time; `effects` are those of the last call."""

    def __init__(self) -> None:
        self.link = Dialling(B, ADDRESS, PING_S)
        self.now = 100.0
        self.effects = Effects()

    def does(self, effects: Iterable[Any]) -> list[Any]:
        self.effects = Effects(effects)
        return self.effects

    def passes(self, seconds: float) -> list[Any]:
        """Time passes in ticks; all that comes of it."""
        found: list[Any] = []
        for _ in range(round(seconds / 0.05)):
            self.now += 0.05
            found += self.link.tick(self.now)
        return self.does(found)

    def up(self) -> "Line":
        self.passes(0.05)
        assert self.effects == [Connect(self.link.attempt, ADDRESS)]
        assert self.greets(B) == [LinkHeard("b", 7)]
        return self

    def greets(self, by: Claimant) -> list[Any]:
        return self.does(self.link.greeted(self.link.attempt, by, self.now))

    def ends(self) -> list[Any]:
        return self.does(self.link.lost(self.link.attempt, self.now))

    def refuses(self) -> list[Any]:
        return self.does(self.link.refused(self.link.attempt, self.now))

    def redials(self) -> list[Any]:
        return self.does(self.link.redial(self.now))


def test_a_killed_process_ends_its_link_and_refuses_the_next() -> None:
    line = Line().up()
    assert line.ends() == [LinkEnded("b", 7)]
    assert line.redials() == [Connect(2, ADDRESS)]
    assert line.refuses() == [RedialResult("b", "refused", 7)]
    assert line.redials() == [Connect(3, ADDRESS)]
    assert line.refuses() == [RedialResult("b", "refused", 7)]


def test_a_link_that_blips_is_made_again_and_nobody_is_dead() -> None:
    line = Line().up()
    assert line.ends() == [LinkEnded("b", 7)]
    line.redials()
    assert line.greets(B) == [LinkHeard("b", 7), RedialResult("b", "connected", 7)]
    assert line.redials() == [RedialResult("b", "connected", 7)], "it is up"


def test_a_listener_that_goes_a_moment_after_its_connections_is_asked_again() -> None:
    line = Line().up()
    line.ends()
    line.redials()
    assert line.ends() == [], "connected, and ended without a hello"
    assert line.passes(0.05) == [Connect(3, ADDRESS)]
    assert line.refuses() == [RedialResult("b", "refused", 7)]


def test_what_proves_nothing_is_a_timeout_in_time() -> None:
    line = Line().up()
    line.ends()
    line.redials()
    assert line.passes(REDIAL_S - 0.1) == []
    assert line.passes(0.15) == [RedialResult("b", "timeout", 7)]
    assert line.refuses() == [], "too late: it is not asked any more"


def test_another_process_proves_nothing() -> None:
    line = Line().up()
    line.ends()
    line.redials()
    assert line.greets(Claimant("b", 8)) == [Close(2), RedialResult("b", "timeout", 7)]
    assert line.link.state == "down"
    line = Line()
    line.passes(0.05)
    assert line.greets(Claimant("c", 7)) == [Close(1)]


def test_a_member_that_never_had_a_link_is_not_accused() -> None:
    line = Line()
    line.passes(0.05)
    assert line.refuses() == []
    assert {type(effect) for effect in line.passes(30)} == {Connect, Close}


def test_it_dials_less_and_less_often_while_nobody_answers() -> None:
    line, dials = Line(), list[float]()
    for _ in range(1200):
        for effect in line.passes(0.05):
            if isinstance(effect, Connect):
                dials.append(line.now)
                line.refuses()
    pauses = [round(b - a, 1) for a, b in pairwise(dials)]
    assert pauses[:3] == [0.5, 1.0, 2.0]
    assert set(pauses[4:]) == {5.0}


def test_a_connection_that_is_never_greeted_is_given_up() -> None:
    line = Line()
    line.passes(0.05)
    assert Close(1) in line.passes(CONNECT_S + 0.1)
    assert line.link.state == "down"


def test_pings_are_sent_and_a_link_without_answers_ends() -> None:
    """The machine is gone: nothing ends the connection."""
    line = Line().up()
    assert set(line.passes(PING_S * 3)) == {Ping(1)}
    assert line.does(line.link.heard(1)) == [LinkHeard("b", 7)]
    assert set(line.passes(PING_S * (UNANSWERED - 1))) == {Ping(1)}
    found = line.passes(PING_S * UNANSWERED)
    assert [each for each in found if not isinstance(each, Ping)][:2] == Effects([Close(1), LinkEnded("b", 7)])


def test_an_observer_that_stood_still_does_not_end_its_links() -> None:
    line = Line().up()
    line.now += 60
    assert line.passes(0.05) == [Ping(1)]


def test_nobody_wants_it_any_more() -> None:
    line = Line().up()
    assert line.does(line.link.close()) == [Close(1)]
    assert line.passes(60) == []
    line = Line().up()
    line.ends()
    line.redials()
    assert line.does(line.link.close()) == [Close(2), RedialResult("b", "timeout", 7)]


EVENTS = st.one_of(
    st.tuples(st.just("pass"), st.sampled_from((0.05, 0.2, 0.35, 3.0))),
    st.tuples(st.just("redial")),
    st.tuples(st.sampled_from(("refused", "lost", "heard", "close")), st.integers(0, 2)),
    st.tuples(st.just("greeted"), st.integers(0, 2), st.sampled_from([B, Claimant("b", 8), Claimant("c", 7)])),
)


@settings(max_examples=examples(500), deadline=None)
@given(st.lists(EVENTS, max_size=40))
def test_whatever_happens_in_whatever_order(events: list[Any]) -> None:
    """Attempts that are over change nothing; `refused` only if one was refused since the redial; one result a redial;
    the link has ended only if it was up; a connection that is not needed is closed."""
    line, open_attempts = Line(), set[int]()
    is_asked, is_up = False, False
    for event in events:
        attempt, was_refused = line.link.attempt - (event[1] if event[0] not in ("pass", "redial") else 0), False
        match event:
            case ["pass", seconds]:
                line.passes(seconds)
            case ["redial"]:
                is_asked = True
                line.redials()
            case ["refused", _]:
                was_refused = attempt == line.link.attempt and line.link.state == "dialling"
                open_attempts.discard(attempt)
                line.does(line.link.refused(attempt, line.now))
            case ["lost", _]:
                open_attempts.discard(attempt)
                line.does(line.link.lost(attempt, line.now))
            case ["heard", _]:
                line.does(line.link.heard(attempt))
            case ["greeted", _, by]:
                line.does(line.link.greeted(attempt, by, line.now))
            case ["close", _]:
                line.does(line.link.close())
        for effect in line.effects:
            match effect:
                case Connect(number, to):
                    assert not open_attempts
                    assert number <= line.link.attempt
                    assert to == ADDRESS
                    open_attempts.add(number)
                case Close(number):
                    open_attempts.discard(number)
                case Ping(number):
                    assert open_attempts == {number}
                case LinkHeard(name, boot):
                    assert (name, boot) == B
                    is_up = True
                case LinkEnded(name, boot):
                    assert is_up
                    assert (name, boot) == B
                    is_up = False
                case RedialResult(name, result, boot):
                    assert is_asked
                    assert (name, boot) == B
                    is_asked = False
                    assert result != "refused" or was_refused
                    assert result != "connected" or is_up
        is_up = is_up and line.link.state == "up"
        assert is_up == (line.link.state == "up")
        if line.link.state == "down":
            assert not open_attempts
    line.passes(REDIAL_S + 0.1)
    assert sum(isinstance(effect, RedialResult) for effect in line.effects) == is_asked, "it is answered in time"
