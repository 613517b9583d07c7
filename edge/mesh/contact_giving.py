"""The giving side of a contact: what is offered, how many copies go with it, and what becomes of them (M6, M7).

What is offered in which order, and how many copies: :mod:`edge.mesh.spray`. Copies are reserved with the offer. They
are spent when the peer says *stored*; a decline, or the end of the contact, gives them back.

A contact may last for days. So what the peer declines for a reason that may pass is offered again after a pause, which
grows as long as the peer stores nothing.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from edge.mesh.carrier import Carrier
from edge.mesh.contact_certificates import CertificateExchange
from edge.mesh.contact_events import Declined, Event, Given
from edge.mesh.contact_frames import DATA_HEAD_BYTES, UNLIMITED, Accept, Data, Decline, Offer, Reason, Stored
from edge.mesh.contact_link import ContactLink
from edge.mesh.contact_reach import PeerReach
from edge.mesh.errors import PeerError
from edge.mesh.spray import copies_to_give, in_order
from edge.mesh.transfers import Outbound

_MAY_PASS: Final = (Reason.FULL, Reason.BUSY, Reason.UNKNOWN_ORIGINATOR)


class Giving:
    """Of one contact. Before the first offer of an originator's bundle the peer gets its certificates. One that is not
    reachable is offered nothing."""

    def __init__(
        self, carrier: Carrier, link: ContactLink, certificates: CertificateExchange, reach: PeerReach
    ) -> None:
        self._carrier, self._link, self._certificates, self._reach = carrier, link, certificates, reach
        self._outbound = Outbound(carrier)
        self._to_offer: deque[str] = deque()
        self._offered: dict[str, int] = {}  # copies that are reserved
        self._peer_has: set[str] = set()
        self._declined: set[str] = set()
        self._postponed: set[str] = set()
        self._pause_s, self._again_at = link.limits.again_s, 0.0

    @property
    def waits(self) -> bool:
        """Whether the peer owes an answer to an offer."""
        return bool(self._offered)

    @property
    def peer_has(self) -> tuple[str, ...]:
        """Ids of messages that the peer holds, as it says."""
        return tuple(self._peer_has)

    def learn(self, ids: Iterable[str]) -> None:
        """The peer holds these. Raises PeerError if they become too many."""
        self._peer_has.update(ids)
        if len(self._peer_has) > self._link.limits.summary_ids:
            raise PeerError(f"a summary of more than {self._link.limits.summary_ids} messages")

    def offered_by_peer(self, message_id: str) -> None:
        """The peer offers it, so it is not offered to the peer."""
        self._peer_has.add(message_id)

    def choose(self, now: float) -> None:
        """Puts all that the peer does not have in the order in which it is offered."""
        if not self._reach.is_reachable:
            return
        known = (self._peer_has, self._declined, self._postponed, self._offered)
        unknown = (one for one in self._carrier.candidates(now) if all(one.message_id not in ids for ids in known))
        self._to_offer = deque(one.message_id for one in in_order(unknown, self._link.view))
        self._make_offers(now)

    def check(self, now: float) -> None:
        """Time passes: what was postponed may be due."""
        if self._postponed and now >= self._again_at:
            self._postponed.clear()
            self._pause_s = min(2 * self._pause_s, self._link.limits.again_most_s)
            self.choose(now)

    def go_on(self, now: float) -> None:
        """A measurement is over: offers what waited for it."""
        self._make_offers(now)

    def next_part(self, now: float) -> Data | Decline | None:
        """The next part of what the peer has accepted; a decline withdraws an offer; None: all is sent."""
        part = self._outbound.next_part(self._link.room - DATA_HEAD_BYTES, now)
        return self._withdrawal(part) if isinstance(part, str) else part

    def take_accept(self, frame: Accept) -> None:
        """The peer wants it. Raises PeerError."""
        if frame.message_id not in self._offered:
            raise PeerError(f"it accepts {frame.message_id}, which is not offered")
        self._outbound.accepted(frame.message_id)

    def take_stored(self, frame: Stored, events: list[Event], now: float) -> None:
        """The copies are the peer's now. Raises PeerError."""
        message_id = frame.message_id
        if not self._outbound.is_sent(message_id):
            raise PeerError(f"it has stored {message_id}, which was not sent")
        self._outbound.forget(message_id)
        copies = self._offered.pop(message_id)
        self._carrier.given(message_id, copies)
        self._peer_has.add(message_id)
        self._pause_s = self._link.limits.again_s
        events.append(Given(message_id, copies))
        self._make_offers(now)

    def take_decline(self, frame: Decline, events: list[Event], now: float) -> None:
        """The copies stay here. Raises PeerError."""
        message_id = frame.message_id
        copies = self._offered.pop(message_id, None)
        if copies is None:
            raise PeerError(f"it declines {message_id}, which is not offered")
        held = self._carrier.held(message_id)
        if frame.reason is Reason.UNKNOWN_ORIGINATOR and held is not None:
            self._certificates.send_again(held.header.originator)
        self._outbound.forget(message_id)
        self._carrier.release(message_id, copies)
        if frame.reason in _MAY_PASS:
            if not self._postponed:
                self._again_at = now + self._pause_s
            self._postponed.add(message_id)
        else:
            self._declined.add(message_id)
        events.append(Declined(message_id, frame.reason))
        self._make_offers(now)

    def end(self) -> None:
        """The contact is over: reserved copies are free again."""
        for message_id, copies in self._offered.items():
            self._carrier.release(message_id, copies)
        self._offered.clear()

    def _make_offers(self, now: float) -> None:
        """Offers the next ones, as many as may be unanswered."""
        if not self._reach.may_offer(now):
            return
        while self._to_offer and len(self._offered) < self._link.limits.unanswered_offers:
            message_id = self._to_offer.popleft()
            held = self._carrier.held(message_id)
            if held is None or message_id in self._peer_has or held.size > self._link.peer.bundle_bytes:
                continue
            header, policy = held.header, self._carrier.policy
            own = self._carrier.encounters.predictability(now)
            copies = copies_to_give(header, held.free, self._link.view, own, policy)
            if copies == 0:
                continue
            self._offered[message_id] = copies or 0
            self._carrier.reserve(message_id, copies or 0)
            self._certificates.send_of((header.originator,))
            offered = UNLIMITED if copies is None else copies
            self._link.send(Offer(header, held.size, offered, held.hops + 1, held.age_s(now)))

    def _withdrawal(self, message_id: str) -> Decline:
        """What was offered is gone by now: a receipt came, or its time was over."""
        self._carrier.release(message_id, self._offered.pop(message_id, 0))
        is_delivered = self._carrier.receipts.record(message_id) is not None
        return Decline(message_id, Reason.DELIVERED if is_delivered else Reason.TOO_OLD)
