"""What an enrolled peer that lies, floods, or replays can do: end its own contact, and nothing else (M6, M8)."""

from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundles import bundle as bundle_format
from edge.mesh.contact import Contact
from edge.mesh.contact_events import Closed, EndedBy, ReceiptTaken, Received
from edge.mesh.contact_frames import (
    Accept,
    Bye,
    Certificates,
    Data,
    Decline,
    Frame,
    FrameBuffer,
    Offer,
    Ping,
    Pong,
    Reason,
    Receipts,
    Revocations,
    Stored,
    Summary,
    decode,
    encode,
)
from edge.mesh.contact_state import State, Step, next_state
from edge.mesh.errors import ConflictError, LocalContactError, PeerError
from tests.draw import generator
from tests.unit.bundles.keys import bundle, receipt
from tests.unit.edge.mesh.contact_pair import carrier, meet
from tests.unit.edge.mesh.hostile_peer import BEGINNING, FRAMES, HELLO, ID, Hostile


@pytest.mark.parametrize("frame", FRAMES)
def test_a_frame_comes_back_as_it_was_and_every_truncation_is_an_error(frame: Frame) -> None:
    encoded = encode(frame)
    buffer = FrameBuffer(65_536)
    for byte in encoded[:-1]:
        buffer.feed(bytes([byte]))
        assert buffer.next() is None
    buffer.feed(encoded[-1:])
    assert buffer.next() == frame
    for size in range(len(encoded) - 5):
        try:
            decode(encoded[0], encoded[5 : 5 + size])  # a list of receipts or ids may end earlier
        except PeerError:
            continue
        assert isinstance(frame, Receipts | Summary | Data | Bye | Certificates | Revocations)


@given(st.integers(0, 255), st.binary(max_size=200))
def test_any_body_is_a_frame_or_an_error_of_the_peer(number: int, body: bytes) -> None:
    with suppress(PeerError):
        decode(number, body)


def test_mutated_contacts_end_with_a_reason_and_harm_nothing() -> None:
    """A recorded contact with random bytes changed: never an exception, no copy burnt, nothing forged taken: a bundle
    or a receipt that is taken is the one that was signed."""
    sender, mine, sent = carrier("x"), [bundle(1), bundle(2)], bundle(5, "c")
    sender.add(sent, 8, 0)
    sender.receipts.add(receipt(bundle(9, "c").message_id), ("", 0))
    recorded = meet(sender, carrier("a")).sent[0]
    draws = generator("mutated contacts")
    for _ in range(1_000):
        changed = bytearray(recorded)
        for _ in range(draws.randint(1, 4)):
            changed[draws.randrange(len(changed))] = draws.randrange(256)
        hostile = Hostile(mine)
        for event in hostile.writes(bytes(changed)):
            if isinstance(event, Received):
                assert event.bundle.signed == sent.signed
                assert event.bundle.signature == sent.signature
            elif isinstance(event, ReceiptTaken):
                assert event.receipt == receipt(bundle(9, "c").message_id)
        hostile.contact.outgoing(100)
        hostile.contact.eof()
        for one in mine:
            held = hostile.carrier.held(one.message_id)
            assert held is not None
            assert (held.copies, held.reserved) == (8, 0)
        assert len(hostile.carrier) == 2


@given(st.binary(max_size=400))
def test_any_bytes_never_raise(data: bytes) -> None:
    hostile = Hostile()
    for event in hostile.contact.receive(data, 100):
        assert not isinstance(event, Closed) or event.by in (EndedBy.FAULT, EndedBy.PEER)


def test_who_names_itself_after_another_speaks_for_nobody() -> None:
    """M5, M8: all in one write. Else we would not send the other one its receipts any more."""
    sender, message = carrier("a"), bundle(1, "v")
    sender.take_receipt(receipt(message.message_id))
    contact = Contact(sender, 100, "x")
    named = HELLO._replace(name="v", incarnation=7)
    contact.receive(b"".join(map(encode, (named, *BEGINNING[1:]))), 100)
    assert contact.closed is not None
    assert contact.closed.by is EndedBy.FAULT
    honest = carrier("v")
    honest.submit(message, 0)
    meet(sender, honest)
    assert message.message_id not in honest


def test_who_changes_its_incarnation_makes_us_forget_no_other_peer() -> None:
    """It would cost all others' receipts and certificates to be sent again."""
    hostile, honest = Hostile(peers=2), carrier("y")
    hostile.carrier.take_receipt(receipt(ID))
    meet(hostile.carrier, honest)
    for incarnation in range(1, 6):
        hostile.contact = Contact(hostile.carrier, 100, "x")
        hostile.sends(HELLO._replace(incarnation=incarnation), *BEGINNING[1:])
        assert Receipts((receipt(ID).encoded,), more=False) in hostile.hears(), "a new store lacks everything"
        hostile.contact.eof()
    assert receipt(ID).encoded not in meet(hostile.carrier, honest).sent[0]


def test_a_summary_says_nothing_of_receipts_that_were_not_written() -> None:
    sender = carrier("a")
    sender.take_receipt(receipt(ID))
    for _ in range(2):  # the first one sends all in one write, and breaks the link
        contact = Contact(sender, 100)
        contact.receive(b"".join(map(encode, BEGINNING)), 100)
        sent = FrameBuffer(1 << 20)
        sent.feed(contact.outgoing(100))
        frames = iter(sent.next, None)
        assert Receipts((receipt(ID).encoded,), more=False) in list(frames)


def test_a_lying_summary_costs_no_copy() -> None:
    """It says it has everything: nothing is offered to it, and the next peer gets its share."""
    hostile = Hostile([bundle()])
    hostile.sends(HELLO, Receipts((), more=False), Summary((ID,), more=False))
    assert not any(isinstance(frame, Offer) for frame in hostile.hears())
    hostile.contact.eof()
    assert "Given" in meet(hostile.carrier, carrier("b")).kinds(0)


def test_who_takes_and_throws_away_gets_half_and_the_giver_keeps_the_message() -> None:
    hostile = Hostile([bundle()])
    hostile.sends(*BEGINNING, Accept(ID))
    hostile.sends(Stored(ID))
    held = hostile.carrier.held(ID)
    assert held is not None
    assert held.copies == 4


@pytest.mark.parametrize(
    ("frames", "detail"),
    [
        ((Summary((), more=False),), "summary is not allowed in state AWAIT_HELLO"),
        ((HELLO, HELLO), "hello is not allowed"),
        ((HELLO, Summary((), more=False)), "summary is not allowed in state AWAIT_RECEIPTS"),
        ((HELLO._replace(name="a"),), "our own name"),
        ((*BEGINNING, Summary((), more=False)), "summary is not allowed in state EXCHANGE"),
        ((*BEGINNING, Stored(ID)), "was not sent"),
        ((*BEGINNING, Accept(ID), Accept(ID)), "twice"),
        ((*BEGINNING, Accept(bundle(3).message_id)), "not offered"),
        ((*BEGINNING, Decline(bundle(3).message_id, Reason.FULL)), "not offered"),
        ((*BEGINNING, Data(ID, 0, b"x")), "not accepted"),
        ((*BEGINNING, Receipts((b"\1short",), more=False)), "malformed receipt"),
        ((*BEGINNING, Pong()), "a ping that was not sent"),
        ((HELLO, Ping()), "ping is not allowed in state AWAIT_RECEIPTS"),
    ],
)
def test_what_the_protocol_does_not_allow_ends_the_contact(frames: Sequence[Frame], detail: str) -> None:
    hostile = Hostile([bundle()])
    hostile.sends(*frames)
    hostile.is_refused(detail)
    held = hostile.carrier.held(ID)
    assert held is not None
    assert (held.copies, held.reserved) == (8, 0)


def test_a_replayed_contact_changes_nothing() -> None:
    """Its bytes fit no other contact: what they answer was not asked."""
    one, other = carrier("a"), carrier("x")
    one.submit(bundle(), 0)
    recorded = meet(one, other).sent[1]
    hostile = Hostile([bundle(2)])
    hostile.contact.receive(recorded, 100)
    closed = hostile.contact.closed
    assert closed is not None
    assert closed.by is EndedBy.FAULT
    held = hostile.carrier.held(bundle(2).message_id)
    assert held is not None
    assert held.copies == 8


def test_an_oversized_frame_is_refused_before_it_comes() -> None:
    hostile = Hostile()
    hostile.contact.receive(b"\x01\xff\xff\xff\xff", 100)
    closed = hostile.contact.closed
    assert closed is not None
    assert "longer than 65536" in closed.detail


def test_more_data_than_offered_is_refused() -> None:
    message = bundle(5, "c")
    encoded = bundle_format.encode(message.carried(0))
    hostile = Hostile()
    hostile.sends(*BEGINNING, Offer(message.header, len(encoded) - 1, 8, 1, 0))
    hostile.sends(Data(message.message_id, 0, encoded))
    hostile.is_refused("does not continue at byte 0")


def test_a_bundle_that_is_not_what_was_offered_is_refused() -> None:
    """Another content under the same id does not pass, and the genuine one is taken afterwards."""
    for forged in (bundle(5, "c", signer="x"), bundle(6, "c")):
        encoded = bundle_format.encode(forged.carried(0))
        hostile, message = Hostile(), bundle(5, "c")
        hostile.sends(*BEGINNING, Offer(message.header, len(encoded), 8, 1, 0))
        hostile.sends(Data(message.message_id, 0, encoded))
        hostile.is_refused(message.message_id)
        genuine = carrier("b")
        genuine.add(message, 8, 0)
        assert "Received" in meet(genuine, hostile.carrier).kinds(1)


@given(st.data())
def test_a_carrier_that_alters_a_payload_is_refused(data: st.DataObject) -> None:
    """M17: any byte of it, or of its signature; the genuine one is taken afterwards, and the copies are not burnt."""
    message = bundle(5, "c")
    encoded = bundle_format.encode(message.carried(0))
    begins = len(encoded) - len(message.signature) - len(message.ciphertext)
    at = data.draw(st.integers(begins, len(encoded) - 1))
    changed = encoded[:at] + bytes([encoded[at] ^ data.draw(st.integers(1, 255))]) + encoded[at + 1 :]
    hostile = Hostile()
    hostile.sends(*BEGINNING, Offer(message.header, len(encoded), 8, 1, 0))
    events = hostile.sends(Data(message.message_id, 0, changed))
    assert [type(event) for event in events] == [Closed]
    hostile.is_refused(message.message_id)
    genuine = carrier("b")
    genuine.add(message, 8, 0)
    assert "Received" in meet(genuine, hostile.carrier).kinds(1)


def test_an_id_that_was_made_to_collide_does_not_replace_what_is_held() -> None:
    """An originator may sign two contents with one number: the first that came stays."""
    first, second = bundle(5, "c"), bundle(5, "c", size=21)
    assert first.message_id == second.message_id
    holder = carrier("b")
    holder.add(first, 8, 0)
    with pytest.raises(ConflictError, match="another bundle of c"):
        holder.add(second, 8, 0)
    held = holder.held(first.message_id)
    assert held is not None
    assert held.bundle.signed == first.signed


def test_a_step_that_a_state_does_not_have_is_our_bug() -> None:
    assert next_state(State.AWAIT_HELLO, Step.CLOSE) is State.CLOSED
    with pytest.raises(LocalContactError, match="RECEIVE_HELLO is not possible in state EXCHANGE"):
        next_state(State.EXCHANGE, Step.RECEIVE_HELLO)
