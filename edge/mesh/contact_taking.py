"""The taking side of a contact: what the peer offers is accepted or declined, verified, and answered once stored (M6).

`stored` is sent only after the driver has said that the bundle is durable.
"""

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
        self._arriving: dict[str, Arrival] = {}
        self._awaiting_store: dict[str, tuple[Bundle, int | None]] = {}

    @property
    def waits(self) -> bool:
        """Whether the peer owes parts of a bundle."""
        return bool(self._arriving)

    def take_offer(self, offer: Offer) -> None:
        """Accepts or declines. Raises PeerError."""
        message_id, limits = offer.header.message_id, self._link.limits
        if message_id in self._arriving or message_id in self._awaiting_store:
            raise PeerError(f"it offers {message_id} twice")
        if len(self._arriving) + len(self._awaiting_store) >= limits.unanswered_offers:
            raise PeerError(f"more than {limits.unanswered_offers} bundles at once")
        reason = self._carrier.refusal(offer)
        if reason is not None:
            self._link.send(Decline(message_id, reason))
            return
        self._carrier.begin_arrival(offer)
        self._arriving[message_id] = Arrival(offer, bytearray())
        self._link.send(Accept(message_id))

    def take_data(self, frame: Data, events: list[Event]) -> None:
        """Takes a part; reports the bundle when it is complete and verified. Raises PeerError."""
        arrival = self._arriving.get(frame.message_id)
        if arrival is None:
            raise PeerError(f"data of {frame.message_id}, which was not accepted")
        if arrival.take(frame):
            del self._arriving[frame.message_id]
            self._take_bundle(arrival.offer, bytes(arrival.received), events)

    def is_withdrawn(self, message_id: str) -> bool:
        """Whether a decline of the peer means its own offer, which is then over."""
        if self._arriving.pop(message_id, None) is None:
            return False
        self._carrier.end_arrival(message_id)
        return True

    def answered(self, message_id: str) -> tuple[Bundle, int | None]:
        """The driver knows whether it is durable. Raises LocalContactError if there is no such bundle."""
        if message_id not in self._awaiting_store:
            raise LocalContactError(f"bundle {message_id} was not received, or is answered already")
        self._carrier.end_arrival(message_id)
        return self._awaiting_store.pop(message_id)

    def end(self) -> None:
        """The contact is over: nothing more arrives."""
        for message_id in self._arriving:
            self._carrier.end_arrival(message_id)
        self._arriving.clear()

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
        if is_verified:
            copies = self._carrier.copies_taken(offer.copies)
            self._awaiting_store[bundle.message_id] = bundle, copies
            events.append(Received(bundle, copies))
        else:  # its certificate has ended, or was revoked, since the offer
            self._carrier.end_arrival(bundle.message_id)
            self._link.send(Decline(bundle.message_id, Reason.UNKNOWN_ORIGINATOR))
