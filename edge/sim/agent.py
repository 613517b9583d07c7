"""One agent of the simulation: the cores, with a store in memory and, for some, an uplink to the platform."""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from edge.mesh.carrier import Carrier, Originators
from edge.mesh.contact import Contact
from edge.mesh.contact_events import Declined, Event, FirstReceiptsTaken, Given, PeerHolds, ReceiptTaken, Received
from edge.mesh.limits import MeshLimits
from edge.mesh.pending_reports import PendingReports
from edge.mesh.presence import Decision, decide, decide_without_presence
from edge.mesh.spray import SprayPolicy
from edge.sim.platform import Platform
from schemas.events import MessagePresenceEvent

CLAIM_S = 60
BATCH = 500
"""Reports to message presence in one call."""


class SimAgent:
    """`transmissions` counts the bundles that peers have stored; `reasons` why peers declined."""

    def __init__(
        self,
        name: str,
        platform: Platform,
        originators: Originators,
        limits: MeshLimits,
        policy: SprayPolicy,
        *,
        has_uplink: bool,
        patience_s: float,
    ) -> None:
        self.carrier = Carrier(name, 1, originators, platform.signers, limits, policy)
        self.carrier.has_uplink = has_uplink
        self._platform, self._patience_s = platform, patience_s
        self._pending = PendingReports()
        self._live_until_us: dict[str, int] = {}  # of messages that are reported on
        self.transmissions = 0
        self.reasons: Counter[str] = Counter()

    def handle(self, events: Sequence[Event], contact: Contact, now: int) -> bool:
        """Does what a contact asks for. Whether other contacts have something to send for it."""
        has_news = False
        for event in events:
            match event:
                case Received():
                    contact.stored(event.bundle.message_id, now)  # memory is as durable as this store gets
                    has_news = True
                case FirstReceiptsTaken():
                    contact.receipts_stored(now)
                case Given():
                    self.transmissions += 1
                case Declined():
                    self.reasons[event.reason.name] += 1
                case ReceiptTaken():
                    has_news = True
                case PeerHolds() if self.carrier.has_uplink and self._platform.has_presence(now):
                    found = [self._platform.receipt(message_id) for message_id in event.ids]
                    has_news |= any([self.carrier.take_receipt(one) for one in found if one is not None])
                case _:
                    pass
        if self.carrier.has_uplink:
            has_news |= self.deliver(now)
        return has_news

    def deliver(self, now: int) -> bool:
        """Delivers what it holds, as message presence says (M11). Whether a receipt came."""
        if self._platform.has_presence(now):
            self._publish_pending()
        return any([self._deliver(message_id, now) for message_id in self.carrier.ids()])

    def _deliver(self, message_id: str, now: int) -> bool:
        held = self.carrier.held(message_id)
        if held is None or not held.remaining_s(now):
            return False
        header = held.bundle.header
        self._live_until_us[message_id] = header.created_ms * 1000 + header.lifetime_s * 1_000_000
        match self._decision(message_id, now - held.since, now):
            case Decision.DELIVER:
                receipt = self._platform.deliver(held.bundle, now)
                self._report("delivered", message_id, now, peer="recipient")
            case Decision.ASK_FOR_RECEIPT if found := self._platform.receipt(message_id):
                receipt = found
            case _:
                return False
        return self.carrier.take_receipt(receipt)

    def _decision(self, message_id: str, waited_s: float, now: int) -> Decision:
        if not self._platform.has_presence(now):
            return decide_without_presence(waited_s, self._patience_s)
        decision = decide(self._platform.record(message_id), self.carrier.name, now * 1_000_000)
        if decision is Decision.CLAIM:
            self._report("claimed", message_id, now, until_us=(now + CLAIM_S) * 1_000_000)
            decision = decide(self._platform.record(message_id), self.carrier.name, now * 1_000_000)
        return decision

    def _report(
        self, kind: Literal["claimed", "delivered"], message_id: str, now: int, peer: str = "", until_us: int = 0
    ) -> None:
        at_us = now * 1_000_000
        self._pending.append(
            MessagePresenceEvent(
                id=message_id, event=kind, agent=self.carrier.name, at_us=at_us, peer=peer, until_us=until_us
            )
        )
        if self._platform.has_presence(now):
            self._publish_pending()

    def _publish_pending(self) -> None:
        while batch := self._pending.batch(BATCH):
            for report in batch:
                self._platform.publish(report.event, self._live_until_us[report.event.id])
            self._pending.published([report.number for report in batch])
