"""What one commit of a node's store changes; values, without I/O."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from bundles.bundle import Bundle, Header
from bundles.certificates import Certificate
from bundles.receipt import Receipt
from bundles.seen import Seen, SeenMark, SeenState, Source
from edge.mesh.known_receipts import KnownReceipts
from edge.mesh.pending_reports import PendingReport
from edge.node.at_platform import AtPlatformRow, Changes
from edge.node.held_on_disk import DiskHeld, HeldOnDisk


class Step(NamedTuple):
    """One step of a message's way, for the log (M20); `at_s` by the wall clock."""

    id: str
    at_s: float
    event: str
    detail: str = ""


class BundleRow(NamedTuple):
    """A bundle that is held; see :class:`edge.mesh.held.Held`."""

    bundle: Bundle
    copies: int | None
    since: float


class UnsealedRow(NamedTuple):
    """A message of ours whose recipient's key is not known yet; `size`: of its bundle, once it is sealed."""

    header: Header
    since: float
    size: int
    plaintext: bytes


class InboxRow(NamedTuple):
    """A message that has arrived for the application here. The lifetime in its header is what was left then."""

    number: int
    header: Header
    plaintext: bytes


class NoticeRow(NamedTuple):
    """What the application is to be told of a message of its own. Without a receipt it has failed, for `reason`."""

    number: int
    message_id: str
    receipt: Receipt | None
    reason: str = ""


class Meta(NamedTuple):
    """The node's own numbers, and the clocks at the time of the commit."""

    name: str
    incarnation: int
    last_sequence: int
    clock_s: float
    wall_s: float


@dataclass
class Batch:
    """Changes in memory that are not on disk yet. `added` and `unsealed` are refused if the disk is full; all others
    then wait for a commit that succeeds. `done` is called in order when the batch is on disk, `refused` when what was
    added is not accepted, or nobody knows whether it was. A bundle may be added and removed in one batch, and one that
    was removed be added again (`add`)."""

    added: dict[str, BundleRow] = field(default_factory=dict)
    unsealed: dict[int, UnsealedRow] = field(default_factory=dict)
    accepted: list[Callable[[], None]] = field(default_factory=list)
    refused: list[Callable[[Exception], None]] = field(default_factory=list)
    accepted_steps: list[Step] = field(default_factory=list)
    sealed: dict[int, BundleRow] = field(default_factory=dict)  # in place of the unsealed ones with these sequences
    unsealed_over: list[int] = field(default_factory=list)
    budgets: dict[str, int | None] = field(default_factory=dict)
    removed: dict[str, None] = field(default_factory=dict)
    receipts: list[Receipt] = field(default_factory=list)
    receipts_forgotten: dict[str, None] = field(default_factory=dict)  # before these are added
    at_platform: Changes = field(default_factory=dict)
    taken: dict[Source, Seen] = field(default_factory=dict)
    sequences: list[tuple[Source, int]] = field(default_factory=list)  # of these, that were taken
    forgotten: list[Source] = field(default_factory=list)
    arrived: list[InboxRow] = field(default_factory=list)
    handed_over: list[int] = field(default_factory=list)
    notices: list[NoticeRow] = field(default_factory=list)
    told: list[int] = field(default_factory=list)
    certificates: list[Certificate] = field(default_factory=list)
    revocations: bytes | None = None
    reports: dict[int, PendingReport] = field(default_factory=dict)
    reports_over: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    done: list[Callable[[], None]] = field(default_factory=list)
    seen: list[SeenMark] = field(default_factory=list)  # set when the commit begins
    meta: Meta | None = None  # likewise

    def add(self, message_id: str, row: BundleRow) -> None:
        """A bundle is to be there, also if it was removed before."""
        self.removed.pop(message_id, None)
        self.added[message_id] = row

    def take(self, seen: Seen, header: Header) -> None:
        """`seen` has just taken the message; what it has forgotten for it is forgotten."""
        if forgotten := seen.forgotten():
            self.forgotten += forgotten
            self.sequences = [one for one in self.sequences if one[0] not in forgotten]
        source = header.originator, header.incarnation
        self.taken[source] = seen
        self.sequences.append((source, header.sequence))

    def without_added(self) -> "Batch":
        """What remains to be committed when what was added is refused."""
        return Batch(
            **{name: value for name, value in vars(self).items() if name not in _REFUSABLE and name not in _OF_COMMIT}
        )

    def merge(self, later: "Batch") -> None:
        """Takes in the changes of a later batch."""
        for message_id in later.added:
            self.removed.pop(message_id, None)
        for name, value in vars(later).items():
            mine = getattr(self, name)
            if isinstance(mine, dict):
                mine.update(value)
            elif isinstance(mine, list):
                mine.extend(value)
            elif value is not None:
                setattr(self, name, value)

    def freeze(self, meta: Meta) -> None:
        """The commit begins."""
        self.meta = meta
        marks = (seen.mark(source) for source, seen in self.taken.items())
        self.seen = [mark for mark in marks if mark is not None]


_REFUSABLE = ("added", "unsealed", "accepted", "refused", "accepted_steps")
_OF_COMMIT = ("seen", "meta")


@dataclass
class Recovered:
    """What the store holds at the start; `records` made those of `bundles`. `inbox` and `notices`: how many rows, bytes
    and the last number."""

    meta: Meta
    records: HeldOnDisk
    bundles: list[DiskHeld]
    unsealed: list[UnsealedRow]  # without their plaintext
    receipts: KnownReceipts
    at_platform: list[AtPlatformRow]  # in the order in which they end
    seen: list[SeenState]
    certificates: list[bytes]
    revocations: bytes
    reports: list[PendingReport]
    inbox: tuple[int, int, int]
    last_notice: int
