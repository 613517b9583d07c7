"""Gateways of two releases in one site: in which version records and frames between them are written (R5, G14;
vernemq#2488). Pure.

Each gateway says in its heartbeats which versions it reads (`reads` to `reads_to`,
:class:`schemas.members.Heartbeat`). All write in the highest version that all that live read. If there is none, they
are too many releases apart: the process that began last ends, because the others serve clients already.

So a release that writes a new version takes it from `written`, and reads the earlier one as well. In this release there
is one version only.
"""

from typing import NamedTuple

from gateway.members.table import MemberTable
from schemas.members import Heartbeat


class Reads(NamedTuple):
    """The versions that a process reads, from `lowest` to `highest`."""

    lowest: int
    highest: int

    def shares(self, other: "Reads") -> bool:
        """Whether both read some version."""
        return self.lowest <= other.highest and other.lowest <= self.highest


class RecordVersions:
    """For the process `boot`, which reads `own`; `members` are all gateways."""

    def __init__(self, boot: int, own: Reads, members: MemberTable) -> None:
        self._boot, self._own, self._members = boot, own, members

    def written(self, now: float) -> int:
        """The version in which this process writes at `now`, monotonic seconds."""
        records = [one.record for one in self._members if self._members.status(one, now) not in ("gone", "silent")]
        return min([self._own.highest, *(of.reads_to for of in records if self._own.shares(_reads(of)))])

    def misfit(self, name: str, record: Heartbeat) -> str | None:
        """A gateway lives: why this process cannot go on beside it, None if it can, or the other one ends."""
        reads, own = _reads(record), self._own
        if own.shares(reads) or record.state == "gone" or self._boot < record.boot:
            return None
        return (
            f"gateway {name} reads records of the versions {reads.lowest} to {reads.highest}, this one those of "
            f"{own.lowest} to {own.highest}: update a site by one release at a time"
        )


def _reads(record: Heartbeat) -> Reads:
    return Reads(record.reads, record.reads_to)
