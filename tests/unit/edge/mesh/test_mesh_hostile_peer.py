"""What an enrolled peer that lies, floods, or replays can do: end its own contact, and nothing else (M6, M8)."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundles import bundle as bundle_format
from bundles.bundle import Bundle
from bundles.errors import FormatError
from edge.mesh.carrier import Carrier
from edge.mesh.contact import Contact
from edge.mesh.contact_events import Closed, EndedBy, Event, FirstReceiptsTaken, ReceiptTaken, Received
from edge.mesh.contact_frames import (
    Accept,
    Bye,
    Certificates,
    Data,
    Decline,
    Frame,
    FrameBuffer,
    Hello,
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
from edge.mesh.errors import ConflictError, LocalContactError, PeerError, RefusedError
from edge.mesh.limits import MeshLimits
from tests.draw import generator
from tests.unit.bundles.keys import bundle, header, receipt
from tests.unit.edge.mesh.contact_pair import carrier, meet

HELLO = Hello("x", 1, has_uplink=False, predictability=1.0, frame_bytes=65_536, bundle_bytes=10**6, revocations=0)
BEGINNING = (HELLO, Receipts((), more=False), Summary((), more=False))
ID = bundle().message_id
FRAMES: tuple[Frame, ...] = (
    *BEGINNING,
    Receipts((receipt(ID).encoded, receipt(bundle(2).message_id).encoded), more=True),
    Summary((ID, bundle(2).message_id), more=True),
    Offer(header(), 200, 8, 1, 30),
    Accept(ID),
    Decline(ID, Reason.FULL),
    Data(ID, 5, b"part"),
    Stored(ID),
    Bye("done"),
    Certificates((b"one", b"another")),
    Revocations(b"part", more=True),
    Ping(),
    Pong(),
)


class Hostile:
    """A peer made of frames, against a carrier that holds `held`."""

    def __init__(self, held: Sequence[Bundle] = (), **limits: float) -> None:
        self.carrier: Carrier = carrier("a", **limits)
        for one in held:
            self.carrier.submit(one, 0)
        self.contact = Contact(self.carrier, 100)
        self.answers = FrameBuffer(10**9)

    def sends(self, *frames: Frame, now: float = 100) -> list[Event]:
        events: list[Event] = []
        for frame in frames:
            events += self.contact.receive(encode(frame), now)
            self.answers.feed(self.contact.outgoing(now))
        return events

    def writes(self, data: bytes) -> Iterator[Event]:
        """In parts of which none has two frames with content; receipts are stored at once."""
        for at in range(0, len(data), 16):
            for event in self.contact.receive(data[at : at + 16], 100):
                yield event
                if isinstance(event, FirstReceiptsTaken):
                    self.contact.receipts_stored(100)

    def hears(self) -> list[Frame]:
        found = []
        while (frame := self.answers.next()) is not None:
            found.append(frame)
        return found

    def is_refused(self, detail: str) -> None:
        closed = self.contact.closed
        assert isinstance(closed, Closed)
        assert closed.by is EndedBy.FAULT
        assert detail in closed.detail
        assert isinstance(self.hears()[-1], Bye)


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
        second = Hostile()
        second.carrier, second.contact = first.carrier, Contact(first.carrier, 100)
        second.sends(*BEGINNING, offer)
        assert second.hears()[-1] == answer


def test_a_bundle_that_a_peer_never_ends_may_come_from_another() -> None:
    """M6: it says now and then a byte, so its contact lasts; whoever is first with all of it is believed."""
    message = bundle(5, "c", size=300)
    offer = Offer(message.header, message.size, 8, 1, 0)
    encoded = bundle_format.encode(message.carried(0))
    slow = Hostile()
    slow.sends(*BEGINNING, offer, Data(message.message_id, 0, encoded[:-1]))
    honest = Hostile()
    honest.carrier, honest.contact = slow.carrier, Contact(slow.carrier, 130)
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
    honest = Hostile()
    honest.carrier, honest.contact = hostile.carrier, Contact(hostile.carrier, 100)
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


def test_a_step_that_a_state_does_not_have_is_our_bug() -> None:
    assert next_state(State.AWAIT_HELLO, Step.CLOSE) is State.CLOSED
    with pytest.raises(LocalContactError, match="RECEIVE_HELLO is not possible in state EXCHANGE"):
        next_state(State.EXCHANGE, Step.RECEIVE_HELLO)
