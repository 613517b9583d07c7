"""Message presence as a join, what is still to be published, and what a recipient was given (M9-M14)."""

from itertools import permutations
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundles.seen import Seen, SeenLimits, Verdict
from edge.mesh.pending_reports import PendingReports
from edge.mesh.presence import Decision, Record, Stage, decide, decide_without_presence, merge, record_of
from schemas.events import MessagePresenceEvent
from tests.unit.bundles.keys import header

LIVE_UNTIL_US = 10_000
KINDS = get_args(MessagePresenceEvent.__annotations__["event"])


def report(kind: Any, agent: str = "a", at_us: int = 1, *, peer: str = "", until_us: int = 0) -> MessagePresenceEvent:
    return MessagePresenceEvent(id="m", event=kind, agent=agent, at_us=at_us, peer=peer, until_us=until_us)


reports = st.builds(
    report,
    st.sampled_from(KINDS),
    st.sampled_from("abc"),
    st.integers(0, 9),
    peer=st.sampled_from("abc"),
    until_us=st.integers(0, 20),
)
records = st.lists(reports, max_size=6).map(
    lambda events: merged([record_of(event, LIVE_UNTIL_US) for event in events])
)


def merged(known: list[Record]) -> Record:
    total = Record()
    for record in known:
        total = merge(total, record)
    return total


@given(records, records, records)
def test_records_merge_in_any_order_and_any_number_of_copies(one: Record, two: Record, three: Record) -> None:
    """M9: a join is commutative, associative and idempotent."""
    assert merge(one, two) == merge(two, one)
    assert merge(merge(one, two), three) == merge(one, merge(two, three))
    assert merge(one, one) == one
    assert merge(merge(one, two), two) == merge(one, two)


@given(records, records, st.integers(0, 30))
def test_a_message_never_goes_back(one: Record, two: Record, now_us: int) -> None:
    """But for a claim, which ends by itself or is given up."""
    before, after = one.stage(now_us), merge(one, two).stage(now_us)
    assert after >= before or (before, after) == (Stage.CLAIMED, Stage.HELD)


def test_a_claim_is_a_lease() -> None:
    """M11: the first that asked has it, until it ends or is given up; then the next."""
    events = [report("claimed", "b", 5, until_us=20), report("claimed", "a", 6, until_us=40)]
    for order in permutations(events):
        known = merged([record_of(event, LIVE_UNTIL_US) for event in order])
        assert [known.claimant(now_us) for now_us in (10, 20, 40)] == ["b", "a", None]
        given_up = merge(known, record_of(report("refused", "b", 8), LIVE_UNTIL_US))
        assert given_up.claimant(10) == "a"


def test_what_an_agent_does() -> None:
    """M11: delivered → ask for the receipt; unknown → claim, never drop."""
    claimed = record_of(report("claimed", "b", 5, until_us=20), LIVE_UNTIL_US)
    delivered = record_of(report("delivered", "b", 6, peer="r"), LIVE_UNTIL_US)
    assert decide(None, "a", 10) is Decision.CLAIM
    assert decide(claimed, "a", 10) is Decision.WAIT
    assert decide(claimed, "b", 10) is Decision.DELIVER
    assert decide(claimed, "a", 20) is Decision.CLAIM
    assert decide(merge(claimed, delivered), "b", 10) is Decision.ASK_FOR_RECEIPT
    assert decide(record_of(report("retired"), LIVE_UNTIL_US), "a", 10) is Decision.ASK_FOR_RECEIPT
    assert decide(record_of(report("expired"), LIVE_UNTIL_US), "a", 10) is Decision.LEAVE


def test_without_presence_a_message_waits_a_while_and_is_delivered_then() -> None:
    """M10, M11: claims only spare duplicates."""
    assert decide_without_presence(299, 300) is Decision.WAIT
    assert decide_without_presence(300, 300) is decide_without_presence(0, 0) is Decision.DELIVER


def test_retired_is_a_mark_that_outlives_every_copy() -> None:
    """M13: a proxy that comes late finds it, and does not deliver again."""
    known = merge(record_of(report("delivered", peer="r"), LIVE_UNTIL_US), record_of(report("retired"), LIVE_UNTIL_US))
    late = merge(known, record_of(report("attempting", "c", 9_999), LIVE_UNTIL_US))
    assert late.stage(9_999) is Stage.RETIRED
    assert not late.is_forgettable(LIVE_UNTIL_US)
    assert late.is_forgettable(LIVE_UNTIL_US + 1)


def test_two_halves_of_a_mesh_that_meet_agree() -> None:
    """M9, M10: both had a claim and delivered; afterwards both know of the first delivery."""
    half = [record_of(report("claimed", agent, at, until_us=90), LIVE_UNTIL_US) for agent, at in (("a", 5), ("b", 6))]
    ends = [
        merge(half[0], record_of(report("delivered", "a", 8, peer="r"), LIVE_UNTIL_US)),
        merge(half[1], record_of(report("delivered", "b", 7, peer="r"), LIVE_UNTIL_US)),
    ]
    assert merge(*ends) == merge(*ends[::-1])
    delivery = merge(*ends).delivery
    assert delivery is not None
    assert delivery.by == "b"


def test_what_cannot_be_published_is_published_later() -> None:
    """M10."""
    log = PendingReports()
    first, second = log.append(report("attempting")), log.append(report("delivered", peer="r"))
    assert log.is_pending
    assert log.batch(1) == [first]
    restarted = PendingReports(stored=log.batch(10))
    restarted.published([first.number, first.number])
    assert restarted.batch(10) == [second]
    assert restarted.append(report("retired")).number > second.number
    restarted.published([report.number for report in restarted.batch(10)])
    assert not restarted.is_pending


def test_a_full_log_keeps_deliveries() -> None:
    log = PendingReports(most=3)
    for kind in ("delivered", "attempting", "retired", "propagated", "delivered"):
        log.append(report(kind))
    assert [pending.event.event for pending in log.batch(9)] == ["delivered", "retired", "delivered"]
    assert log.forgotten == 2
    with pytest.raises(ValueError, match="at least 1"):
        PendingReports(most=0)


def test_what_is_below_the_low_water_mark_is_refused() -> None:
    """M14: no clock is trusted, and no list rolls over (meshtastic firmware#8790)."""
    seen = Seen()
    assert seen.take(header(3), 0) is Verdict.NEW
    assert seen.take(header(900, low_water=800), 0, from_platform=True) is Verdict.NEW
    assert seen.take(header(3), 0) is Verdict.DUPLICATE
    assert seen.take(header(4), 0) is Verdict.DUPLICATE
    assert seen.take(header(801), 0) is Verdict.NEW
    assert seen.take(header(3, incarnation=8), 0) is Verdict.NEW, "a reinstalled device counts anew"


def test_what_a_peer_brings_leaves_open_what_the_platform_may_bring() -> None:
    """M14: the platform keeps the order in which it took messages, so behind a later one none comes from it."""
    seen = Seen()
    assert seen.take(header(900, low_water=800, ended_below=700), 0) is Verdict.NEW
    assert seen.take(header(699), 0, from_platform=True) is Verdict.DUPLICATE
    assert seen.take(header(700), 0, from_platform=True) is Verdict.NEW
    assert seen.take(header(901, low_water=800, ended_below=700), 0, from_platform=True) is Verdict.NEW
    assert seen.take(header(799), 0) is Verdict.DUPLICATE


def test_a_full_memory_refuses_rather_than_deliver_twice() -> None:
    seen = Seen(SeenLimits(sources=1, above=2))
    assert [seen.take(header(sequence), 0) for sequence in (5, 7, 9)] == [Verdict.NEW, Verdict.NEW, Verdict.FULL]
    assert seen.take(header(1, "b"), 0) is Verdict.FULL
    assert seen.take(header(7), 0) is Verdict.DUPLICATE


def test_who_makes_many_incarnations_crowds_out_nobody() -> None:
    """M14: an enrolled agent chooses its incarnations. Only its own are forgotten for them, the oldest first."""
    seen = Seen(SeenLimits(sources=5, of_originator=3))
    assert seen.take(header(1, "honest"), 0) is Verdict.NEW
    for incarnation in range(1, 9):
        assert seen.take(header(1, "x", incarnation=incarnation), 1) is Verdict.NEW
    assert seen.forgotten() == [("x", incarnation) for incarnation in range(1, 6)]
    for name in ("new", "newer"):  # all five are used: whoever has most makes room
        assert seen.take(header(1, name), 2) is Verdict.NEW
    assert seen.forgotten() == [("x", 6)]
    assert [seen.take(header(1, name), 3) for name in ("honest", "new", "newer")] == [Verdict.DUPLICATE] * 3
    assert seen.mark(("x", 6)) is None


def test_a_full_memory_forgets_first_what_cannot_be_alive_any_more() -> None:
    seen = Seen(SeenLimits(sources=2, remembered_s=100))
    assert [seen.take(header(1, name), at) for name, at in (("a", 0), ("b", 50))] == [Verdict.NEW] * 2
    assert seen.take(header(2, "a"), 60) is Verdict.NEW
    assert seen.take(header(1, "c"), 149) is Verdict.FULL
    assert seen.take(header(1, "c"), 150) is Verdict.NEW
    assert seen.forgotten() == [("b", 7)]
    assert seen.take(header(2, "a"), 150) is Verdict.DUPLICATE
