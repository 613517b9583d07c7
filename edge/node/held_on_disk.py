"""A bundle whose ciphertext and signature are on disk, in about 140 bytes of memory (M2, M19).

An agent may hold 100,000 bundles and has 80 MB, so what is kept of each is small: the numbers of its header and its id
in one byte string, and a reference to what many have in common: originator, destination, kind, lifetime and copy budget
(:class:`Common`). A budget that changes makes it refer to another one. Header and bundle are made when somebody asks
for them, which takes microseconds.
"""

from struct import Struct
from typing import Final, Protocol
from weakref import WeakValueDictionary

import msgspec

from bundles.bundle import Bundle, Header, Kind
from bundles.id_table import raw_id, text_id
from edge.mesh.held import Held
from schemas.identity import INBOX_MARK

_NUMBERS: Final = Struct("<QQQQdIIB")  # sequence, created_ms, low_water, ended_below, since, size, age_s, hops
_SEQUENCE: Final = Struct("<Q")
_AGE: Final = Struct("<dII")  # since, size, age_s
_ID_AT: Final = _NUMBERS.size
_AGE_AT: Final = 32
_CommonKey = tuple[str, int, str, int, int, int | None, int, bool]
HeaderRow = tuple[str, int, int, str, int, int, int, int, int]
"""A header's fields in order."""


class Sealed(msgspec.Struct, frozen=True, gc=False):
    """What is on disk of a bundle."""

    ciphertext: bytes
    signature: bytes


class SealedParts(Protocol):
    """Where they are read."""

    def get(self, message_id: str) -> Sealed:
        """Of a bundle that is held; waits for the disk if need be. Raises StoreError."""


class Common:
    """What bundles have in common; `copies`, `reserved` and `is_shared` are those of :class:`edge.mesh.held.Held`."""

    __slots__ = (
        *("__weakref__", "copies", "destination", "incarnation", "is_shared", "kind", "lifetime_s", "originator"),
        *("owner", "recipient", "reserved"),
    )

    def __init__(self, key: _CommonKey, owner: "HeldOnDisk") -> None:
        self.originator, self.incarnation, self.destination, kind, self.lifetime_s = key[:5]
        self.copies, self.reserved, self.is_shared = key[5:]
        self.kind, self.owner = Kind(kind), owner
        self.recipient = self.destination[len(INBOX_MARK) :] if self.kind is Kind.ENVELOPE else None

    def with_budget(self, copies: int | None, reserved: int, is_shared: bool) -> "Common":
        """The same with another budget."""
        names = self.originator, self.incarnation, self.destination, int(self.kind), self.lifetime_s
        return self.owner.common((*names, copies, reserved, is_shared))


class DiskHeld(msgspec.Struct, Held, gc=False, eq=False):
    """Made by :class:`HeldOnDisk`. Nothing that it refers to leads back to it, so the garbage collector need not look
    at it. `numbers`: those of the header and the bundle, then the id."""

    common: Common
    numbers: bytes

    @property
    def raw_id(self) -> bytes:
        """The message's id."""
        return self.numbers[_ID_AT:]

    @property
    def message_id(self) -> str:
        return text_id(self.numbers[_ID_AT:])

    @property
    def copies(self) -> int | None:
        return self.common.copies

    @copies.setter
    def copies(self, value: int | None) -> None:
        self.common = self.common.with_budget(value, self.common.reserved, self.common.is_shared)

    @property
    def reserved(self) -> int:
        return self.common.reserved

    @reserved.setter
    def reserved(self, value: int) -> None:
        self.common = self.common.with_budget(self.common.copies, value, self.common.is_shared)

    @property
    def is_shared(self) -> bool:
        return self.common.is_shared

    @is_shared.setter
    def is_shared(self, value: bool) -> None:
        self.common = self.common.with_budget(self.common.copies, self.common.reserved, value)

    @property
    def header(self) -> Header:
        common = self.common
        sequence, created_ms, low_water, ended_below, *_ = _NUMBERS.unpack_from(self.numbers)
        return Header(
            *(common.originator, common.incarnation, sequence, common.destination, common.kind),
            *(created_ms, common.lifetime_s, low_water, ended_below),
        )

    @property
    def bundle(self) -> Bundle:
        return StoredBundle(self)

    @property
    def sequence(self) -> int:
        return int(_SEQUENCE.unpack_from(self.numbers)[0])

    @property
    def recipient(self) -> str | None:
        return self.common.recipient

    @property
    def since(self) -> float:
        return float(_AGE.unpack_from(self.numbers, _AGE_AT)[0])

    @property
    def size(self) -> int:
        return int(_AGE.unpack_from(self.numbers, _AGE_AT)[1])

    @property
    def hops(self) -> int:
        return self.numbers[_ID_AT - 1]

    def age_s(self, now: float) -> int:
        since, _, age_s = _AGE.unpack_from(self.numbers, _AGE_AT)
        return int(age_s + max(0, int(now - since)))

    def remaining_s(self, now: float) -> int:
        return max(0, self.common.lifetime_s - self.age_s(now))


class HeldOnDisk:
    """Makes the records; `parts` is to be set before a ciphertext or signature is asked for."""

    def __init__(self) -> None:
        self._common: WeakValueDictionary[_CommonKey, Common] = WeakValueDictionary()
        self.parts: SealedParts | None = None

    def of_bundle(self, bundle: Bundle, copies: int | None, since: float) -> DiskHeld:
        """The record of a bundle that is on disk."""
        row = header_row(bundle.header)
        return self.record(raw_id(bundle.message_id), row, bundle.hops, bundle.age_s, copies, since, bundle.size)

    def record(
        self,
        raw: bytes,
        header: HeaderRow,
        hops: int,
        age_s: int,
        copies: int | None,
        since: float,
        size: int,
    ) -> DiskHeld:
        """The same; `raw`: its id. Raises ValueError for a kind that does not exist."""
        originator, incarnation, sequence, destination, kind, created_ms, lifetime_s, *marks = header
        common = self.common((originator, incarnation, destination, kind, lifetime_s, copies, 0, False))
        return DiskHeld(common, _NUMBERS.pack(sequence, created_ms, *marks, since, size, age_s, hops) + raw)

    def common(self, key: _CommonKey) -> Common:
        """What bundles with these fields share."""
        found = self._common.get(key)
        if found is None:
            found = self._common[key] = Common(key, self)
        return found


class StoredBundle(Bundle):
    """A bundle whose ciphertext and signature are on disk."""

    def __init__(self, held: DiskHeld) -> None:
        *_, size, age_s, hops = _NUMBERS.unpack_from(held.numbers)
        owner = held.common.owner
        vars(self).update(header=held.header, hops=hops, age_s=age_s, _size=size, _owner=owner)
        vars(self)["message_id"] = held.message_id  # where its cached property keeps it

    @property
    def ciphertext(self) -> bytes:
        """From memory, or from the disk."""
        return self._sealed.ciphertext

    @property
    def signature(self) -> bytes:
        """As :attr:`ciphertext`."""
        return self._sealed.signature

    @property
    def signed(self) -> bytes:
        """As :attr:`Bundle.signed`, made anew each time."""
        return self.loaded().signed

    @property
    def size(self) -> int:
        """As :attr:`Bundle.size`."""
        return int(vars(self)["_size"])

    def loaded(self) -> Bundle:
        """The bundle with its ciphertext."""
        return with_parts(self, self._sealed)

    def carried(self, seconds: int) -> Bundle:
        """As :meth:`Bundle.carried`, with its ciphertext."""
        return self.loaded().carried(seconds)

    @property
    def _sealed(self) -> Sealed:
        parts: SealedParts = vars(self)["_owner"].parts
        return parts.get(self.message_id)


def header_row(header: Header) -> HeaderRow:
    """See :data:`HeaderRow`."""
    return (
        *(header.originator, header.incarnation, header.sequence, header.destination, int(header.kind)),
        *(header.created_ms, header.lifetime_s, header.low_water, header.ended_below),
    )


def with_parts(bundle: Bundle, sealed: Sealed) -> Bundle:
    """The bundle with what is on disk."""
    loaded = Bundle(bundle.header, sealed.ciphertext, sealed.signature, bundle.hops, bundle.age_s)
    vars(loaded)["message_id"] = bundle.message_id
    return loaded
