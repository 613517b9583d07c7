"""One contact between two agents as a state machine; bytes and `now` in, events and bytes out (M6-M8, M12, M15).

    hello → receipts → summary → { offer → accept → data … → stored  |  offer → decline }, both ways at once

Both sides do the same. **Receipts come first**, so that what is delivered is not even listed. A side that goes on for
long sends new receipts and offers whenever :meth:`Contact.refresh` is called. What is offered, and how many copies:
:mod:`edge.mesh.spray`. States and transitions: :mod:`edge.mesh.contact_state`. What outlives the contact:
:mod:`edge.mesh.carrier`.

What holds wherever the link is cut, and whatever the peer sends:

* `stored` is sent only after the driver has said that the bundle is durable, by calling :meth:`Contact.stored`.
* A budget changes only when the peer says *stored*. If that word is lost, both have copies: more than the budget, never
  fewer. A decline, or the end of the contact, gives reserved copies back.
* Nothing that a peer says makes a bundle disappear, except a receipt that verifies.
* The peer can fill neither memory nor time: frames, their number in ten seconds, summaries, arriving bundles and
  silence are bounded, and what exceeds a limit ends the contact.

After each call, write `outgoing()` until it is empty; when `closed` is set, close the link afterwards.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from bundles import bundle as bundle_format
from bundles import receipt as receipt_format
from bundles.bundle import Bundle
from bundles.errors import FormatError, SignatureError
from bundles.receipt import RECEIPT_BYTES_MAX
from bundles.wire import ID_BYTES
from edge.mesh.carrier import Carrier
from edge.mesh.contact_events import (
    Closed,
    Declined,
    EndedBy,
    Event,
    Given,
    Introduced,
    PeerHolds,
    ReceiptRefused,
    ReceiptTaken,
    Received,
)
from edge.mesh.contact_frames import (
    DATA_HEAD_BYTES,
    HEAD_BYTES,
    UNLIMITED,
    Accept,
    Bye,
    Data,
    Decline,
    Frame,
    FrameBuffer,
    Hello,
    Offer,
    Reason,
    Receipts,
    Stored,
    Summary,
    encode,
)
from edge.mesh.contact_state import State, Step, next_state
from edge.mesh.errors import LocalContactError, PeerError
from edge.mesh.known_receipts import Peer
from edge.mesh.spray import PeerView, copies_to_give, in_order
from edge.mesh.transfers import Arrival, Outbound

_FLOOD_S: Final = 10.0


class Contact:
    """One contact of `carrier`, which may have several. It begins by sending hello. Read-only: `state`, `peer` (its
    hello, once it came) and `closed`. Times are seconds of the carrier's clock."""

    def __init__(self, carrier: Carrier, now: float) -> None:
        self._carrier, self._limits = carrier, carrier.limits
        self._frames = FrameBuffer(self._limits.frame_bytes)
        self._out: deque[bytes] = deque()
        self._outbound = Outbound(carrier)
        self._to_offer: deque[str] = deque()
        self._offered: dict[str, int] = {}  # copies that are reserved
        self._arriving: dict[str, Arrival] = {}
        self._awaiting_store: dict[str, tuple[Bundle, int | None]] = {}
        self._peer_has: set[str] = set()
        self._declined: set[str] = set()
        self._receipts_sent = 0  # up to this number
        self._window, self._window_frames = now, 0
        self._heard = now
        self.state = State.AWAIT_HELLO
        self.peer: Hello | None = None
        self.closed: Closed | None = None
        self._send(carrier.hello(now))

    # -- in ------------------------------------------------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> list[Event]:
        """The events that `data` completes. Never raises for what the peer sent."""
        events: list[Event] = []
        if self.closed is not None:
            return events
        self._heard = now
        self._frames.feed(data)
        try:
            while self.closed is None and (frame := self._frames.next()) is not None:
                self._count_frame(now)
                handler = _HANDLERS[self.state].get(type(frame))
                if handler is None:
                    raise PeerError(f"{type(frame).__name__.lower()} is not allowed in state {self.state.name}")
                handler(self, frame, events, now)
        except PeerError as fault:
            events.append(self._end(EndedBy.FAULT, f"the peer broke the protocol: {fault}", tells_peer=True))
        return events

    def check(self, now: float) -> list[Event]:
        """Call it now and then: closes a contact whose peer owes an answer for longer than `idle_s`."""
        is_owed = self.state is not State.EXCHANGE or self._offered or self._arriving
        if self.closed is None and is_owed and now - self._heard > self._limits.idle_s:
            return [self._end(EndedBy.SILENCE, f"nothing came for {self._limits.idle_s:g} s", tells_peer=True)]
        return []

    def eof(self) -> list[Event]:
        """The link is gone."""
        return [] if self.closed is not None else [self._end(EndedBy.LOSS, "the link was lost")]

    # -- what the driver says ------------------------------------------------------------------------------------------

    def stored(self, message_id: str, now: float) -> None:
        """The bundle of a :class:`Received` is durable. Raises LocalContactError if there is no such bundle."""
        bundle, copies = self._to_be_stored(message_id)
        self._carrier.add(bundle, copies, now)
        if self.closed is None:
            self._send(Stored(message_id))

    def not_stored(self, message_id: str, reason: Reason) -> None:
        """It could not be made durable."""
        self._to_be_stored(message_id)
        if self.closed is None:
            self._send(Decline(message_id, reason))

    def refresh(self, now: float) -> None:
        """Sends receipts and offers that are new since the last call."""
        if self.state is State.EXCHANGE:
            self._send_receipts(is_first=False)
            self._choose_offers(now)

    def close(self, detail: str = "done") -> list[Event]:
        """Ends the contact."""
        return [] if self.closed is not None else [self._end(EndedBy.US, detail, tells_peer=True)]

    # -- out -----------------------------------------------------------------------------------------------------------

    def outgoing(self, now: float) -> bytes:
        """Bytes to write: all that is due, and of bundles at most `burst_bytes`; call again until it is empty."""
        parts = list(self._out)
        self._out.clear()
        room = self._limits.burst_bytes
        while self.state is State.EXCHANGE and room > 0:
            part = self._outbound.next_part(self._room() - DATA_HEAD_BYTES, now)
            if part is None:
                break
            parts.append(encode(self._withdrawal(part) if isinstance(part, str) else part))
            room -= len(parts[-1])
        return b"".join(parts)

    def _send(self, frame: Frame) -> None:
        self._out.append(encode(frame))

    def _withdrawal(self, message_id: str) -> Decline:
        """What was offered is gone by now: a receipt came, or its time was over."""
        self._carrier.release(message_id, self._offered.pop(message_id, 0))
        is_delivered = self._carrier.receipts.get(message_id) is not None
        return Decline(message_id, Reason.DELIVERED if is_delivered else Reason.TOO_OLD)

    def _room(self) -> int:
        """The bytes of a frame's body that both sides allow."""
        peer = self._known_peer()
        return min(self._limits.frame_bytes, peer.frame_bytes) - HEAD_BYTES

    # -- beginning -----------------------------------------------------------------------------------------------------

    def _take_hello(self, hello: Hello, events: list[Event], now: float) -> None:
        if hello.name == self._carrier.name:
            raise PeerError(f"the peer has our own name, {hello.name}")
        self.state = next_state(self.state, Step.RECEIVE_HELLO)
        self.peer = hello
        self._carrier.encounters.met(hello.has_uplink, hello.predictability, now)
        events.append(Introduced(hello))
        self._send_receipts(is_first=True)

    def _send_receipts(self, *, is_first: bool) -> None:
        known, key = self._carrier.receipts, self._key()
        after = known.complete_up_to(key) if is_first else self._receipts_sent
        self._receipts_sent = known.number
        each = max(1, (self._room() - 1) // (2 + RECEIPT_BYTES_MAX))
        new = [receipt.encoded for receipt in known.after(after, key)]
        for at in range(0, len(new), each) if new else range(1 if is_first else 0):
            self._send(Receipts(tuple(new[at : at + each]), more=at + each < len(new)))

    def _take_receipts(self, frame: Receipts, events: list[Event], now: float) -> None:
        for encoded in frame.receipts:
            self._take_receipt(encoded, events)
        if not frame.more:
            was_first = self.state is State.AWAIT_RECEIPTS
            self.state = next_state(self.state, Step.RECEIVE_LAST_RECEIPTS)
            if was_first:
                self._send_summary(now)

    def _take_receipt(self, encoded: bytes, events: list[Event]) -> None:
        try:
            known = self._carrier.receipts.get(receipt_format.peek_id(encoded))
            if known is not None and known.encoded == encoded:
                return
            receipt = receipt_format.decode(encoded)
        except FormatError as error:
            raise PeerError(f"a malformed receipt: {error}") from error
        try:
            if self._carrier.take_receipt(receipt, self._key()):
                events.append(ReceiptTaken(receipt))
        except SignatureError as error:
            events.append(ReceiptRefused(receipt, str(error)))

    def _send_summary(self, now: float) -> None:
        ids = [one.message_id for one in self._carrier.candidates(now)]
        each = (self._room() - 1) // ID_BYTES
        for at in range(0, max(1, len(ids)), each):
            self._send(Summary(tuple(ids[at : at + each]), more=at + each < len(ids)))

    def _take_summary(self, frame: Summary, events: list[Event], now: float) -> None:
        self._peer_has.update(frame.ids)
        if len(self._peer_has) > self._limits.summary_ids:
            raise PeerError(f"a summary of more than {self._limits.summary_ids} messages")
        if frame.more:
            return
        self.state = next_state(self.state, Step.RECEIVE_LAST_SUMMARY)
        self._carrier.receipts.completed(self._key(), self._receipts_sent)  # the peer took them before its summary
        events.append(PeerHolds(tuple(self._peer_has)))
        self._choose_offers(now)

    # -- giving --------------------------------------------------------------------------------------------------------

    def _choose_offers(self, now: float) -> None:
        """Puts all that the peer does not have in the order in which it is offered."""
        known = (self._peer_has, self._declined, self._offered)
        unknown = (one for one in self._carrier.candidates(now) if all(one.message_id not in ids for ids in known))
        self._to_offer = deque(one.message_id for one in in_order(unknown, self._view()))
        self._make_offers(now)

    def _make_offers(self, now: float) -> None:
        """Offers the next ones, as many as may be unanswered."""
        while self._to_offer and len(self._offered) < self._limits.unanswered_offers:
            message_id = self._to_offer.popleft()
            held = self._carrier.held(message_id)
            if held is None or message_id in self._peer_has or held.bundle.size > self._known_peer().bundle_bytes:
                continue
            header, policy = held.bundle.header, self._carrier.policy
            own = self._carrier.encounters.predictability(now)
            copies = copies_to_give(header, held.free, self._view(), own, policy)
            if copies == 0:
                continue
            self._offered[message_id] = copies or 0
            self._carrier.reserve(message_id, copies or 0)
            offered = UNLIMITED if copies is None else copies
            self._send(Offer(header, held.bundle.size, offered, held.bundle.hops + 1, held.age_s(now)))

    def _take_accept(self, frame: Accept, events: list[Event], now: float) -> None:
        if frame.message_id not in self._offered:
            raise PeerError(f"it accepts {frame.message_id}, which is not offered")
        self._outbound.accepted(frame.message_id)

    def _take_stored(self, frame: Stored, events: list[Event], now: float) -> None:
        message_id = frame.message_id
        if not self._outbound.is_sent(message_id):
            raise PeerError(f"it has stored {message_id}, which was not sent")
        self._outbound.forget(message_id)
        copies = self._offered.pop(message_id)
        self._carrier.given(message_id, copies)
        self._peer_has.add(message_id)
        events.append(Given(message_id, copies))
        self._make_offers(now)

    def _take_decline(self, frame: Decline, events: list[Event], now: float) -> None:
        message_id = frame.message_id
        if self._arriving.pop(message_id, None) is not None:  # the peer withdraws its offer
            self._carrier.end_arrival(message_id)
            return
        copies = self._offered.pop(message_id, None)
        if copies is None:
            raise PeerError(f"it declines {message_id}, which is not offered")
        self._outbound.forget(message_id)
        self._carrier.release(message_id, copies)
        self._declined.add(message_id)
        events.append(Declined(message_id, frame.reason))
        self._make_offers(now)

    # -- taking --------------------------------------------------------------------------------------------------------

    def _take_offer(self, offer: Offer, events: list[Event], now: float) -> None:
        message_id = offer.header.message_id
        if message_id in self._arriving or message_id in self._awaiting_store:
            raise PeerError(f"it offers {message_id} twice")
        if len(self._arriving) + len(self._awaiting_store) >= self._limits.unanswered_offers:
            raise PeerError(f"more than {self._limits.unanswered_offers} bundles at once")
        self._peer_has.add(message_id)
        reason = self._carrier.refusal(offer)
        if reason is not None:
            self._send(Decline(message_id, reason))
            return
        self._carrier.begin_arrival(offer)
        self._arriving[message_id] = Arrival(offer, bytearray())
        self._send(Accept(message_id))

    def _take_data(self, frame: Data, events: list[Event], now: float) -> None:
        arrival = self._arriving.get(frame.message_id)
        if arrival is None:
            raise PeerError(f"data of {frame.message_id}, which was not accepted")
        if arrival.take(frame):
            del self._arriving[frame.message_id]
            self._take_bundle(arrival.offer, bytes(arrival.received), events)

    def _take_bundle(self, offer: Offer, encoded: bytes, events: list[Event]) -> None:
        try:
            bundle = bundle_format.decode(encoded, self._limits.bundle_bytes)
            if bundle.header != offer.header or bundle.hops > self._limits.hops:
                raise FormatError("it is not what was offered")
            is_verified = self._carrier.verify(bundle)
        except (FormatError, SignatureError) as error:
            self._carrier.end_arrival(offer.header.message_id)
            self._send(Decline(offer.header.message_id, Reason.BAD_BUNDLE))
            raise PeerError(f"bundle {offer.header.message_id}: {error}") from error
        if is_verified:
            copies = self._carrier.copies_taken(offer.copies)
            self._awaiting_store[bundle.message_id] = bundle, copies
            events.append(Received(bundle, copies))
        else:  # its certificate has ended, or was revoked, since the offer
            self._carrier.end_arrival(bundle.message_id)
            self._send(Decline(bundle.message_id, Reason.UNKNOWN_ORIGINATOR))

    def _to_be_stored(self, message_id: str) -> tuple[Bundle, int | None]:
        if message_id not in self._awaiting_store:
            raise LocalContactError(f"bundle {message_id} was not received, or is answered already")
        self._carrier.end_arrival(message_id)
        return self._awaiting_store.pop(message_id)

    # -- the end -------------------------------------------------------------------------------------------------------

    def _take_bye(self, frame: Bye, events: list[Event], now: float) -> None:
        events.append(self._end(EndedBy.PEER, f"the peer ended the contact: {frame.detail}"))

    def _end(self, by: EndedBy, detail: str, *, tells_peer: bool = False) -> Closed:
        self.state = next_state(self.state, Step.CLOSE)
        for message_id, copies in self._offered.items():
            self._carrier.release(message_id, copies)
        for message_id in self._arriving:
            self._carrier.end_arrival(message_id)
        self._offered.clear()
        self._arriving.clear()
        if tells_peer:
            self._send(Bye(detail.encode()[:200].decode(errors="ignore")))
        self.closed = Closed(by, detail)
        return self.closed

    def _count_frame(self, now: float) -> None:
        if now - self._window >= _FLOOD_S:
            self._window, self._window_frames = now, 0
        self._window_frames += 1
        if self._window_frames > self._limits.frames:
            raise PeerError(f"more than {self._limits.frames} frames in {_FLOOD_S:g} s")

    def _known_peer(self) -> Hello:
        if self.peer is None:
            raise LocalContactError("the peer has not said hello yet")
        return self.peer

    def _view(self) -> PeerView:
        peer = self._known_peer()
        return PeerView(peer.name, peer.has_uplink, peer.predictability)

    def _key(self) -> Peer:
        peer = self._known_peer()
        return peer.name, peer.incarnation


_Handler = Callable[[Contact, Any, list[Event], float], None]
_HANDLERS: Final[Mapping[State, Mapping[type, _Handler]]] = {
    State.AWAIT_HELLO: {Hello: Contact._take_hello, Bye: Contact._take_bye},
    State.AWAIT_RECEIPTS: {Receipts: Contact._take_receipts, Bye: Contact._take_bye},
    State.AWAIT_SUMMARY: {Summary: Contact._take_summary, Bye: Contact._take_bye},
    State.EXCHANGE: {
        Receipts: Contact._take_receipts,
        Offer: Contact._take_offer,
        Accept: Contact._take_accept,
        Decline: Contact._take_decline,
        Data: Contact._take_data,
        Stored: Contact._take_stored,
        Bye: Contact._take_bye,
    },
    State.CLOSED: {},
}
