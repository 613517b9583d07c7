"""The parts of a node that hold what is in its file, wired and filled at the start."""

from collections.abc import Callable
from typing import Final, Protocol

from bundles.bundle import Bundle
from bundles.certificates import Authority
from bundles.identity import Identity
from bundles.known_certificates import KnownCertificates
from edge.mesh.held import Held
from edge.node.arrivals import Arrivals
from edge.node.at_platform import AtPlatform
from edge.node.batch import InboxRow, NoticeRow, Recovered
from edge.node.certificates import Certificates
from edge.node.disk_carrier import DiskCarrier
from edge.node.durable_reports import DurableReports
from edge.node.hand_over import HandOver
from edge.node.journal import Journal
from edge.node.settings import MeshSettings, limits
from edge.node.submissions import Submissions
from edge.reconnect import FullJitter

ROWS: Final = 100
ROW_BYTES: Final = 4 << 20
"""What is read at once of what waits for the application."""


class Owner(Protocol):
    """The node, as its parts see it."""

    def on_held(self, bundle: Bundle) -> None: ...
    def on_certificate(self) -> None: ...
    def on_revocations(self) -> None: ...
    async def give_envelope(self, row: InboxRow) -> None: ...
    async def give_notice(self, row: NoticeRow) -> None: ...


class Parts:
    """`found`: what the journal has found in its file. Raises BundleError if that is of another authority."""

    def __init__(
        self,
        settings: MeshSettings,
        journal: Journal,
        found: Recovered,
        authority: Authority,
        wall_s: Callable[[], float],
        identity: Callable[[], Identity],
        owner: Owner,
    ) -> None:
        name = self._name = journal.name
        known = self.known = KnownCertificates(authority, wall_s, most=settings.certificates, kept=(name,))
        self.certificates = Certificates(known, journal, owner.on_certificate, owner.on_revocations)
        self.certificates.recover(found.certificates, found.revocations)
        carrier = self.carrier = DiskCarrier(
            *(name, journal.incarnation, known.originator_keys, known.signer_keys, limits(settings)), certificates=known
        )
        at_platform = AtPlatform(settings.lifetime_s)
        at_platform.recover(found.at_platform)
        carrier.keep_in(journal, found.records, found.receipts, at_platform)
        read = journal.read
        self.envelopes = HandOver[InboxRow](
            "a message",
            lambda row: row.number,
            lambda after: read(lambda store: store.inbox(after, ROWS, ROW_BYTES)),
            owner.give_envelope,
            lambda row: self.arrivals.handed_over(row),
            FullJitter(1.0, 60.0),
        )
        self.notices = HandOver[NoticeRow](
            "news of a message",
            lambda row: row.number,
            lambda after: read(lambda store: store.notices(after, ROWS)),
            owner.give_notice,
            lambda row: journal.change(urgent=False).told.append(row.number),
            FullJitter(1.0, 60.0),
        )
        self.submissions = Submissions(
            *(journal, carrier, at_platform, known, identity, owner.on_held, self.notices.wake)
        )
        self.arrivals = Arrivals(
            *(journal, carrier, known, identity, self.envelopes.wake),
            messages_max=settings.inbox_messages,
            bytes_max=settings.inbox_bytes,
        )
        self.pending = DurableReports(journal, settings.reports, found.reports)
        self._recover(journal, found)
        self.certificates.take(identity().certificate.der)

    def to_ourselves(self) -> list[Held]:
        """What this agent has sent to itself, and has not taken yet."""
        return [one for one in self.carrier.all_held() if one.recipient == self._name]

    def _recover(self, journal: Journal, found: Recovered) -> None:
        own = []
        for held in found.bundles:
            self.carrier.recovered(held)
            if (held.common.originator, held.common.incarnation) == (self._name, journal.incarnation):
                own.append(held)
        self.submissions.recover(own, found.unsealed, found.last_notice)
        self.arrivals.recover(found.seen, found.inbox)
