"""The bundles that a contact sends, one after the other and in parts, and those that arrive."""

from collections import deque
from dataclasses import dataclass

from bundles import bundle as bundle_format
from edge.mesh.carrier import Carrier
from edge.mesh.contact_frames import Data, Offer
from edge.mesh.errors import PeerError


class Outbound:
    """What the peer has accepted. A bundle is encoded when its turn comes, so memory holds one at a time."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._waiting: deque[str] = deque()
        self._current: tuple[str, bytes, int] | None = None  # message id, encoded bundle, bytes sent
        self._sent: set[str] = set()

    def accepted(self, message_id: str) -> None:
        """It is to be sent. Raises PeerError if it was accepted before."""
        if message_id in self._waiting or message_id in self._sent or self._is_current(message_id):
            raise PeerError(f"it accepts {message_id} twice")
        self._waiting.append(message_id)

    def is_sent(self, message_id: str) -> bool:
        """Whether all of it was sent."""
        return message_id in self._sent

    def forget(self, message_id: str) -> None:
        """The peer has answered: nothing more of it is sent."""
        self._sent.discard(message_id)
        if message_id in self._waiting:
            self._waiting.remove(message_id)
        if self._is_current(message_id):
            self._current = None

    def next_part(self, most: int, now: float) -> Data | str | None:
        """At most `most` bytes of a bundle; or the id of one that is gone, to be withdrawn; None: all is sent,
        or the carrier is not ready."""
        if self._current is None:
            if not self._waiting:
                return None
            held = self._carrier.held(self._waiting[0])
            if held is None or not held.remaining_s(now):
                return self._waiting.popleft()
            if not self._carrier.is_ready(self._waiting):
                return None
            message_id = self._waiting.popleft()
            self._current = message_id, bundle_format.encode(held.bundle.carried(int(now - held.since))), 0
        message_id, encoded, sent = self._current
        part = encoded[sent : sent + most]
        self._current = message_id, encoded, sent + len(part)
        if sent + len(part) == len(encoded):
            self._current = None
            self._sent.add(message_id)
        return Data(message_id, sent, part)

    def _is_current(self, message_id: str) -> bool:
        return self._current is not None and self._current[0] == message_id


@dataclass(slots=True)
class Arrival:
    """A bundle that arrives."""

    offer: Offer
    received: bytearray

    def take(self, frame: Data) -> bool:
        """Takes the next part; whether it was the last. Raises PeerError if it does not continue what came."""
        if frame.offset != len(self.received) or frame.offset + len(frame.part) > self.offer.size:
            at, size = len(self.received), self.offer.size
            raise PeerError(f"data of {frame.message_id} does not continue at byte {at} of {size}")
        self.received += frame.part
        return len(self.received) == self.offer.size
