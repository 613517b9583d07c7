"""One contact between two agents as a state machine; bytes and `now` in, events and bytes out (M3, M6-M8, M12, M15).

    hello → revocations, certificates → receipts → summary
          → { offer → accept → data … → stored  |  offer → decline }, both ways at once

Both sides do the same. **Receipts come before offers**, so that what is delivered is not even listed. A side that goes
on for long sends what is new whenever :meth:`Contact.refresh` is called. The parts:

* states and transitions: :mod:`edge.mesh.contact_state`;
* certificates and revocation lists: :mod:`edge.mesh.contact_certificates`; receipts: :mod:`edge.mesh.contact_receipts`;
* what is offered, and how many copies: :mod:`edge.mesh.contact_giving`; what is taken:
  :mod:`edge.mesh.contact_taking`;
* whether the peer is reachable, by pings: :mod:`edge.mesh.contact_reach`;
* what outlives the contact: :mod:`edge.mesh.carrier`.

What holds wherever the link is cut, and whatever the peer sends:

* Our summary is sent only after the driver has said that the receipts before it are durable, by calling
  :meth:`Contact.receipts_stored`: the peer takes it that we have them, and does not send them again.
* `stored` is sent only after the driver has said that the bundle is durable, by calling :meth:`Contact.stored`.
* A budget changes only when the peer says *stored*. If that word is lost, both have copies: more than the budget, never
  fewer. A decline, or the end of the contact, gives reserved copies back.
* Nothing that a peer says makes a bundle disappear, except a receipt that verifies.
* The peer can fill neither memory nor time: frames, their number in ten seconds, summaries, arriving bundles,
  certificates, revocation lists and silence are bounded, and what exceeds a limit ends the contact or is ignored.

After each call, write `outgoing()` until it is empty; when `closed` is set, close the link afterwards.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from bundles.wire import ID_BYTES
from edge.mesh.carrier import Carrier
from edge.mesh.contact_certificates import CertificateExchange
from edge.mesh.contact_events import Closed, EndedBy, Event, FirstReceiptsTaken, Introduced, PeerHolds
from edge.mesh.contact_frames import (
    Accept,
    Bye,
    Certificates,
    Data,
    Decline,
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
    encode,
)
from edge.mesh.contact_giving import Giving
from edge.mesh.contact_link import ContactLink
from edge.mesh.contact_reach import PeerReach
from edge.mesh.contact_receipts import ReceiptExchange
from edge.mesh.contact_state import State, Step, next_state
from edge.mesh.contact_taking import Taking
from edge.mesh.errors import PeerError

_FLOOD_S: Final = 10.0


class Contact:
    """One contact of `carrier`, which may have several. It begins by sending hello. `peer_name`: by which the link was
    authenticated; None if it was not, as in the simulation. Read-only: `state`, `peer` (its hello, once it came),
    `reach` and `closed`. Times are seconds of the carrier's clock."""

    def __init__(self, carrier: Carrier, now: float, peer_name: str | None = None) -> None:
        self._carrier, self._limits, self._peer_name = carrier, carrier.limits, peer_name
        self._frames = FrameBuffer(self._limits.frame_bytes)
        self._link = ContactLink(self._limits)
        self._certificates = CertificateExchange(carrier, self._link)
        self._receipts = ReceiptExchange(carrier, self._link, self._certificates)
        self.reach = PeerReach(self._link, now)
        self._giving = Giving(carrier, self._link, self._certificates, self.reach)
        self._taking = Taking(carrier, self._link)
        self._window, self._window_frames = now, 0
        self._heard = now
        self.state = State.AWAIT_HELLO
        self.closed: Closed | None = None
        self._link.send(carrier.hello(now))

    @property
    def peer(self) -> Hello | None:
        """The peer's hello, once it came."""
        return self._link.hello

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
        self._measure_if_it_counts(now)
        return events

    def check(self, now: float) -> list[Event]:
        """Call it now and then, and `outgoing` afterwards: measures whether the peer is reachable, offers again what it
        could not take, and closes a contact whose peer owes an answer for longer than `idle_s`."""
        is_beginning = self.state not in (State.EXCHANGE, State.AWAIT_STORE_ONLY)
        is_owed = is_beginning or self._giving.waits or self._taking.waits or self.reach.waits
        if self.closed is None and is_owed and now - self._heard > self._limits.idle_s:
            return [self._end(EndedBy.SILENCE, f"nothing came for {self._limits.idle_s:g} s", tells_peer=True)]
        self.reach.check(now)
        if self.state is State.EXCHANGE:
            self._giving.check(now)
        self._measure(now)
        return []

    def eof(self) -> list[Event]:
        """The link is gone."""
        return [] if self.closed is not None else [self._end(EndedBy.LOSS, "the link was lost")]

    # -- what the driver says ------------------------------------------------------------------------------------------

    def receipts_stored(self, now: float) -> None:
        """The receipts of a :class:`FirstReceiptsTaken` are durable. Raises LocalContactError if there was none."""
        if self.closed is None:
            self._summarise(now)

    def stored(self, message_id: str, now: float) -> None:
        """The bundle of a :class:`Received` is durable. Raises LocalContactError if there is no such bundle."""
        bundle, copies = self._taking.answered(message_id)
        self._carrier.add(bundle, copies, now)
        if self.closed is None:
            self._link.send(Stored(message_id))

    def not_stored(self, message_id: str, reason: Reason) -> None:
        """It could not be made durable."""
        self._taking.answered(message_id)
        if self.closed is None:
            self._link.send(Decline(message_id, reason))

    def refresh(self, now: float) -> None:
        """Sends a revocation list, receipts and offers that are new since the last call."""
        if self.state is State.EXCHANGE:
            self._certificates.refresh()
            self._receipts.refresh()
            self._giving.choose(now)
            self._measure_if_it_counts(now)

    def close(self, detail: str = "done") -> list[Event]:
        """Ends the contact."""
        return [] if self.closed is not None else [self._end(EndedBy.US, detail, tells_peer=True)]

    # -- out -----------------------------------------------------------------------------------------------------------

    @property
    def has_frames(self) -> bool:
        """Whether `outgoing` has something other than bundles."""
        return self._link.waits

    def outgoing(self, now: float) -> bytes:
        """Bytes to write: all that is due, and of receipts and bundles at most `burst_bytes` each; call again until it
        is empty. Raises StoreError."""
        parts = self._link.drain()
        room = self._limits.burst_bytes
        while self.state is State.EXCHANGE and room > 0 and not self._link.waits:
            part = self._giving.next_part(now)
            if part is None:
                break
            parts.append(encode(part))
            room -= len(parts[-1])
        return b"".join(parts)

    # -- frames --------------------------------------------------------------------------------------------------------

    def _take_hello(self, hello: Hello, events: list[Event], now: float) -> None:
        if hello.name == self._carrier.name:
            raise PeerError(f"the peer has our own name, {hello.name}")
        if self._peer_name not in (None, hello.name):  # nothing that it says may count as another agent's word
            raise PeerError("its hello does not have the name of its certificate")
        self.state = next_state(self.state, Step.RECEIVE_HELLO)
        self._link.introduced(hello)
        self._carrier.encounters.met(hello.has_uplink, hello.predictability, now)
        events.append(Introduced(hello))
        self._receipts.begin()

    def _take_certificates(self, frame: Certificates, events: list[Event], now: float) -> None:
        self._certificates.take(frame, events)

    def _take_revocations(self, frame: Revocations, events: list[Event], now: float) -> None:
        self._certificates.take_list(frame, events)

    def _take_receipts(self, frame: Receipts, events: list[Event], now: float) -> None:
        self._receipts.take(frame, events, now)
        if not frame.more:
            was_first = self.state is State.AWAIT_RECEIPTS
            self.state = next_state(self.state, Step.RECEIVE_LAST_RECEIPTS)
            if was_first and self._receipts.has_come:
                events.append(FirstReceiptsTaken())
            elif was_first:
                self._summarise(now)

    def _summarise(self, now: float) -> None:
        """What the peer has sent is durable: sends our summary, and goes on if the peer's has come."""
        self.state = next_state(self.state, Step.RECEIPTS_STORED)
        self._send_summary(now)
        if self.state is State.EXCHANGE:
            self._begin_exchange(now)
            self._measure_if_it_counts(now)

    def _begin_exchange(self, now: float) -> None:
        self._receipts.repeat(self._giving.peer_has)
        self._giving.choose(now)

    def _send_summary(self, now: float) -> None:
        ids = [one.message_id for one in self._carrier.candidates(now)]
        each = (self._link.room - 1) // ID_BYTES
        for at in range(0, max(1, len(ids)), each):
            self._link.send(Summary(tuple(ids[at : at + each]), more=at + each < len(ids)))

    def _take_summary(self, frame: Summary, events: list[Event], now: float) -> None:
        self._giving.learn(frame.ids)
        if frame.more:
            return
        self.state = next_state(self.state, Step.RECEIVE_LAST_SUMMARY)
        self._receipts.took_first()
        self._certificates.took_first()
        events.append(PeerHolds(self._giving.peer_has))
        if self.state is State.EXCHANGE:
            self._begin_exchange(now)

    def _take_offer(self, offer: Offer, events: list[Event], now: float) -> None:
        self._taking.take_offer(offer, now)
        self._giving.offered_by_peer(offer.header.message_id)

    def _take_accept(self, frame: Accept, events: list[Event], now: float) -> None:
        self._giving.take_accept(frame)

    def _take_stored(self, frame: Stored, events: list[Event], now: float) -> None:
        self._giving.take_stored(frame, events, now)

    def _take_decline(self, frame: Decline, events: list[Event], now: float) -> None:
        if not self._taking.is_withdrawn(frame.message_id, now):
            self._giving.take_decline(frame, events, now)

    def _take_data(self, frame: Data, events: list[Event], now: float) -> None:
        self.reach.take_data()
        self._taking.take_data(frame, events, now)

    def _take_ping(self, frame: Ping, events: list[Event], now: float) -> None:
        self._link.send(Pong())

    def _take_pong(self, frame: Pong, events: list[Event], now: float) -> None:
        if self.reach.take_pong(now):
            self._giving.choose(now)
        else:
            self._giving.go_on(now)

    def _take_bye(self, frame: Bye, events: list[Event], now: float) -> None:
        events.append(self._end(EndedBy.PEER, f"the peer ended the contact: {frame.detail}"))

    # -- the end -------------------------------------------------------------------------------------------------------

    def _end(self, by: EndedBy, detail: str, *, tells_peer: bool = False) -> Closed:
        self.state = next_state(self.state, Step.CLOSE)
        self._giving.end()
        self._taking.end()
        if tells_peer:
            self._link.send(Bye(detail.encode()[:200].decode(errors="ignore")))
        self.closed = Closed(by, detail)
        return self.closed

    def _measure(self, now: float) -> None:
        if self.state is State.EXCHANGE and not self._giving.waits:
            self.reach.measure(now)

    def _measure_if_it_counts(self, now: float) -> None:
        """With a threshold offers wait for a measurement that is due, so it begins at once."""
        if self.reach.has_threshold:
            self._measure(now)

    def _count_frame(self, now: float) -> None:
        if now - self._window >= _FLOOD_S:
            self._window, self._window_frames = now, 0
        self._window_frames += 1
        if self._window_frames > self._limits.frames:
            raise PeerError(f"more than {self._limits.frames} frames in {_FLOOD_S:g} s")


_Handler = Callable[[Contact, Any, list[Event], float], None]
_HANDLERS: Final[Mapping[State, Mapping[type, _Handler]]] = {
    State.AWAIT_HELLO: {Hello: Contact._take_hello, Bye: Contact._take_bye},
    State.AWAIT_RECEIPTS: {
        Certificates: Contact._take_certificates,
        Revocations: Contact._take_revocations,
        Receipts: Contact._take_receipts,
        Bye: Contact._take_bye,
    },
    State.AWAIT_STORE: {Summary: Contact._take_summary, Bye: Contact._take_bye},
    State.AWAIT_STORE_ONLY: {Bye: Contact._take_bye},
    State.AWAIT_SUMMARY: {Summary: Contact._take_summary, Bye: Contact._take_bye},
    State.EXCHANGE: {
        Certificates: Contact._take_certificates,
        Revocations: Contact._take_revocations,
        Receipts: Contact._take_receipts,
        Offer: Contact._take_offer,
        Accept: Contact._take_accept,
        Decline: Contact._take_decline,
        Data: Contact._take_data,
        Stored: Contact._take_stored,
        Ping: Contact._take_ping,
        Pong: Contact._take_pong,
        Bye: Contact._take_bye,
    },
    State.CLOSED: {},
}
