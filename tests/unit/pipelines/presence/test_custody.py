"""Message presence as a fold: commutative and idempotent, but for claims, which are granted in order (M9, M11)."""

from collections.abc import Iterable
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.presence.custody import AgentReport, Custody, Limits, after, is_news, known_from, state_of
from schemas.events import NAME_CHARACTERS, encode
from schemas.states import Claim

KAFKA_BYTES = 1_000_000
"""`message.max.bytes` of Kafka's client, with which states are written."""
LIMITS = Limits(claim_s=60, kept_s=3600, most=100)
AGENTS = ("a", "b", "c")


def report(event: str, agent: str = "a", offset: int = 0, **more: object) -> AgentReport:
    fields = {"appended_ms": 1000 * offset, "at_us": 10, "origin": "", "peer": "", "reason": "", "until_us": 0}
    return AgentReport(**{**fields, **more}, offset=offset, event=event, agent=agent)  # type: ignore[arg-type]


EVENTS = st.builds(
    report,
    event=st.sampled_from(["attempting", "propagated", "delivered", "refused", "expired", "retired"]),
    agent=st.sampled_from(AGENTS),
    at_us=st.integers(0, 5),
    origin=st.sampled_from(["", "a"]),
    peer=st.sampled_from(AGENTS),
    reason=st.sampled_from(["full", "has it"]),
    until_us=st.integers(0, 2_000_000),
)


@given(events=st.lists(EVENTS, max_size=12), data=st.data())
def test_order_and_copies_make_no_difference(events: list[AgentReport], data: st.DataObject) -> None:
    """M9: whatever stands on the log, in whatever order and however often."""
    copies = data.draw(st.lists(st.sampled_from(events), max_size=5)) if events else []
    shuffled = [e._replace(offset=n) for n, e in enumerate(data.draw(st.permutations([*events, *copies])))]
    in_order = [e._replace(offset=n) for n, e in enumerate(events)]
    once, other = after(Custody(), in_order, LIMITS), Custody()
    for event in shuffled:
        other = after(other, [event], LIMITS)
    assert state_of("m", once) == state_of("m", other)
    assert not is_news(other, after(other, shuffled, LIMITS)), "what was read before brings nothing"


@given(events=st.lists(EVENTS, max_size=12))
def test_delivered_wins_and_the_earliest_delivery_is_kept(events: list[AgentReport]) -> None:
    """M6, M12: against all others; holders are those of whom the newest word is not that they refused."""
    state = state_of("m", after(Custody(), [e._replace(offset=n) for n, e in enumerate(events)], LIMITS))
    deliveries = sorted((e.at_us, e.agent, e.peer) for e in events if e.event == "delivered")
    assert (state.state == "delivered") == bool(deliveries)
    if deliveries:
        assert (state.delivered_us, state.delivered_by, state.delivered_to) == deliveries[0]
    elif any(e.event == "expired" for e in events):
        assert state.state == "expired"
    words = [(e.peer if e.event == "propagated" else e.agent, e.at_us, e.event) for e in events]
    for agent in AGENTS:
        said = [
            (at, word) for who, at, word in words if who == agent and word in ("attempting", "propagated", "refused")
        ]
        newest = [word for at, word in said if at == max(at for at, _ in said)]
        assert (agent in state.refused) == ("refused" in newest)
        assert (agent in state.holders) == (bool(newest) and "refused" not in newest)


def test_a_claim_is_granted_to_one_at_a_time_and_expires() -> None:
    """M11: the first in the log; others once it is over, by the broker's clock; its holder may renew it."""
    custody = after(Custody(), [report("claimed", "a", 1), report("claimed", "b", 2)], LIMITS)
    assert custody.claim == Claim(agent="a", at_us=10, until_ms=61_000)
    custody = after(custody, [report("claimed", "a", 30)], LIMITS)
    assert custody.claim == Claim(agent="a", at_us=10, until_ms=90_000)
    assert after(custody, [report("claimed", "b", 89)], LIMITS).claim == custody.claim
    assert after(custody, [report("claimed", "b", 90)], LIMITS).claim == Claim(agent="b", at_us=10, until_ms=150_000)
    assert after(custody, [report("claimed", "b", 90)], LIMITS) == after(
        custody, [report("claimed", "b", 90)] * 2, LIMITS
    )


def test_a_claim_ends_with_a_refusal_of_its_own_and_is_not_granted_for_what_is_delivered() -> None:
    """M11: who cannot deliver gives it up; nobody is to deliver what was delivered, or needs no record."""
    claimed = after(Custody(), [report("claimed", "a", 1)], LIMITS)
    assert after(claimed, [report("refused", "b", 2)], LIMITS).claim == claimed.claim
    assert after(claimed, [report("refused", "a", 2, at_us=9)], LIMITS).claim == claimed.claim, "said before it claimed"
    assert after(claimed, [report("refused", "a", 2, at_us=11)], LIMITS).claim is None
    for end in ("delivered", "expired", "retired"):
        ended = after(Custody(), [report(end, "b", 1)], LIMITS)
        assert after(ended, [report("claimed", "a", 2)], LIMITS).claim is None


def test_a_copy_of_a_claim_that_is_over_grants_nothing() -> None:
    """M11: an agent that repeats itself after a reconnect."""
    claim = report("claimed", "a", 1, until_us=5_000_000)
    custody = after(Custody(), [claim], LIMITS)
    assert custody.claim == Claim(agent="a", at_us=10, until_ms=5000)
    assert after(custody, [claim._replace(offset=9, appended_ms=9000)], LIMITS).claim == custody.claim


def test_a_copy_takes_nothing_from_what_was_granted_since() -> None:
    """M11: a claim, asked again for longer, and then a copy of the first, or of one that its agent has given up."""
    short = report("claimed", "a", 1, at_us=5, until_us=30_000_000)
    renewed = after(Custody(), [short, report("claimed", "a", 2, at_us=9)], LIMITS)
    assert renewed.claim == Claim(agent="a", at_us=9, until_ms=62_000)
    assert after(renewed, [short._replace(offset=3, appended_ms=3000)], LIMITS).claim == renewed.claim
    given_up = after(renewed, [report("refused", "a", 4, at_us=11)], LIMITS)
    assert after(given_up, [report("claimed", "a", 5, at_us=9)], LIMITS).claim is None
    assert after(given_up, [report("claimed", "a", 5, at_us=12)], LIMITS).claim is not None


def test_claims_on_a_topic_that_was_made_anew_are_judged() -> None:
    """M11: offsets begin anew; what stood on the old topic is not judged again where both are read."""
    old = report("claimed", "a", 500, appended_ms=1_000_000)
    known = after(Custody(), [old], LIMITS)
    anew = report("claimed", "b", 0, appended_ms=2_000_000)
    assert not state_of("m", known).has_judged(0, 2_000_000), "an answer that is none yet"
    judged = after(known, [anew], LIMITS)
    assert judged.claim == Claim(agent="b", at_us=10, until_ms=2_060_000)
    assert state_of("m", judged).has_judged(0, 2_000_000)
    assert after(judged, [anew], LIMITS) == judged
    assert after(judged, [report("claimed", "a", 1, appended_ms=2_000_000)], LIMITS).judged == 1, "the same millisecond"


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["claimed", "claimed", "claimed", "refused", "delivered", "expired", "retired", "copy"]),
        st.sampled_from(AGENTS),
        st.integers(0, 70),  # seconds since the move before
        st.none() | st.integers(-10, 90),  # for how many seconds the claim is asked for
        st.integers(0, 11),  # which event is repeated
        st.integers(0, 3),  # by how many seconds its answer is late
    ),
    max_size=12,
)


@given(moves=MOVES)
def test_no_two_agents_are_told_at_the_same_time_that_they_may_deliver(
    moves: list[tuple[str, str, int, int | None, int, int]],
) -> None:
    """M11, M12: by what HTTP answers each claim, over claims, refusals, deliveries, ends, and copies of all of them."""
    custody, log, now_ms, believed, is_over = Custody(), list[AgentReport](), 0, dict[str, tuple[int, int]](), False
    for kind, agent, pause_s, asked_s, which, late_s in moves:
        now_ms += 1000 * pause_s
        if kind == "copy" and log:
            event = log[which % len(log)]
        else:
            until_us = 0 if asked_s is None else max(1, (now_ms + 1000 * asked_s) * 1000)
            more = {"until_us": until_us} if kind == "claimed" else {}
            event = report(kind if kind != "copy" else "attempting", agent, at_us=now_ms * 1000 + len(log), **more)
        event = event._replace(offset=len(log), appended_ms=now_ms)
        log.append(event)
        custody = after(custody, [event], LIMITS)
        is_over = is_over or event.event in ("delivered", "expired", "retired")
        state = state_of("m", custody)
        if event.event == "refused" and believed.get(event.agent, (0, 0))[0] < event.at_us:
            believed.pop(event.agent, None)
        if event.event == "claimed":
            assert state.has_judged(event.offset, event.appended_ms)
            is_granted = state.is_claimed_by(event.agent, event.at_us, now_ms + 1000 * late_s)
            assert not (is_granted and is_over)
            if is_granted and state.claim is not None:
                believed[event.agent] = event.at_us, state.claim.until_ms
                assert state.claim.until_ms > now_ms
        assert sum(until_ms > now_ms for _, until_ms in believed.values()) <= 1
    assert state_of("m", after(known_from(state_of("m", custody)), log, LIMITS)) == state_of("m", custody)


@pytest.mark.parametrize(
    ("event", "asked_s", "kept_s"),
    [("attempting", None, 3600), ("attempting", 60, 60), ("attempting", 7200, 3600), ("claimed", 60, 3600)],
)
@pytest.mark.parametrize("clock_s", [-1_000_000, 0, 3000])
def test_what_an_agent_reports_is_kept_by_the_brokers_clock(
    event: str, asked_s: int | None, kept_s: int, clock_s: int
) -> None:
    """M9: for as long as it asks for, at most kept_s; its own clock may be days behind, or ahead."""
    now_ms = 2_000_000_000
    at_us = (now_ms + 1000 * clock_s) * 1000
    until_us = 0 if asked_s is None else at_us + asked_s * 1_000_000
    known = after(Custody(), [report(event, "a", appended_ms=now_ms, at_us=at_us, until_us=until_us)], LIMITS)
    assert known.kept_until_ms == now_ms + 1000 * kept_s


def test_what_is_claimed_is_kept_until_the_claim_ends() -> None:
    """M11: who asks meanwhile must learn who delivers, even where claims are longer than the rest is kept."""
    limits = LIMITS._replace(claim_s=60, kept_s=10)
    claimed = after(Custody(), [report("claimed", "a", 1)], limits)
    assert claimed.claim is not None
    assert claimed.kept_until_ms == claimed.claim.until_ms == 61_000


def test_an_answer_is_no_grant_of_what_is_over() -> None:
    """M11: a claim repeated after its time, or after the message was delivered, retired, or expired."""
    claim = report("claimed", "a", 1, until_us=30_000_000)
    granted = after(Custody(), [claim], LIMITS)
    assert state_of("m", granted).is_claimed_by("a", 10, 29_999)
    assert not state_of("m", granted).is_claimed_by("a", 10, 30_000)
    assert not state_of("m", granted).is_claimed_by("b", 10, 2_000)
    assert not state_of("m", granted).is_claimed_by("a", 9, 2_000)
    for end in ("delivered", "expired", "retired"):
        ended = after(granted, [report(end, "b", 2), claim._replace(offset=3)], LIMITS)
        assert not state_of("m", ended).is_claimed_by("a", 10, 2_000)


@given(claims=st.lists(st.tuples(st.sampled_from(AGENTS), st.integers(0, 200)), max_size=12))
def test_no_two_hold_a_claim_at_the_same_time(claims: list[tuple[str, int]]) -> None:
    """M11: over any sequence of claims, the times for which they are granted do not overlap between agents."""
    custody, granted, now_ms = Custody(), [], 0
    for offset, (agent, pause_s) in enumerate(claims):
        now_ms += 1000 * pause_s
        before, custody = custody.claim, after(custody, [report("claimed", agent, offset, appended_ms=now_ms)], LIMITS)
        if custody.claim != before:
            granted.append((agent, now_ms, custody.claim.until_ms if custody.claim else 0))
    for (one, _, until_ms), (other, from_ms, _) in pairwise(granted):
        assert one == other or until_ms <= from_ms


@given(events=st.lists(EVENTS, max_size=12))
def test_agents_are_bounded_and_the_state_survives_json(events: list[AgentReport]) -> None:
    """M9, bounded."""
    custody = after(Custody(), events, LIMITS._replace(most=2))
    assert len(custody.agents) <= 2
    assert msgspec.json.decode(msgspec.json.encode(custody), type=Custody) == custody


def reports_of(agents: Iterable[str], event: str, reason: str = "") -> list[AgentReport]:
    """One report about each agent, later ones newer."""
    who = "peer" if event == "propagated" else "agent"
    return [
        report(event, offset=n, at_us=n, reason=reason, origin="o", **{"agent": "o", who: name})
        for n, name in enumerate(agents)
    ]


@pytest.mark.parametrize("event", ["attempting", "propagated", "refused"])
@pytest.mark.parametrize("character", ["a", "\x01", "\N{HIGH VOLTAGE SIGN}", "\N{GRINNING FACE}", '"'])
def test_a_state_is_small_enough_for_kafka_whatever_agents_are_called(event: str, character: str) -> None:
    """M9, bounded: with the most agents that can be configured, and reasons as long as their names."""
    names = [f"{number}-".ljust(NAME_CHARACTERS, character) for number in range(200)]
    custody = after(Custody(), reports_of(names, event, character * NAME_CHARACTERS), LIMITS._replace(most=1000))
    assert len(encode(state_of("m" * 128, custody))) < KAFKA_BYTES - 6 * 6 * NAME_CHARACTERS, "six more names fit"
    assert list(custody.agents) == names[-len(custody.agents) :], "those with the oldest reports are forgotten"
    assert len(custody.agents) > 30


def test_as_many_agents_as_can_be_configured_are_remembered_if_their_names_are_short() -> None:
    names = [f"aircraft-{number:04}" for number in range(1000)]
    assert len(after(Custody(), reports_of(names, "attempting"), LIMITS._replace(most=1000)).agents) == 1000


@given(
    events=st.lists(
        EVENTS | st.builds(report, event=st.just("claimed"), agent=st.sampled_from(AGENTS), at_us=st.integers(0, 5)),
        max_size=12,
    )
)
def test_a_fold_that_begins_with_what_was_told_comes_to_the_same(events: list[AgentReport]) -> None:
    """M9, M11: its own state lost, all events replayed: claims are not judged again."""
    in_order = [e._replace(offset=n, appended_ms=1000 * n) for n, e in enumerate(events)]
    custody = after(Custody(), in_order, LIMITS)
    known = state_of("m", custody)
    assert state_of("m", known_from(known)) == known
    assert known_from(known).agents == custody.agents, "who said what, when, and why"
    assert state_of("m", after(known_from(known), in_order, LIMITS)) == known
