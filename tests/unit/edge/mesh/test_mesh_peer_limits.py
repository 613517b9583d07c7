"""What one peer may take of an agent, and how often, is bounded (M2, M7)."""

import pytest

from bundles import bundle as bundle_format
from bundles.errors import FormatError
from edge.mesh.contact_events import Received
from edge.mesh.contact_frames import (
    Accept,
    Data,
    Decline,
    Offer,
    Reason,
    Receipts,
    Stored,
    Summary,
    encode,
)
from edge.mesh.errors import RefusedError
from edge.mesh.limits import MeshLimits
from tests.unit.bundles.keys import bundle, header
from tests.unit.edge.mesh.contact_pair import carrier, meet
from tests.unit.edge.mesh.hostile_peer import BEGINNING, ID, Hostile


@pytest.mark.parametrize(
    ("copies", "hops", "reason"), [(0, 1, Reason.PROXY_COUNT), (8, 17, Reason.HOP_LIMIT), (1, 16, None)]
)
def test_an_offer_beyond_the_proxy_count_or_the_hop_limit_is_declined(
    copies: int, hops: int, reason: Reason | None
) -> None:
    """M6, M7: whatever the peer thinks of these limits."""
    message, hostile = bundle(5, "c"), Hostile(hops=16)
    hostile.sends(*BEGINNING, Offer(message.header, 500, copies, hops, 0))
    answer = Accept(message.message_id) if reason is None else Decline(message.message_id, reason)
    assert hostile.hears()[-1] == answer
    assert hostile.contact.closed is None


@pytest.mark.parametrize("recipient", [True, False], ids=["recipient", "uplink"])
def test_who_can_deliver_is_no_proxy(recipient: bool) -> None:
    """M6, M15: it takes a bundle of which no copy is left to give."""
    message, hostile = bundle(5, "c", destination="@a" if recipient else "topic"), Hostile()
    hostile.carrier.has_uplink = not recipient
    hostile.sends(*BEGINNING, Offer(message.header, 500, 0, 1, 0))
    assert hostile.hears()[-1] == Accept(message.message_id)


def test_a_bundle_that_is_arriving_from_another_peer_is_declined() -> None:
    """M6: until that has come, or will not come."""
    message, first = bundle(5, "c"), Hostile()
    offer = Offer(message.header, 500, 8, 1, 0)
    first.sends(*BEGINNING, offer)
    for ended, answer in ((False, Decline(message.message_id, Reason.BUSY)), (True, Accept(message.message_id))):
        if ended:
            first.contact.eof()
        second = first.beside()
        second.sends(*BEGINNING, offer)
        assert second.hears()[-1] == answer


def test_a_bundle_that_a_peer_never_ends_may_come_from_another() -> None:
    """M6: it says now and then a byte, so its contact lasts; whoever is first with all of it is believed."""
    message = bundle(5, "c", size=300)
    offer = Offer(message.header, message.size, 8, 1, 0)
    encoded = bundle_format.encode(message.carried(0))
    slow = Hostile()
    slow.sends(*BEGINNING, offer, Data(message.message_id, 0, encoded[:-1]))
    honest = slow.beside(130)
    honest.sends(*BEGINNING, offer, now=129)
    assert honest.hears()[-1] == Decline(message.message_id, Reason.BUSY)
    honest.sends(offer, now=130)
    assert honest.hears()[-1] == Accept(message.message_id)
    [received] = honest.sends(Data(message.message_id, 0, encoded), now=131)
    assert isinstance(received, Received)
    slow.hears()
    slow.sends(Data(message.message_id, len(encoded) - 1, encoded[-1:]))
    assert slow.hears() == [Decline(message.message_id, Reason.BUSY)], "that of the other one is being stored"
    honest.contact.stored(message.message_id, 132)
    assert message.message_id in slow.carrier
    slow.sends(offer)
    assert slow.hears() == [Decline(message.message_id, Reason.HAS_IT)]
    assert not slow.carrier._arriving
    assert slow.carrier._arriving.bytes == 0


def test_copies_out_of_thin_air_are_cut() -> None:
    message = bundle(5, "c")
    encoded = bundle_format.encode(message.carried(0))
    hostile = Hostile()
    hostile.sends(*BEGINNING, Offer(message.header, len(encoded), 60_000, 1, 0))
    (*_, received) = hostile.sends(Data(message.message_id, 0, encoded))
    assert received.copies == 8  # type: ignore[union-attr]


def test_a_flood_of_frames_ends_the_contact() -> None:
    hostile = Hostile(frames=50)
    hostile.sends(*BEGINNING, *[Receipts((), more=False)] * 40)
    assert not hostile.contact.closed
    hostile.sends(*[Receipts((), more=False)] * 40, now=111)
    assert not hostile.contact.closed, "ten seconds later they count anew"
    hostile.sends(*[Receipts((), more=False)] * 20, now=112)
    hostile.is_refused("more than 50 frames in 10 s")


def test_a_summary_without_end_ends_the_contact() -> None:
    hostile = Hostile(summary_ids=10)
    hostile.sends(*BEGINNING[:2])
    for at in range(11):
        hostile.sends(Summary((bundle(at + 1).message_id,), more=True))
    hostile.is_refused("a summary of more than 10")


def test_offers_that_never_come_to_an_end_are_bounded() -> None:
    hostile = Hostile(unanswered_offers=3)
    hostile.sends(*BEGINNING, *[Offer(header(at, "c"), 500, 8, 1, 0) for at in range(1, 5)])
    hostile.is_refused("more than 3 bundles at once")
    assert not hostile.carrier._arriving, "what was set aside for them is free again"


def test_offers_of_which_nothing_comes_leave_room_for_others() -> None:
    """M2: a peer that sends nothing of what it has offered keeps neither us nor other peers from using the store."""
    hostile = Hostile(stored_bytes=160_000, bundle_bytes=10_000)
    hostile.sends(*BEGINNING, *[Offer(header(at, "c"), 5_000, 8, 1, 0) for at in range(1, 61)])
    assert hostile.contact.closed is None
    assert sum(isinstance(one, Accept) for one in hostile.hears()) == 2, "a sixteenth of the store"
    hostile.carrier.submit(bundle(1, "a", size=9_000), 100)
    message = bundle(100, "c")
    honest = hostile.beside()
    honest.sends(*BEGINNING, Offer(message.header, message.size, 8, 1, 0))
    assert honest.hears()[-1] == Accept(message.message_id)


def test_offers_that_wait_are_answered_in_order_when_those_before_have_come() -> None:
    first, second, third = bundle(1, "c", size=3_000), bundle(2, "c", size=3_000), bundle(3, "c")
    hostile = Hostile(stored_bytes=65_536)
    hostile.sends(*BEGINNING, *[Offer(one.header, one.size, 8, 1, 0) for one in (first, second, third)])
    assert hostile.hears()[-1] == Accept(first.message_id)
    hostile.sends(Data(first.message_id, 0, bundle_format.encode(first)))
    assert hostile.hears() == [Accept(second.message_id), Accept(third.message_id)]
    hostile.sends(Offer(header(4, "c"), 4_000, 8, 1, 0), Decline(header(4, "c").message_id, Reason.TOO_OLD))
    assert hostile.contact.closed is None, "it may withdraw an offer that waits"


def test_an_offer_that_is_not_wanted_does_not_wait() -> None:
    """The peer's decline of our own offer of the same message would be taken for the end of its offer."""
    hostile = Hostile([bundle()], stored_bytes=65_536)
    hostile.sends(*BEGINNING, *[Offer(header(at, "c"), 3_000, 8, 1, 0) for at in (1, 2)])
    hostile.hears()
    hostile.sends(Offer(bundle().header, 300, 8, 1, 0))
    assert hostile.hears() == [Decline(ID, Reason.HAS_IT)]
    hostile.sends(Decline(ID, Reason.HAS_IT))
    held = hostile.carrier.held(ID)
    assert held is not None
    assert held.reserved == 0


def test_what_peers_send_leaves_room_for_our_own_messages() -> None:
    """M2: a peer may fill the store but for an eighth."""
    full = carrier("a", stored_bundles=16, copies=1)
    sender = carrier("b")
    for sequence in range(1, 17):
        sender.submit(bundle(sequence, "b"), 0)
    meet(sender, full)
    assert len(full) == 14
    for sequence in (1, 2):
        full.submit(bundle(sequence, "a"), 100)
    with pytest.raises(RefusedError, match="full"):
        full.submit(bundle(3, "a"), 100)


def test_limits_out_of_range_are_refused() -> None:
    for wrong in ({"hops": 0}, {"copies": 65_535}, {"frame_bytes": 100}):
        with pytest.raises(ValueError, match="must be"):
            MeshLimits(**wrong)  # type: ignore[arg-type]
    with pytest.raises(FormatError, match="not a message id"):
        encode(Stored("x"))
