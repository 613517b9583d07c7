"""The taking side of a contact: what the peer offers is accepted or declined, verified, and answered once stored (M6).

`stored` is sent only after the driver has said that the bundle is durable.

Capacity is set aside for a bundle when it is accepted. So that one peer does not get all of it for what it never sends,
its further offers wait, unanswered and in order, while it sends as much as :class:`edge.mesh.limits.MeshLimits` says.
"""

from collections.abc import Mapping

from bundles import bundle as bundle_format
from bundles.bundle import Bundle
from bundles.errors import FormatError, SignatureError
from edge.mesh.carrier import Carrier
from edge.mesh.contact_events import Event, Received
from edge.mesh.contact_frames import Accept, Data, Decline, Offer, Reason
from edge.mesh.contact_link import ContactLink
from edge.mesh.errors import LocalContactError, PeerError
from edge.mesh.transfers import Arrival


class Taking:
    """Of one contact."""

    def __init__(self, carrier: Carrier, link: ContactLink) -> None:
        self._carrier, self._link = carrier, link
        self._waiting: dict[str, Offer] = {}
        self._arriving: dict[str, Arrival] = {}
        self._awaiting_store: dict[str, tuple[Bundle, int | None]] = {}

    @property
    def waits(self) -> bool:
        """Whether the peer owes parts of a bundle."""
        return bool(self._arriving)

    def take_offer(self, offer: Offer, now: float) -> None:
        """Accepts or declines; what is wanted may wait for capacity. Raises PeerError."""
        message_id, limits, parts = offer.header.message_id, self._link.limits, self._parts
        if any(message_id in part for part in parts):
            raise PeerError(f"it offers {message_id} twice")
        if sum(map(len, parts)) >= limits.unanswered_offers:
            raise PeerError(f"more than {limits.unanswered_offers} bundles at once")
        reason = self._carrier.refusal(offer, now)
        if reason is not None:  # at once: the peer may be about to decline an offer of ours for the same message
            self._link.send(Decline(message_id, reason))
        elif self._waiting or not self._has_capacity(offer.size):
            self._waiting[message_id] = offer
        else:
            self._accept(offer, now)

    def take_data(self, frame: Data, events: list[Event], now: float) -> None:
        """Takes a part; reports the bundle when it is complete and verified. Raises PeerError."""
        arrival = self._arriving.get(frame.message_id)
        if arrival is None:
            raise PeerError(f"data of {frame.message_id}, which was not accepted")
        if arrival.take(frame):
            del self._arriving[frame.message_id]
            self._take_bundle(arrival.offer, bytes(arrival.received), events)
            self._answer_offers(now)

    def is_withdrawn(self, message_id: str, now: float) -> bool:
        """Whether a decline of the peer means its own offer, which is then over."""
        if self._waiting.pop(message_id, None) is not None:
            return True
        if self._arriving.pop(message_id, None) is None:
            return False
        self._carrier.end_arrival(message_id)
        self._answer_offers(now)
        return True

    def answered(self, message_id: str) -> tuple[Bundle, int | None]:
        """The driver knows whether it is durable. Raises LocalContactError if there is no such bundle."""
        if message_id not in self._awaiting_store:
            raise LocalContactError(f"bundle {message_id} was not received, or is answered already")
        self._carrier.end_storing(message_id)
        return self._awaiting_store.pop(message_id)

    def end(self) -> None:
        """The contact is over: nothing more arrives."""
        for message_id in self._arriving:
            self._carrier.end_arrival(message_id)
        self._arriving.clear()
        self._waiting.clear()

    @property
    def _parts(self) -> tuple[Mapping[str, object], ...]:
        return self._waiting, self._arriving, self._awaiting_store

    def _answer_offers(self, now: float) -> None:
        """Answers the offers for which there is capacity now, in order."""
        while self._waiting and self._has_capacity(next(iter(self._waiting.values())).size):
            offer = self._waiting.pop(next(iter(self._waiting)))
            reason = self._carrier.refusal(offer, now)
            if reason is None:
                self._accept(offer, now)
            else:
                self._link.send(Decline(offer.header.message_id, reason))

    def _accept(self, offer: Offer, now: float) -> None:
        message_id = offer.header.message_id
        self._carrier.begin_arrival(offer, now)
        self._arriving[message_id] = Arrival(offer, bytearray())
        self._link.send(Accept(message_id))

    def _has_capacity(self, size: int) -> bool:
        """Whether the peer may send a bundle of this size now."""
        limits, arriving = self._link.limits, self._arriving
        if not arriving:
            return True
        is_full = len(arriving) >= limits.arriving_bundles
        return not is_full and sum(one.offer.size for one in arriving.values()) + size <= limits.arriving_bytes

    def _take_bundle(self, offer: Offer, encoded: bytes, events: list[Event]) -> None:
        limits = self._link.limits
        try:
            bundle = bundle_format.decode(encoded, limits.bundle_bytes)
            if bundle.header != offer.header or bundle.hops > limits.hops:
                raise FormatError("it is not what was offered")
            is_verified = self._carrier.verify(bundle)
        except (FormatError, SignatureError) as error:
            self._carrier.end_arrival(offer.header.message_id)
            self._link.send(Decline(offer.header.message_id, Reason.BAD_BUNDLE))
            raise PeerError(f"bundle {offer.header.message_id}: {error}") from error
        # If not, its certificate has ended, or was revoked, since the offer.
        reason = self._carrier.begin_storing(bundle.message_id) if is_verified else Reason.UNKNOWN_ORIGINATOR
        if reason is None:
            copies = self._carrier.copies_taken(offer.copies)
            self._awaiting_store[bundle.message_id] = bundle, copies
            events.append(Received(bundle, copies))
        else:
            self._carrier.end_arrival(bundle.message_id)
            self._link.send(Decline(bundle.message_id, reason))
