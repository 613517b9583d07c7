"""Receipts at a contact of two agents (M8, M12)."""

import pytest

from bundles.receipt import Role
from edge.mesh.carrier import Carrier
from edge.mesh.contact_events import PeerHolds, ReceiptTaken
from tests.unit.bundles.keys import bundle, header, originators, receipt, signers
from tests.unit.edge.mesh.contact_pair import MeshPair, carrier, meet


def test_receipts_come_first() -> None:
    """M8, M12: what is delivered is dropped before anything is offered, and passed on from contact to contact."""
    agents = [carrier(name) for name in "abc"]
    message = bundle()
    for agent in agents[:2]:
        agent.add(message, 8, 0)
    agents[2].take_receipt(receipt(message.message_id))
    pair = meet(agents[1], agents[2])
    assert pair.kinds(0) == ["Introduced", "ReceiptTaken", "FirstReceiptsTaken", "PeerHolds", "Closed"]
    assert PeerHolds(()) in pair.events[1], "not listed any more"
    [taken] = [event for event in meet(agents[0], agents[1]).events[0] if isinstance(event, ReceiptTaken)]
    assert taken.receipt == receipt(message.message_id)
    assert taken.dropped is not None
    assert taken.dropped.message_id == message.message_id
    assert not any(len(agent) for agent in agents)
    assert b"" not in pair.sent
    assert len(meet(agents[0], agents[1], 300).sent[1]) < len(pair.sent[1]), "a receipt is sent to a peer once"


def test_a_forged_receipt_drops_nothing() -> None:
    one, other, message = carrier("a"), carrier("b"), bundle()
    one.submit(message, 0)
    other.receipts.add(receipt(message.message_id, by="b"), ("", 0))
    pair = MeshPair(one, other).exchange()
    assert "ReceiptRefused" in pair.kinds(0)
    assert message.message_id in one


def test_a_receipt_that_a_peer_could_not_verify_is_sent_again() -> None:
    """M8: at later contacts, while it holds the bundle: by then it may know who has signed."""
    knows = False
    other = Carrier("b", 7, originators, lambda name, role: signers(name, role) if knows else ())
    one, message = carrier("a"), bundle(originator="c")
    other.add(message, 8, 0)
    one.receipts.add(receipt(message.message_id), ("", 0))
    pair = MeshPair(one, other).exchange().cut()
    assert pair.kinds(1).count("ReceiptRefused") == 1
    for now in (200, 300):
        assert "ReceiptRefused" in meet(one, other, now).kinds(1)
        assert message.message_id in other
    knows = True
    assert "ReceiptTaken" in meet(one, other, 400).kinds(1)
    assert message.message_id not in other
    assert len(meet(one, other, 500).sent[0]) < 150, "nothing is repeated that has had its effect"


def test_a_recipient_signs_for_its_own_messages_only() -> None:
    """M8: every agent is the recipient of something, so its key alone says nothing."""
    one, liar, message = carrier("a"), carrier("b"), bundle(destination="@r")
    one.submit(message, 0)
    false = receipt(message.message_id, "b", Role.RECIPIENT)
    liar.take_receipt(false)  # it does not hold the bundle, so it cannot know
    pair = MeshPair(one, liar).exchange()
    assert "ReceiptRefused" in pair.kinds(0)
    assert message.message_id in one
    assert "Received" in pair.kinds(1), "a false receipt does not keep the message away"
    meet(liar, carrier("c"), 200)
    assert liar.take_receipt(receipt(message.message_id, "r", Role.RECIPIENT))
    assert not liar.take_receipt(false)
    assert message.message_id not in liar


def test_a_summary_waits_until_the_receipts_before_it_are_durable() -> None:
    """M2, M8: it says that we have them. If they are lost with our memory, the peer sends them again."""
    message, sender, taker = bundle(), carrier("b"), carrier("a")
    sender.take_receipt(receipt(message.message_id))
    taker.add(message, 8, 0)
    pair = MeshPair(sender, taker, stores=False).exchange()
    assert "ReceiptTaken" in pair.kinds(1)
    assert pair.kinds(0) == ["Introduced"], "no summary"
    pair.cut()
    again = carrier("a")
    again.add(message, 8, 0)  # as its disk has it
    meet(sender, again)
    assert message.message_id not in again


@pytest.mark.parametrize("comes_first", [True, False])
def test_the_peers_summary_may_come_while_receipts_are_stored(comes_first: bool) -> None:
    one, other = carrier("a"), carrier("b")
    one.take_receipt(receipt(bundle(9, "c").message_id))
    one.submit(bundle(), 50)
    other.submit(bundle(1, "b"), 50)
    pair = MeshPair(one, other)
    pair.stores = not comes_first
    pair.exchange()
    if comes_first:
        assert (pair.kinds(0), pair.kinds(1)[-1]) == (["Introduced"], "PeerHolds")
        assert pair.contacts[1].check(pair.now + 1_000) == [], "its peer owes it nothing"
        pair.stores = True
        pair.contacts[1].receipts_stored(pair.now)
        pair.exchange()
    assert len(one) == len(other) == 2
    assert not any(contact.closed for contact in pair.contacts)


def test_a_receipt_during_a_transfer_withdraws_the_offer() -> None:
    one, other, message = carrier("a"), carrier("b"), bundle()
    one.submit(message, 0)
    pair = MeshPair(one, other)
    while not pair.contacts[1]._taking.waits:
        for end in (0, 1):
            pair.take(1 - end, pair.contacts[1 - end].receive(pair.contacts[end].outgoing(100), 100))
    one.take_receipt(receipt(message.message_id))
    pair.exchange()
    assert not pair.contacts[1]._taking.waits
    assert "Received" not in pair.kinds(1)
    assert not pair.contacts[0].closed


def test_receipts_for_unknown_messages_spread_within_a_limit() -> None:
    """M8: any agent may sign as a recipient, without end. What it signs for messages that are held counts, and others'
    receipts are not concerned."""
    hostile, one = carrier("b"), carrier("a", unknown_receipts=10)
    real = [receipt(header(number, destination="@b").message_id, "b", Role.RECIPIENT) for number in range(1, 31)]
    others = [receipt(header(100).message_id, "r", Role.RECIPIENT), receipt(header(101).message_id)]
    for each in (*real, *others):
        assert hostile.take_receipt(each)
    pair = meet(hostile, one)
    assert pair.kinds(1).count("ReceiptRefused") == 1, "it is said once"
    assert [one.receipts.record(each.message_id) is not None for each in real] == [True] * 10 + [False] * 20
    assert all(one.receipts.record(each.message_id) for each in others)
    held = bundle(20, destination="@b")
    one.add(held, 8, pair.now)
    meet(hostile, one, pair.now + 60)
    assert held.message_id not in one
    late = receipt(header(31).message_id, "b", Role.RECIPIENT)
    hostile.take_receipt(late)
    meet(hostile, one, pair.now + 120)
    assert one.receipts.record(late.message_id) is None
    later = receipt(header(32).message_id, "b", Role.RECIPIENT)
    hostile.take_receipt(later)
    meet(hostile, one, pair.now + 4_000)
    assert one.receipts.record(later.message_id) is not None


def test_nobody_uses_up_what_another_may_sign() -> None:
    """A receipt counts for its signer only if the signer has signed it."""
    hostile, one = carrier("b"), carrier("a", unknown_receipts=2)
    for number in range(1, 9):
        hostile.receipts.add(receipt(header(number).message_id, "r", Role.RECIPIENT, by="b"), ("", 0))
    true = receipt(header(9).message_id, "r", Role.RECIPIENT)
    hostile.take_receipt(true)
    meet(hostile, one)
    assert one.receipts.record(true.message_id) is not None
