"""What happens to each bundle next (M10, M11, M13): pure, with time passed in."""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bundles.bundle import Bundle, Header
from edge.mesh.held import Held, InMemory
from edge.uplink.batch_limit import BatchLimit
from edge.uplink.bearers import Bearer, BearerState
from edge.uplink.delivery_plan import DeliveryPlan, Entry, PlanLimits
from edge.uplink.presence_view import PresenceReach, Verdict, verdict
from schemas.states import Claim, MessagePresenceState
from tests.draw import examples
from tests.unit.bundles.keys import header

LAN = BearerState(Bearer("lan", "http://gateway"), is_up=True)
LIMITS = PlanLimits(patience_s=300, lease_s=60, recheck_s=20, withheld_s=900, retry_first_s=2, leases=10)


def held(sequence: int, originator: str = "a", since: float = 0.0, destination: str = "platform") -> Held:
    made = header(sequence, originator, destination)
    return InMemory(Bundle(made, b"." * 50, bytes(64)), 8, since)


def plan(*bundles: Held, claims: Iterable[int] = (), urgent: Iterable[int] = ()) -> DeliveryPlan:
    """Of agent `a`. A claim is needed for others' messages, and for those with the numbers in `claims`."""

    def needs_claim(one: Held) -> bool:
        return one.bundle.header.originator != "a" or one.bundle.header.sequence in set(claims)

    def is_urgent(one: Header) -> bool:
        return one.sequence in set(urgent)

    made = DeliveryPlan("a", needs_claim, is_urgent, LIMITS, lambda: 1.0)
    for one in bundles:
        made.added(one)
    return made


def ask(of: DeliveryPlan, now: float = 0.0, most: int = 250) -> list[Entry]:
    return of.to_ask(LAN, [LAN], now, most)


def post(of: DeliveryPlan, now: float = 0.0, out_since: float | None = None, bundles: int = 500) -> list[Entry]:
    return of.to_post(LAN, [LAN], now, out_since, bundles, 1 << 20)


def numbers(entries: Iterable[Entry]) -> list[int]:
    return [entry.header.sequence for entry in entries]


def test_a_message_that_nobody_else_has_goes_at_once() -> None:
    """M11: presence is asked only for messages of which a copy has left, or that came from another."""
    of = plan(held(1), held(2), held(3, "b"), claims=[2])
    assert numbers(ask(of)) == [2, 3]
    assert numbers(post(of)) == [1]
    assert ask(of) == post(of) == [], "they are in flight"


def test_a_granted_claim_lets_it_go_until_its_end() -> None:
    """M11."""
    of = plan(held(1, "b"))
    (entry,) = ask(of)
    of.granted(entry, 0.0)
    of.release([entry])
    assert not ask(of, 53), "no need"
    assert post(of, 53) == [entry]
    of.release([entry])
    assert not post(of, 54)
    assert ask(of, 54) == [entry], "it is asked for again before its time is over"


def test_without_presence_it_waits_and_then_goes() -> None:
    """M10."""
    of = plan(held(1, "b"), held(2, "b", since=100.0))
    assert not post(of, 299, out_since=0.0)
    assert numbers(post(of, 300, out_since=0.0)) == [1], "the other one has not waited for as long"
    of.release(of.to_ask(LAN, [LAN], 300, 9))
    assert numbers(post(of, 400, out_since=0.0)) == []


def test_what_presence_holds_back_is_asked_about_again_and_goes_in_the_end() -> None:
    """A claim, or a delivery nobody has signed for, costs a duplicate at most, never the message."""
    of = plan(held(1, "b"))
    now = 0.0
    while not (found := post(of, now)):
        for entry in ask(of, now):
            of.withheld(entry, now, until=now + 5)
            of.release([entry])
        now += 1
    assert now == 900
    of.release(found)
    of.uplink_lost()
    assert not post(of, 2_000), "after a time without uplink, presence is asked first"
    assert len(ask(of, 2_000)) == 1


def test_a_claim_that_is_not_judged_waits_like_presence_out_of_reach() -> None:
    """M10."""
    of = plan(held(1, "b"))
    (entry,) = ask(of)
    of.unjudged(entry, 0.0)
    of.release([entry])
    assert not ask(of, 1.0)
    assert ask(of, 2.0) == [entry]
    of.release([entry])
    assert not post(of, 299)
    assert post(of, 300) == [entry]


def test_a_stream_goes_in_sequence_one_request_at_a_time() -> None:
    of = plan(held(3), held(1), held(2), held(4, destination="other"))
    first = post(of, bundles=2)
    assert sorted(numbers(first)) in ([1, 2], [1, 4])
    assert not {entry.header.destination for entry in post(of)} & {entry.header.destination for entry in first}
    of = plan(held(3), held(1), held(2))
    assert numbers(post(of)) == [1, 2, 3]


def test_a_turn_looks_at_what_it_takes() -> None:
    """M19: not at all that is held."""
    looked: list[int] = []

    def needs_claim(one: Held) -> bool:
        looked.append(one.sequence)
        return False

    of = DeliveryPlan("a", needs_claim, lambda one: False, LIMITS, lambda: 1.0)
    for number in range(1, 1_001):
        of.added(held(number))
    looked.clear()
    for _ in range(10):
        assert not ask(of)
        entries = post(of, bundles=20)
        assert len(entries) == 20
        of.release(entries)
        for entry in entries:
            of.removed(entry.held)
    assert len(looked) < 10 * 60


def test_later_holds_back_those_after_it_for_a_while() -> None:
    of = plan(held(1), held(2))
    entries = post(of)
    now = 0.0
    for _ in range(5):
        of.later(entries[0], now)
        of.release(entries)
        assert not post(of, now)
        now = entries[0].post_at
        assert numbers(post(of, now)) == [1, 2]
    of.later(entries[0], now)
    of.release(entries)
    assert numbers(post(of, now)) == [2], "one that the gateway never takes does not starve the others"


def test_a_claim_that_is_being_asked_for_holds_back_those_after_it() -> None:
    of = plan(held(1), held(2), claims=[1])
    assert not post(of), "before"
    (entry,) = ask(of)
    assert not post(of), "and meanwhile"
    of.withheld(entry, 0.0)
    of.release([entry])
    assert numbers(post(of)) == [2], "but not what is left to others"


def test_refused_is_not_tried_again_here() -> None:
    first, second = held(1), held(2)
    of = plan(first, second)
    entries = post(of)
    of.refuse(entries[0], "too large")
    of.release(entries)
    assert of.refused == {entries[0].id: "too large"}
    assert numbers(post(of)) == [2]
    of.removed(first)
    of.removed(second)
    assert not of.refused
    assert not len(of)


def test_the_originators_own_propagated_messages_come_first() -> None:
    """M13."""
    of = plan(
        *(held(number, "b", since=0.0) for number in range(1, 6)),
        held(7, since=50.0),
        held(8, "c", since=60.0),
        claims=[7],
        urgent=[8],
    )
    assert numbers(ask(of, 100))[:2] == [7, 8]


def test_a_batch_is_bounded_and_has_one_at_least() -> None:
    of = plan(*(held(number) for number in range(1, 30)))
    assert numbers(of.to_post(LAN, [LAN], 0.0, None, 500, 1)) == [1]
    of = plan(*(held(number, f"x{number}") for number in range(1, 30)))
    assert len(ask(of)) == LIMITS.leases, "no more claims than can be used"


@given(st.lists(st.sampled_from(["fast", "slow", "failed"]), max_size=60))
def test_a_batch_limit_stays_within_its_bounds(outcomes: list[str]) -> None:
    limit = BatchLimit(1_000_000)
    for outcome in outcomes:
        if outcome == "failed":
            limit.failed(limit.bundles, limit.size)
        else:
            limit.sent(0.1 if outcome == "fast" else 60.0)
        assert 1 <= limit.bundles <= 500
        assert 1 <= limit.size <= 1_000_000
    for _ in range(40):
        limit.sent(0.1)
    assert (limit.bundles, limit.size) == (500, 1_000_000)


def presence(**fields: object) -> MessagePresenceState:
    names = ("holders", "attempting", "refused")
    defaults = {"id": "m", "state": "pending", "origin": "b", "delivered_by": "", "delivered_to": "", "delivered_us": 0}
    more = {"claim": None, "retired": False, "kept_until_ms": 0, "judged": -1, **{name: [] for name in names}}
    return MessagePresenceState(**(defaults | more | fields))  # type: ignore[arg-type]


def test_an_unknown_message_is_claimed_and_never_dropped() -> None:
    """M11."""
    assert verdict(None, "a", 0) is Verdict.CLAIM
    assert verdict(presence(), "a", 0) is Verdict.CLAIM
    for done in (presence(state="delivered"), presence(state="expired"), presence(retired=True)):
        assert verdict(done, "a", 0) is Verdict.DONE
    claim = Claim(agent="c", at_us=0, until_ms=60_000)
    assert verdict(presence(claim=claim), "a", 59_999) is Verdict.TAKEN
    assert verdict(presence(claim=claim), "a", 60_000) is Verdict.CLAIM, "a claimant that died"
    assert verdict(presence(claim=claim), "c", 0) is Verdict.CLAIM, "its own, of before a restart"


@pytest.mark.parametrize(("claimant", "is_ours"), [("http:c", True), ("http-ann:c", True), ("http:cc", False)])
def test_an_agent_knows_its_own_claim_by_its_name_over_http(claimant: str, *, is_ours: bool) -> None:
    """M11: it does not wait for itself."""
    claim = Claim(agent=claimant, at_us=0, until_ms=60_000)
    assert verdict(presence(claim=claim), "c", 0) is (Verdict.CLAIM if is_ours else Verdict.TAKEN)


def test_presence_is_asked_again_after_growing_pauses() -> None:
    reach = PresenceReach(draw=lambda: 1.0)
    reach.failed(10.0)
    reach.failed(11.0, retry_after_s=7.0)
    assert reach.out_since(48.0) == 10.0
    assert reach.out_since(48.1) is None, "nobody has asked lately"
    assert not reach.is_due(17.9)
    assert reach.is_due(18.0)
    reach.unknown()
    assert reach.out_since(19.0) is None
    assert reach.is_due(11.0), "a gateway is reachable again"
    reach.failed(20.0)
    assert reach.out_since(20.0) == 10.0
    reach.answered()
    assert reach.out_since(20.0) is None


class PlanMachine(RuleBasedStateMachine):
    """Any order of questions, answers and failures: no stream in two requests, sequence kept, claims respected."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.store: dict[str, Held] = {}
        self.plan = DeliveryPlan("a", lambda one: one.bundle.header.originator != "a", lambda one: False, LIMITS)
        self.flying: list[list[Entry]] = []
        self.asked: list[Entry] = []
        self.sequence = 0

    @rule(originator=st.sampled_from("ab"), destination=st.sampled_from("xy"))
    def arrives(self, originator: str, destination: str) -> None:
        self.sequence += 1
        one = held(self.sequence, originator, self.now, destination)
        self.store[one.bundle.message_id] = one
        self.plan.added(one)

    @rule(seconds=st.sampled_from([1, 10, 100]))
    def passes(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: not self.asked)
    @rule()
    def asks(self) -> None:
        self.asked = ask(self.plan, self.now)
        assert all(entry.header.originator != "a" for entry in self.asked)

    @precondition(lambda self: self.asked)
    @rule(answer=st.sampled_from(["granted", "withheld", "unjudged", "failed"]))
    def is_answered(self, answer: str) -> None:
        for entry in self.asked:
            match answer:
                case "granted":
                    self.plan.granted(entry, self.now)
                case "withheld":
                    self.plan.withheld(entry, self.now)
                case "unjudged":
                    self.plan.unjudged(entry, self.now)
        self.plan.release(self.asked)
        self.asked = []

    @rule(bundles=st.integers(1, 4))
    def posts(self, bundles: int) -> None:
        batch = post(self.plan, self.now, bundles=bundles)
        for entry in batch:
            excused = entry.withheld_since is not None or entry.unjudged_since is not None
            assert entry.header.originator == "a" or entry.lease_until > self.now or excused
        self.flying.append(batch)

    @precondition(lambda self: self.flying)
    @rule(answer=st.sampled_from(["taken", "later", "refused", "failed"]))
    def lands(self, answer: str) -> None:
        batch = self.flying.pop(0)
        for entry in batch:
            match answer:
                case "taken":
                    self.plan.removed(self.store.pop(entry.id))
                case "later":
                    self.plan.later(entry, self.now)
                case "refused":
                    self.plan.refuse(entry, "no")
        self.plan.release(batch)

    @invariant()
    def nothing_is_lost_and_streams_are_in_order(self) -> None:
        assert len(self.plan) == len(self.store)
        streams: dict[tuple[str, str], int] = {}
        for at, batch in enumerate(self.flying):
            for entry in batch:
                key = entry.header.originator, entry.header.destination
                assert streams.setdefault(key, at) == at, "one request at a time"
        for batch in self.flying:
            for key in streams:
                sent = [
                    entry.header.sequence
                    for entry in batch
                    if (entry.header.originator, entry.header.destination) == key
                ]
                assert sent == sorted(sent)


TestPlan = PlanMachine.TestCase
TestPlan.settings = settings(max_examples=examples(30), deadline=None)
