"""Two ends of a contact wired in memory: what each reports, who has how many copies, and cuts at each byte."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundles import bundle as bundle_format
from bundles.bundle import Bundle
from bundles.receipt import Role
from edge.mesh.carrier import Carrier
from edge.mesh.contact_events import Closed, Declined, EndedBy, Given
from edge.mesh.contact_frames import Offer, Reason, Summary
from edge.mesh.errors import LocalContactError, RefusedError
from tests.unit.bundles.keys import bundle, receipt
from tests.unit.edge.mesh.contact_pair import MeshPair, carrier, meet


def copies(of: Carrier, message_id: str) -> int | None:
    held = of.held(message_id)
    assert held is not None
    return held.copies


def test_half_of_the_copies_are_given() -> None:
    """M6, M7."""
    one, other, message = carrier("a"), carrier("b"), bundle()
    one.submit(message, 50)
    pair = meet(one, other)
    assert pair.kinds(0) == ["Introduced", "PeerHolds", "Given", "Closed"]
    assert pair.kinds(1) == ["Introduced", "PeerHolds", "Received", "Closed"]
    assert copies(one, message.message_id) == copies(other, message.message_id) == 4
    held = other.held(message.message_id)
    assert held is not None
    assert (held.bundle.hops, held.bundle.age_s) == (1, 50)
    assert held.bundle.signed == message.signed
    again = meet(one, other, 200)
    assert "Given" not in again.kinds(0) + again.kinds(1)


@pytest.mark.parametrize("has_uplink", [False, True])
def test_an_agent_that_carries_nothing_for_others(has_uplink: bool) -> None:
    """M6, M19: it takes what is for itself and gives its own; an uplink does not make it a proxy."""
    one, other = carrier("a"), carrier("b", carry=False)
    other.has_uplink = has_uplink
    to_others, to_it, its_own = bundle(1), bundle(2, destination="@b"), bundle(3, "b")
    one.submit(to_others, 50)
    one.submit(to_it, 50)
    other.submit(its_own, 50)
    pair = meet(one, other)
    assert Declined(to_others.message_id, Reason.NO_PROXY) in pair.events[0]
    assert copies(one, to_others.message_id) == 8
    assert to_others.message_id not in other
    assert to_it.message_id in other
    assert its_own.message_id in one


def test_nothing_is_stored_before_the_store_says_so() -> None:
    one, other, message = carrier("a"), carrier("b"), bundle()
    one.submit(message, 0)
    pair = MeshPair(one, other, stores=False).exchange()
    assert message.message_id not in other
    assert copies(one, message.message_id) == 8
    pair.contacts[1].stored(message.message_id, pair.now)
    pair.exchange()
    assert (copies(one, message.message_id), copies(other, message.message_id)) == (4, 4)
    with pytest.raises(LocalContactError, match="answered already"):
        pair.contacts[1].stored(message.message_id, pair.now)


def test_what_cannot_be_stored_goes_back() -> None:
    """iotedge#835: the disk is full."""
    one, other, message = carrier("a"), carrier("b"), bundle()
    one.submit(message, 0)
    pair = MeshPair(one, other, stores=False).exchange()
    pair.contacts[1].not_stored(message.message_id, Reason.FULL)
    pair.exchange()
    assert Declined(message.message_id, Reason.FULL) in pair.events[0]
    assert copies(one, message.message_id) == 8


def declines() -> list[tuple[Reason, Carrier, Bundle]]:
    delivered, has_it, own = carrier("b"), carrier("b"), carrier("a")
    delivered.receipts.add(receipt(bundle().message_id), ("z", 7))  # it takes the sender to have it
    has_it.add(bundle(), 1, 0)
    full = carrier("b", stored_bundles=1)
    full.add(bundle(2, "c", lifetime_s=90), 1, 0)
    return [
        (Reason.DELIVERED, delivered, bundle()),
        (Reason.HAS_IT, has_it, bundle()),
        (Reason.HAS_IT, own, bundle()),
        (Reason.FULL, full, bundle()),
        (Reason.FULL, carrier("b", stored_bytes=50), bundle()),
        (Reason.TOO_LARGE, carrier("b", bundle_bytes=100), bundle()),
        (Reason.TOO_OLD, carrier("b", lifetime_s=10), bundle()),
        (Reason.UNKNOWN_ORIGINATOR, carrier("b"), bundle(originator="stranger")),
    ]


@pytest.mark.parametrize(("reason", "other", "message"), declines())
def test_a_decline_has_a_reason_and_gives_the_copies_back(reason: Reason, other: Carrier, message: Bundle) -> None:
    """M6; a decline burns no copies (bitchat#1438). The peer's summary and limits do not say so here."""
    one = carrier("z")
    one.add(message, 8, 50)
    pair = MeshPair(one, other)
    pair.contacts[1]._send_summary = lambda now: pair.contacts[1]._link.send(Summary((), more=False))  # type: ignore[method-assign]
    pair.contacts[1]._link.drain()
    pair.contacts[1]._link.send(other.hello(100)._replace(bundle_bytes=10**6))
    pair.exchange()
    assert Declined(message.message_id, reason) in pair.events[0]
    held = one.held(message.message_id)
    assert held is not None
    assert (held.copies, held.reserved) == (8, 0)


@pytest.mark.parametrize(("unlimited", "proxies"), [(True, 6), (False, 2)])
def test_every_linked_peer_is_asked_up_to_the_proxy_count(unlimited: bool, proxies: int) -> None:
    """M6, M7: all at the same time; the last copies of a limited number wait for a better peer, or the recipient."""
    one = carrier("a", copies=0 if unlimited else 8)
    pairs = [MeshPair(one, carrier(name)).exchange() for name in "bcdefg"]
    one.submit(bundle(), 50)
    one.encounters.met(has_uplink=True, predictability=0.0, now=50)
    for pair in pairs:
        pair.contacts[0].refresh(100)
    for pair in pairs:
        pair.exchange()
    assert sum(bundle().message_id in pair.carriers[1] for pair in pairs) == proxies


@pytest.mark.parametrize("end", [0, 1])
def test_a_cut_at_each_byte_loses_no_copy(end: int) -> None:
    """M2: whatever is cut off, somebody has the message, no copies are burnt, and the next contact goes on."""
    message, returned = bundle(size=60), bundle(1, "b", size=60)

    def agents() -> tuple[Carrier, Carrier]:
        one, other = carrier("a"), carrier("b")
        one.submit(message, 0)
        other.submit(returned, 0)
        return (one, other) if end else (other, one)

    whole = MeshPair(*agents()).exchange()
    for budget in range(1, sum(map(len, whole.sent)) + 1):
        pair = MeshPair(*agents()).exchange(budget)
        for message_id in (message.message_id, returned.message_id):
            there = [one for one in pair.carriers if message_id in one]
            assert sum(copies(one, message_id) or 0 for one in there) >= 8
            assert all(one.held(message_id).reserved == 0 for one in there)  # type: ignore[union-attr]
        meet(*pair.carriers, now=200)
        assert all(len(one) == 2 for one in pair.carriers)


def test_what_a_peer_could_not_take_is_offered_again() -> None:
    """M2, M6: a contact may last for days, and its peer be full for a while only. Pauses grow while it stays full."""
    giver, full = carrier("a", again_s=60, again_most_s=200), carrier("b", stored_bundles=1)
    full.add(bundle(1, "c", lifetime_s=1_000), 1, 100)
    giver.submit(bundle(), 100)
    pair = MeshPair(giver, full).exchange()
    offered = []
    for pair.now in range(101, 1_400):
        full.expire(pair.now)
        for contact in pair.contacts:
            assert not contact.check(pair.now)
        before = len(pair.events[0])
        pair.exchange()
        if len(pair.events[0]) > before:
            offered.append(pair.now)
    assert offered == [160, 280, 480, 680, 880, 1_080, 1_280]
    assert pair.kinds(0)[-1] == "Given"
    assert bundle().message_id in full


def test_a_bundle_that_another_peer_did_not_bring_is_offered_again() -> None:
    message, giver, taker = bundle(), carrier("a"), carrier("b")
    giver.submit(message, 50)
    taker.begin_arrival(Offer(message.header, message.size, 8, 1, 0), 100)  # from another peer, whose link breaks then
    lasting = MeshPair(giver, taker).exchange()
    taker.end_arrival(message.message_id)
    assert message.message_id not in taker
    lasting.now += 60
    lasting.contacts[0].check(lasting.now)
    lasting.exchange()
    assert message.message_id in taker


@given(
    st.lists(st.integers(0, 400), min_size=1, max_size=6),
    st.lists(st.integers(0, 400), max_size=6),
    st.integers(1, 4_000),
    st.integers(1, 7),
)
def test_a_nearly_full_carrier_takes_what_fits(sizes: list[int], held: list[int], most: int, bundles: int) -> None:
    """M2, M6: in bytes and in number, never more than others' bundles may take; what it held stays, what it takes it
    has, and what does not fit goes back with its copies, whatever else fits."""
    giver, full = carrier("a"), carrier("b", stored_bytes=most, stored_bundles=bundles)
    for sequence, size in enumerate(sizes, 1):
        giver.submit(bundle(sequence, size=size), 0)
    before = [one for at, size in enumerate(held) if (one := bundle(100 + at, "c", size=size)) and _fits(full, one)]
    pair = MeshPair(giver, full).exchange()
    assert not any(contact.closed for contact in pair.contacts)
    assert full.stored_bytes <= most
    assert len(full) <= bundles
    assert {one.message_id for one in before} <= set(full.ids())
    for sequence, size in enumerate(sizes, 1):
        message_id = bundle(sequence, size=size).message_id
        kept = giver.held(message_id)
        assert kept is not None
        assert (kept.copies, kept.reserved) == ((4, 0) if message_id in full else (8, 0))
    smallest = min(
        (one for one in giver.all_held() if one.message_id not in full), key=lambda one: one.size, default=None
    )
    limits = full.limits
    is_full = len(full) >= limits.carried_bundles
    assert smallest is None or is_full or full.stored_bytes + smallest.size > limits.carried_bytes


def _fits(full: Carrier, one: Bundle) -> bool:
    try:
        full.submit(one, 0)
    except RefusedError:
        return False
    return True


@given(st.lists(st.integers(1, 40), max_size=30))
def test_any_chunks_give_the_same_events(chunks: list[int]) -> None:
    """Bytes may arrive in any portions."""
    one, other = carrier("a"), carrier("b")
    for sequence in (1, 2, 3):
        one.submit(bundle(sequence), 0)
    whole = meet(one, other).sent[0]
    pair = MeshPair(carrier("a"), carrier("b"), stores=False)
    contact, kinds, at = pair.contacts[1], [], 0
    for size in (*chunks, len(whole)):
        kinds += [type(event).__name__ for event in contact.receive(whole[at : at + size], 100)]
        at += size
    assert kinds == ["Introduced", "PeerHolds", "Received", "Received", "Received"]


def test_a_large_bundle_goes_in_parts() -> None:
    one, other = carrier("a", frame_bytes=4_096, burst_bytes=5_000), carrier("b", frame_bytes=4_096)
    message = bundle(size=100_000)
    one.submit(message, 0)
    meet(one, other)
    held = other.held(message.message_id)
    assert held is not None
    assert held.bundle.ciphertext == message.ciphertext


def test_many_bundles_with_few_offers_open() -> None:
    one, other = carrier("a", unanswered_offers=3), carrier("b", unanswered_offers=3)
    for sequence in range(1, 51):
        one.submit(bundle(sequence), 0)
    meet(one, other)
    assert len(other) == 50


def test_the_recipients_agent_gets_it_directly() -> None:
    """M15: even if no copy is left to give to carriers."""
    one, recipient, third = carrier("a"), carrier("r"), carrier("c")
    message = bundle(destination="@r")
    one.add(message, 0, 0)
    assert "Given" not in meet(one, third).kinds(0)
    assert Given(message.message_id, 1) in meet(one, recipient).events[0]
    recipient.take_receipt(receipt(message.message_id, "r", Role.RECIPIENT))
    meet(one, recipient, 300)
    assert message.message_id not in one


def test_a_bundle_without_a_local_application_is_kept() -> None:
    """dtn7-gold#46: it is at its destination, nobody takes it yet, and it is neither dropped nor refused later."""
    recipient, message = carrier("r"), bundle(destination="@r")
    recipient.add(message, 1, 0)
    assert recipient.expire(1_000) == []
    assert message.message_id in recipient


def test_an_own_message_that_comes_back_is_known() -> None:
    """meshtastic firmware#8790: by its name, even if it and its receipt were forgotten; no list rolls over."""
    sender, other = carrier("a", receipts=1), carrier("b")
    other.add(bundle(), 8, 0)
    assert Declined(bundle().message_id, Reason.HAS_IT) in meet(other, sender).events[0]
    reinstalled = Carrier("a", 8, sender._originators, sender._signers)
    assert "Given" in meet(other, reinstalled, 300).kinds(0)


def test_two_halves_of_a_mesh_that_meet() -> None:
    """One half has the receipt; the other learns of it in one contact, and nothing is sent twice."""
    left, right = [carrier(name) for name in "ab"], [carrier(name) for name in "cd"]
    messages = [bundle(sequence) for sequence in range(1, 11)]
    for agent in (*left, *right):
        for message in messages:
            agent.add(message, 4, 0)
    for message in messages[:5]:
        left[0].take_receipt(receipt(message.message_id))
    meet(left[0], left[1])
    pair = meet(left[1], right[0], 200)
    meet(right[0], right[1], 300)
    assert "Received" not in pair.kinds(0) + pair.kinds(1)
    kept = {message.message_id for message in messages[5:]}
    assert all(set(agent.ids()) == kept for agent in (*left, *right))


def test_a_full_or_late_message_is_refused_at_its_origin() -> None:
    """M2: with the reason, before it is accepted."""
    small = carrier("a", stored_bundles=1, bundle_bytes=300)
    with pytest.raises(RefusedError, match="too large"):
        small.submit(bundle(size=400), 0)
    small.submit(bundle(), 0)
    with pytest.raises(RefusedError, match="full"):
        small.submit(bundle(2), 0)
    assert [one.bundle.message_id for one in small.expire(86_400)] == [bundle().message_id]
    assert (len(small), small.stored_bytes) == (0, 0)


def test_a_silent_peer_is_given_up() -> None:
    one, other = carrier("a"), carrier("b")
    pair = MeshPair(one, other)
    assert pair.contacts[0].check(130) == []
    (closed,) = pair.contacts[0].check(131)
    assert isinstance(closed, Closed)
    assert closed.by is EndedBy.SILENCE
    assert pair.contacts[0].receive(b"x", 132) == pair.contacts[0].eof() == []


def test_the_bytes_of_a_bundle_do_not_depend_on_the_way() -> None:
    agents = [carrier(name) for name in "abcd"]
    agents[0].submit(bundle(), 0)
    for one, other in pairwise(agents):
        meet(one, other)
    last = agents[-1].held(bundle().message_id)
    assert last is not None
    assert last.bundle.hops == 3
    assert bundle_format.encode(last.bundle)[6:] == bundle_format.encode(bundle())[6:]
