"""The receipts that a carrier has, and which of them each peer still lacks.

They are numbered as they come. For each peer the number is remembered up to which it has them all, so at each contact
only the new ones are sent. A peer whose store was lost has another incarnation, and gets all again.

There are as many as bundles were delivered, up to 100,000. What decides about a bundle or an offer is in memory: the
message's id, the role, who signed, and where it came from, in about 50 bytes. The receipts themselves, which are only
read to send them, are where :class:`EncodedReceipts` says: a node has them on disk.
"""

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from bundles import receipt as receipt_format
from bundles.bundle import Header
from bundles.id_table import IdTable, raw_id, text_id
from bundles.receipt import Receipt, Role
from bundles.wire import ID_BYTES
from edge.mesh.known_to_peers import OURS, KnownToPeers, Peer

__all__ = ["OURS", "EncodedReceipts", "KnownReceipt", "KnownReceipts", "Peer"]

T = TypeVar("T")
_FORGOTTEN_SHARE: Final = 50
"""Of many receipts a fiftieth is forgotten at once: what is left is then numbered anew."""
SIGNER_SHARE: Final = 8
"""A recipient that has signed more than an eighth of them gives way first."""
_ROLES: Final = {int(role): role for role in Role}
_GONE: Final = 0
_DIGEST: Final = 0xFFFF_FFFF


class EncodedReceipts(Protocol):
    """Where receipts are."""

    def put(self, message_id: str, encoded: bytes) -> None:
        """A receipt that is remembered now, in place of another for the message."""

    def get(self, message_ids: Sequence[str]) -> Sequence[bytes]:
        """Those for these messages that are there, in any order. Raises StoreError."""

    def forget(self, message_id: str) -> None:
        """It is not remembered any more."""


class InMemory:
    """All of them in memory: for carriers without a disk."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def put(self, message_id: str, encoded: bytes) -> None:
        self._known[message_id] = encoded

    def get(self, message_ids: Sequence[str]) -> Sequence[bytes]:
        return [self._known[one] for one in message_ids if one in self._known]

    def forget(self, message_id: str) -> None:
        self._known.pop(message_id, None)


class KnownReceipt(msgspec.Struct, gc=False, frozen=True):
    """What is known of a verified receipt; `source`: who brought it."""

    message_id: str
    role: Role
    signer: str
    source: Peer
    number: int

    def settles(self, header: Header) -> bool:
        """As :meth:`bundles.receipt.Receipt.settles`."""
        return receipt_format.settles(self.role, self.signer, header)


class KnownReceipts:
    """At most `most` receipts and `peers_max` peers; the oldest are forgotten first. To forget a receipt early costs
    transmissions, and may cost a second delivery to a gateway; the recipient's memory removes it.

    Any agent may sign as the recipient of messages that nobody knows, without end. So of a recipient with more than
    its share the oldest are forgotten before those of others."""

    def __init__(self, most: int, peers_max: int, encoded: EncodedReceipts | None = None) -> None:
        self._most, self._encoded = most, InMemory() if encoded is None else encoded
        self._complete = KnownToPeers(peers_max)
        self._ids = bytearray()
        self._roles = bytearray()  # _GONE: another receipt is in its place
        self._signers, self._sources, self._digests = array("I"), array("I"), array("I")
        self._numbers = array("Q")  # ascending
        self._signer_names, self._peers = _Names[str](), _Names[Peer]()
        self._table = IdTable(self._id_at)
        self._last = self._count = 0  # the latest number; receipts that are there

    def __len__(self) -> int:
        return self._count

    @property
    def number(self) -> int:
        """Of the latest receipt; 0 if there was none."""
        return self._last

    def keep_in(self, encoded: EncodedReceipts) -> None:
        """The receipts are there from now on. Before the first one only."""
        self._encoded = encoded

    def record(self, message_id: str) -> KnownReceipt | None:
        """What is known of the receipt for a message."""
        at = self._table.find(raw_id(message_id)) if self._count else None
        return None if at is None else self._record_at(at)

    def get(self, message_id: str) -> Receipt | None:
        """The receipt for a message. Raises StoreError."""
        found = self._encoded.get([message_id]) if self.record(message_id) is not None else ()
        return receipt_format.decode(found[0]) if found else None

    def has(self, encoded: bytes) -> bool:
        """Whether this very receipt is known. Raises FormatError."""
        return self._has(raw_id(receipt_format.peek_id(encoded)), encoded)

    def add(self, receipt: Receipt, source: Peer) -> bool:
        """Keeps a verified receipt, in place of another for the message if there is one; False if it is known."""
        raw = raw_id(receipt.message_id)
        if self._has(raw, receipt.encoded):
            return False
        self._encoded.put(receipt.message_id, receipt.encoded)
        self._keep(raw, receipt.encoded, receipt.role, receipt.signer, source)
        return True

    def recovered(self, receipt: Receipt) -> None:
        """Keeps one that was stored."""
        self._keep(raw_id(receipt.message_id), receipt.encoded, receipt.role, receipt.signer, OURS)

    def signers_after(self, number: int, peer: Peer) -> list[str]:
        """Who signed those later than `number`, without what the peer itself has sent."""
        first, but = self._after(number), self._peers.number(peer)
        return [
            self._signer_names[self._signers[at]]
            for at in {self._signers[at]: at for at in self._others(first, but)}.values()
        ]

    def ids_after(self, number: int, peer: Peer) -> Iterator[tuple[int, str]]:
        """The numbers and messages of those later than `number`, without what the peer itself has sent. What is
        forgotten or added meanwhile is passed over or found."""
        while (at := self._after(number)) < len(self._numbers):
            number = self._numbers[at]
            if self._roles[at] != _GONE and self._peers.number(peer) != self._sources[at]:
                yield number, text_id(self._id_at(at))

    def encoded(self, message_ids: Sequence[str]) -> Sequence[bytes]:
        """The receipts for these messages, without those that are forgotten, in any order. Raises StoreError."""
        return self._encoded.get(message_ids)

    def numbered(self, number: int, most: int) -> list[KnownReceipt]:
        """The oldest ones later than `number`, at most `most`."""
        found: list[KnownReceipt] = []
        for at in range(self._after(number), len(self._roles)):
            if len(found) == most:
                break
            if self._roles[at] != _GONE:
                found.append(self._record_at(at))
        return found

    def complete_up_to(self, peer: Peer) -> int:
        """The number up to which the peer has all of them."""
        return self._complete.complete_up_to(peer)

    def completed(self, peer: Peer, number: int) -> None:
        """The peer has them all up to `number`."""
        self._complete.completed(peer, number)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _has(self, raw: bytes, encoded: bytes) -> bool:
        at = self._table.find(raw)
        return at is not None and self._digests[at] == hash(encoded) & _DIGEST

    def _keep(self, raw: bytes, encoded: bytes, role: Role, signer: str, source: Peer) -> None:
        at = self._table.find(raw)
        if at is not None:
            self._roles[at] = _GONE
            self._count -= 1
        self._ids += raw
        self._roles.append(role)
        self._signers.append(self._signer_names.add(signer))
        self._sources.append(self._peers.add(source))
        self._digests.append(hash(encoded) & _DIGEST)
        self._last += 1
        self._numbers.append(self._last)
        self._count += 1
        if len(self._roles) > self._most:
            self._forget(max(1, self._most // _FORGOTTEN_SHARE))
        elif not self._table.add(raw, len(self._roles) - 1):
            self._rebuild()

    def _forget(self, count: int) -> None:
        """Makes so many places free: those whose receipt was replaced, and then those of the oldest."""
        gone = {at for at, role in enumerate(self._roles) if role == _GONE}
        oldest = self._oldest(count - len(gone))
        for at in oldest:
            self._encoded.forget(text_id(self._id_at(at)))
        self._count -= len(oldest)
        kept = [at for at in range(len(self._roles)) if at not in gone and at not in oldest]
        self._ids = bytearray(b"".join(self._id_at(at) for at in kept))
        self._roles = bytearray(self._roles[at] for at in kept)
        self._signers, self._sources, self._digests = (
            array("I", (column[at] for at in kept)) for column in (self._signers, self._sources, self._digests)
        )
        self._numbers = array("Q", (self._numbers[at] for at in kept))
        self._rebuild()

    def _oldest(self, count: int) -> set[int]:
        """The oldest of recipients that have more than their share, and then the oldest of all."""
        roles, signers = self._roles, self._signers
        of_recipients = Counter(signers[at] for at, role in enumerate(roles) if role == Role.RECIPIENT)
        share = max(1, self._most // SIGNER_SHARE)
        excess = {signer: number - share for signer, number in of_recipients.items() if number > share}
        found: set[int] = set()
        for at, role in enumerate(roles if excess else ()):
            if len(found) >= count:
                break
            if role == Role.RECIPIENT and excess.get(signers[at], 0) > 0:
                excess[signers[at]] -= 1
                found.add(at)
        for at, role in enumerate(roles):
            if len(found) >= count:
                break
            if role != _GONE:
                found.add(at)
        return found

    def _rebuild(self) -> None:
        self._table.rebuild(at for at, role in enumerate(self._roles) if role != _GONE)
        self._signers, self._sources = self._signer_names.used(self._signers), self._peers.used(self._sources)

    def _others(self, first: int, but: int | None) -> Iterator[int]:
        return (at for at in range(first, len(self._roles)) if self._roles[at] != _GONE and self._sources[at] != but)

    def _after(self, number: int) -> int:
        """The position of the first later one."""
        return bisect_right(self._numbers, number)

    def _id_at(self, at: int) -> bytes:
        return b"" if self._roles[at] == _GONE else bytes(self._ids[ID_BYTES * at : ID_BYTES * (at + 1)])

    def _record_at(self, at: int) -> KnownReceipt:
        signer, source = self._signer_names[self._signers[at]], self._peers[self._sources[at]]
        role, number = _ROLES[self._roles[at]], self._numbers[at]
        return KnownReceipt(text_id(self._id_at(at)), role, signer, source, number)


class _Names(Generic[T]):
    """Numbers for what many receipts have in common."""

    def __init__(self) -> None:
        self._names: list[T] = []
        self._numbers: dict[T, int] = {}

    def __getitem__(self, number: int) -> T:
        return self._names[number]

    def number(self, name: T) -> int | None:
        """The number of a name that is there."""
        return self._numbers.get(name)

    def add(self, name: T) -> int:
        """Its number, perhaps a new one."""
        found = self._numbers.setdefault(name, len(self._names))
        if found == len(self._names):
            self._names.append(name)
        return found

    def used(self, numbers: "array[int]") -> "array[int]":
        """Forgets the names that are not among these; the numbers as they are afterwards."""
        if len(self._names) <= 2 or len(set(numbers)) == len(self._names):
            return numbers
        old, self._names, self._numbers = self._names, [], {}
        return array("I", (self.add(old[one]) for one in numbers))
