"""Reports for message presence, on disk until presence has them (M10)."""

from collections.abc import Iterable

from edge.mesh.pending_reports import PendingReport, PendingReports
from edge.node.journal import Journal
from schemas.events import MessagePresenceEvent


class DurableReports(PendingReports):
    """Changes are on disk with the journal's next commit: await :meth:`edge.node.node.MeshNode.durable` before others
    are told of what happened."""

    def __init__(self, journal: Journal, most: int, stored: Iterable[PendingReport]) -> None:
        self._journal = journal
        super().__init__(most, stored)

    def append(self, event: MessagePresenceEvent) -> PendingReport:
        report = super().append(event)
        self._journal.change(urgent=False).reports[report.number] = report
        return report

    def published(self, numbers: Iterable[int]) -> None:
        over = list(numbers)
        super().published(over)
        self._journal.change(urgent=False).reports_over += over
