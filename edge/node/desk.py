"""What a node does about each event of a contact: the one place that turns them into changes of the store."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from bundles.bundle import Bundle
from bundles.certificates import Certificate
from edge.mesh import reports
from edge.mesh.carrier import Held
from edge.mesh.contact import Contact
from edge.mesh.contact_events import (
    CertificateTaken,
    Event,
    FirstReceiptsTaken,
    Given,
    ReceiptRefused,
    ReceiptTaken,
    Received,
    RevocationsTaken,
)
from edge.mesh.contact_frames import Reason
from edge.mesh.errors import ConflictError
from edge.mesh.pending_reports import PendingReports
from edge.node.arrivals import Arrivals
from edge.node.batch import BundleRow, Step
from edge.node.carrying import carry
from edge.node.certificates import Certificates
from edge.node.disk_carrier import DiskCarrier
from edge.node.journal import Journal
from edge.node.submissions import Submissions
from schemas.events import MessagePresenceEvent

_log: Final = logging.getLogger("waystation.mesh")


class Desk:
    """`on_news` is called when other contacts, or the uplink, have something new. `presence`: where events for message
    presence are logged; None if there are none to be (M6, M13). Read-only: `carrier`."""

    def __init__(
        self,
        journal: Journal,
        carrier: DiskCarrier,
        submissions: Submissions,
        arrivals: Arrivals,
        certificates: Certificates,
        on_news: Callable[[], None],
        presence: PendingReports | None = None,
    ) -> None:
        self.carrier, self._presence = carrier, presence
        self._journal, self._submissions, self._arrivals = journal, submissions, arrivals
        self._certificates, self._on_news = certificates, on_news

    @property
    def now_s(self) -> float:
        """The store's clock."""
        return self._journal.now_s

    async def answered(self) -> None:
        """See :meth:`edge.node.journal.Journal.answered`."""
        await self._journal.answered()

    async def carry(self, bundle: Bundle) -> bool:
        """See :func:`edge.node.carrying.carry`."""
        return await carry(self._journal, self.carrier, bundle, self._on_news)

    def handle(
        self, events: Sequence[Event], contact: Contact, peer: Certificate, on_output: Callable[[], None]
    ) -> None:
        """Notes what the events change. `on_output` is called when the contact has something to send for it."""
        for event in events:
            match event:
                case Received(bundle, copies):
                    self._received(bundle, copies, contact, peer, on_output)
                case Given(message_id, copies):
                    self._given(message_id, peer)
                case ReceiptTaken(receipt, dropped):
                    self._submissions.delivered(receipt)
                    if dropped is not None and self._is_ours_and_shared(dropped):
                        self._report(reports.retired(dropped.header, self.carrier.name, self._now_us))
                    self._on_news()
                case FirstReceiptsTaken():
                    self._journal.when_durable(partial(self._receipts_stored, contact, on_output))
                case CertificateTaken(certificate):
                    self._certificates.taken(certificate)
                    self._on_news()
                case RevocationsTaken(revocations):
                    self._certificates.revoked(revocations)
                    self._on_news()
                case ReceiptRefused(receipt, detail):
                    _log.warning("%s sent a receipt that is not taken: %s", peer.name, detail)
                case _:
                    pass

    def _received(
        self,
        bundle: Bundle,
        copies: int | None,
        contact: Contact,
        peer: Certificate,
        on_output: Callable[[], None],
    ) -> None:
        message_id = bundle.message_id

        def stored() -> None:
            try:
                contact.stored(message_id, self.now_s)
            except ConflictError as error:
                _log.warning("%s", error)
            if message_id not in self.carrier:  # a receipt came meanwhile
                self._journal.change(urgent=False).removed[message_id] = None
            on_output()
            self._on_news()

        def refused(reason: Reason) -> None:
            contact.not_stored(message_id, reason)
            on_output()

        if bundle.header.recipient == self._journal.name:
            self._arrivals.arrive(bundle, lambda _: stored(), refused)
            return
        batch = self._journal.change()
        batch.add(message_id, BundleRow(bundle, copies, self.now_s))
        batch.accepted_steps.append(Step(message_id, self._journal.wall_s, "carried", f"from {peer.name}"))
        batch.accepted.append(stored)
        batch.refused.append(lambda error: refused(Reason.FULL))

    def _receipts_stored(self, contact: Contact, on_output: Callable[[], None]) -> None:
        contact.receipts_stored(self.now_s)
        on_output()

    def _given(self, message_id: str, peer: Certificate) -> None:
        held = self.carrier.held(message_id)
        batch = self._journal.change(urgent=False)
        if held is not None:
            batch.budgets[message_id] = held.copies
        batch.steps.append(Step(message_id, self._journal.wall_s, "given", f"to {peer.name}"))
        if held is not None:
            self._report(reports.propagated(held.bundle.header, self.carrier.name, peer.name, self._now_us))
        self._on_news()

    def expired(self, held: Held) -> None:
        """The lifetime of a bundle has passed: message presence is told of one of ours that others may have."""
        if self._is_ours_and_shared(held):
            self._report(reports.expired(held.header, self.carrier.name, self._now_us))

    def _is_ours_and_shared(self, held: Held) -> bool:
        header = held.header
        return held.is_shared and (header.originator, header.incarnation) == (
            self.carrier.name,
            self.carrier.incarnation,
        )

    def _report(self, event: MessagePresenceEvent) -> None:
        if self._presence is not None:
            self._presence.append(event)

    @property
    def _now_us(self) -> int:
        return self._journal.now_ms * 1000
