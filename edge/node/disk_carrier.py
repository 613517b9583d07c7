"""The carrier's bundles with their ciphertexts on disk: in memory are headers, and what is being sent (M2).

The cores ask for a ciphertext when they encode a bundle. :meth:`DiskCarrier.is_ready` says whether the next ones are in
memory; if not, the driver of the contact loads them, on the file's thread, and goes on. Whoever encodes a bundle
without that waits for the disk.
"""

import asyncio
import sys
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

from bundles.bundle import SIGNATURE_BYTES, Bundle, Header
from edge.client.errors import LifetimeNotAllowed, MessageTooLarge, NotAccepted, StoreDamaged, StoreFull
from edge.mesh.carrier import Carrier, Held
from edge.mesh.contact_frames import Reason
from edge.mesh.errors import ConflictError
from edge.node.batch import StoredRow
from edge.node.journal import Journal

CACHE_BYTES: Final = 8 << 20
AHEAD: Final = 64
"""Ciphertexts that are loaded together, at most."""


class Ciphertexts:
    """Those that are in memory, `cache_bytes` at most and the ones loaded last."""

    def __init__(self, journal: Journal, cache_bytes: int) -> None:
        self._journal, self._cache_bytes = journal, cache_bytes
        self._known: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0
        self._wanted: dict[str, None] = {}
        self._missing: set[str] = set()  # not on disk, though they should be: `get` says so
        self._loading: asyncio.Future[None] | None = None

    def get(self, message_id: str) -> bytes:
        """The ciphertext; waits for the disk if it is not in memory."""
        found = self._known.get(message_id)
        if found is None:
            self._take(self._journal.read_now(lambda store: store.ciphertexts([message_id])), message_id)
            found = self._known.get(message_id)
        if found is None:
            raise StoreDamaged(f"the ciphertext of message {message_id} is missing in the mesh's store")
        return found

    def put(self, message_id: str, ciphertext: bytes) -> None:
        """It has just come and is on disk: likely to be sent soon."""
        self._put(message_id, ciphertext)
        self._evict(keep=1)

    def forget(self, message_id: str) -> None:
        self._wanted.pop(message_id, None)
        self._missing.discard(message_id)
        self._bytes -= len(self._known.pop(message_id, b""))

    def is_ready(self, message_ids: Iterable[str]) -> bool:
        """Whether the first one is in memory; if not, the first few are to be loaded."""
        first = [*islice(message_ids, AHEAD)]
        if first[0] in self._known or first[0] in self._missing:
            return True
        self._wanted.update(dict.fromkeys(first))
        return False

    async def load(self) -> bool:
        """Loads what is wanted; False if that was nothing. Raises StoreError."""
        if self._loading is not None:
            await asyncio.shield(self._loading)
            return True
        wanted, self._wanted = [one for one in self._wanted if one not in self._known], {}
        if not wanted:
            return False
        self._loading = asyncio.ensure_future(self._load(wanted))
        await asyncio.shield(self._loading)
        return True

    async def _load(self, wanted: list[str]) -> None:
        half = self._cache_bytes // 2
        try:
            self._take(await self._journal.read(lambda store: store.ciphertexts(wanted, half)), wanted[0])
        finally:
            self._loading = None

    def _take(self, found: Mapping[str, bytes], needed: str) -> None:
        for message_id, ciphertext in found.items():
            self._put(message_id, ciphertext)
        self._evict(keep=len(found))
        if needed not in found:
            self._missing.add(needed)

    def _put(self, message_id: str, ciphertext: bytes) -> None:
        self.forget(message_id)
        self._known[message_id] = ciphertext
        self._bytes += len(ciphertext)

    def _evict(self, keep: int) -> None:
        while self._bytes > self._cache_bytes and len(self._known) > keep:
            _, gone = self._known.popitem(last=False)
            self._bytes -= len(gone)


class StoredBundle(Bundle):
    """A bundle whose ciphertext is on disk."""

    def __init__(
        self, header: Header, signature: bytes, hops: int, age_s: int, size: int, ciphertexts: Ciphertexts
    ) -> None:
        fields = {"header": header, "signature": signature, "hops": hops, "age_s": age_s}
        vars(self).update(fields, _size=size, _ciphertexts=ciphertexts)

    @property
    def ciphertext(self) -> bytes:
        """From memory, or from the disk."""
        ciphertexts: Ciphertexts = vars(self)["_ciphertexts"]
        return ciphertexts.get(self.message_id)

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
        loaded = Bundle(self.header, self.ciphertext, self.signature, self.hops, self.age_s)
        vars(loaded)["message_id"] = self.message_id
        return loaded

    def carried(self, seconds: int) -> Bundle:
        """As :meth:`Bundle.carried`, with its ciphertext."""
        return self.loaded().carried(seconds)


class DiskCarrier(Carrier):
    """A carrier whose ciphertexts are on disk. Call :meth:`keep_in` first. What leaves memory leaves the disk, with the
    journal's next commit."""

    def keep_in(self, journal: Journal) -> None:
        """Ciphertexts are read from, and removals noted in, this journal."""
        self._journal, self.ciphertexts = journal, Ciphertexts(journal, CACHE_BYTES)

    def is_ready(self, message_ids: Iterable[str]) -> bool:
        return self.ciphertexts.is_ready(message_ids)

    def add(self, bundle: Bundle, copies: int | None, now: float) -> None:
        """As :meth:`Carrier.add`. An Ed25519 signature of the same header is another one if the ciphertext is."""
        held = self.held(bundle.message_id)
        if held is not None and held.bundle.signature != bundle.signature:
            raise ConflictError(f"another bundle of {bundle.header.originator} has the id {bundle.message_id}")
        if held is None:
            super().add(self._on_disk(bundle, bundle.size), copies, now)
        if held is None and bundle.message_id in self:
            self.ciphertexts.put(bundle.message_id, bundle.ciphertext)

    def recovered(self, row: StoredRow) -> None:
        """Holds a bundle that was on disk at the start."""
        bundle = StoredBundle(row.header, row.signature, row.hops, row.age_s, row.size, self.ciphertexts)
        vars(bundle)["message_id"] = row.message_id
        is_whole = row.copies is not None and row.copies == (self.limits.copies or None)  # unlimited: nobody knows
        is_shared = not (is_whole and self._is_own(row.header))
        self._held[row.message_id] = Held(bundle, row.copies, row.since, is_shared=is_shared)
        self._bytes += row.size

    def set_aside(self, header: Header, size: int, message_id: str) -> None:
        """Capacity for a new message of ours, until :meth:`admit` or `end_arrival`. Raises NotAccepted."""
        reason = self._limit_reason(header, size, 0)
        if reason is not None:
            raise self._not_accepted(reason, header, size)
        self.reserve_capacity(message_id, size)

    def reserve_capacity(self, message_id: str, size: int) -> None:
        """As :meth:`set_aside`, for a message that was accepted before."""
        self._arriving[message_id] = size

    def admit(self, bundle: Bundle, since: float) -> None:
        """Holds a message of ours that is on disk now."""
        self.end_arrival(bundle.message_id)
        self.add(bundle, self.limits.copies or None, since)

    def drop(self, message_id: str) -> None:
        """A message of ours is given up."""
        self._remove(message_id)

    def _remove(self, message_id: str) -> None:
        if message_id in self:
            self._journal.change(urgent=False).removed[message_id] = None
        super()._remove(message_id)
        self.ciphertexts.forget(message_id)

    def _on_disk(self, bundle: Bundle, size: int) -> StoredBundle:
        header = _interned(bundle.header)
        stored = StoredBundle(header, bundle.signature, bundle.hops, bundle.age_s, size, self.ciphertexts)
        vars(stored)["message_id"] = bundle.message_id  # where its cached property keeps it
        return stored

    def _not_accepted(self, reason: Reason, header: Header, size: int) -> NotAccepted:
        limits = self.limits
        if reason is Reason.TOO_LARGE:
            return MessageTooLarge(f"the message takes {size:,} bytes, and {limits.bundle_bytes:,} are allowed")
        if reason is Reason.TOO_OLD:
            return LifetimeNotAllowed(
                f"a lifetime of {header.lifetime_s} s is not allowed: it must be from 1 to {limits.lifetime_s}"
            )
        return StoreFull(
            f"the mesh's store is full: it holds {len(self):,} of {limits.stored_bundles:,} messages with "
            f"{self.stored_bytes:,} of {limits.stored_bytes:,} bytes; submit again when some have been delivered"
        )


def signed_size(header_bytes: int, ciphertext_bytes: int) -> int:
    """The size of an encoded bundle."""
    return 6 + 2 + header_bytes + 4 + ciphertext_bytes + SIGNATURE_BYTES


def _interned(header: Header) -> Header:
    """The same header; equal names share their memory."""
    for name in ("originator", "destination"):
        object.__setattr__(header, name, sys.intern(getattr(header, name)))
    return header
