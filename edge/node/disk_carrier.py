"""The carrier's bundles with their ciphertexts on disk: in memory are small records, and what is being sent (M2).

The cores ask for a ciphertext when they encode a bundle. :meth:`DiskCarrier.is_ready` says whether the next ones are in
memory; if not, the driver of the contact loads them, on the file's thread, and goes on. Whoever encodes a bundle
without that waits for the disk.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

from bundles.bundle import SIGNATURE_BYTES, Bundle, Header
from bundles.receipt import Receipt
from edge.client.errors import LifetimeNotAllowed, MessageTooLarge, NotAccepted, StoreDamaged, StoreFull
from edge.mesh.carrier import Carrier
from edge.mesh.contact_frames import Reason
from edge.mesh.errors import ConflictError
from edge.mesh.held import Held, HeldById
from edge.mesh.known_receipts import KnownReceipts
from edge.node.at_platform import AtPlatform
from edge.node.disk_receipts import DiskReceipts
from edge.node.held_on_disk import DiskHeld, HeldOnDisk, Sealed
from edge.node.held_table import HeldTable
from edge.node.journal import Journal

CACHE_BYTES: Final = 8 << 20
AHEAD: Final = 64
"""Ciphertexts that are loaded together, at most."""


class Ciphertexts:
    """Those that are in memory, `cache_bytes` at most and the ones loaded last."""

    def __init__(self, journal: Journal, cache_bytes: int) -> None:
        self._journal, self._cache_bytes = journal, cache_bytes
        self._known: OrderedDict[str, Sealed] = OrderedDict()
        self._bytes = 0
        self._wanted: dict[str, None] = {}
        self._missing: set[str] = set()  # not on disk, though they should be: `get` says so
        self._loading: asyncio.Future[None] | None = None

    def get(self, message_id: str) -> Sealed:
        """The ciphertext and the signature; waits for the disk if it is not in memory."""
        found = self._known.get(message_id)
        if found is None:
            self._take(self._journal.read_now(lambda store: store.ciphertexts([message_id])), message_id)
            found = self._known.get(message_id)
        if found is None:
            raise StoreDamaged(f"the ciphertext of message {message_id} is missing in the mesh's store")
        return found

    def put(self, message_id: str, sealed: Sealed) -> None:
        """It has just come and is on disk: likely to be sent soon."""
        self._put(message_id, sealed)
        self._evict(keep=1)

    def forget(self, message_id: str) -> None:
        self._wanted.pop(message_id, None)
        self._missing.discard(message_id)
        known = self._known.pop(message_id, None)
        if known is not None:
            self._bytes -= len(known.ciphertext)

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

    def _take(self, found: Mapping[str, Sealed], needed: str) -> None:
        for message_id, sealed in found.items():
            self._put(message_id, sealed)
        self._evict(keep=len(found))
        if needed not in found:
            self._missing.add(needed)

    def _put(self, message_id: str, sealed: Sealed) -> None:
        self.forget(message_id)
        self._known[message_id] = sealed
        self._bytes += len(sealed.ciphertext)

    def _evict(self, keep: int) -> None:
        while self._bytes > self._cache_bytes and len(self._known) > keep:
            _, gone = self._known.popitem(last=False)
            self._bytes -= len(gone.ciphertext)


class DiskCarrier(Carrier):
    """A carrier whose ciphertexts are on disk. Call :meth:`keep_in` first. What leaves memory leaves the disk, with the
    journal's next commit."""

    def keep_in(self, journal: Journal, records: HeldOnDisk, receipts: KnownReceipts, at_platform: AtPlatform) -> None:
        """Ciphertexts and receipts are read from, and removals noted in, this journal; `records` makes what is in
        memory; `receipts`: those that were there at the start; `at_platform`: the messages of which a recipient's
        receipt is still news when a gateway's is known."""
        self._journal, self._records, self.receipts, self._at_platform = journal, records, receipts, at_platform
        receipts.keep_in(DiskReceipts(journal))
        self.ciphertexts = records.parts = Ciphertexts(journal, CACHE_BYTES)

    def is_ready(self, message_ids: Iterable[str]) -> bool:
        return self.ciphertexts.is_ready(message_ids)

    def add(self, bundle: Bundle, copies: int | None, now: float) -> None:
        """As :meth:`Carrier.add`. An Ed25519 signature of the same header is another one if the ciphertext is."""
        held = self.held(bundle.message_id)
        if held is not None and held.bundle.signature != bundle.signature:
            raise ConflictError(f"another bundle of {bundle.header.originator} has the id {bundle.message_id}")
        if held is None:
            super().add(bundle, copies, now)
        if held is None and bundle.message_id in self:
            self.ciphertexts.put(bundle.message_id, Sealed(bundle.ciphertext, bundle.signature))

    def recovered(self, held: DiskHeld) -> None:
        """Holds a bundle that was on disk at the start. If copies are unlimited, nobody knows whether any has left."""
        is_whole = held.copies is not None and held.copies == (self.limits.copies or None)
        is_own = (held.common.originator, held.common.incarnation) == (self.name, self.incarnation)
        if not (is_whole and is_own):
            held.is_shared = True
        self._hold(held.message_id, held)

    def set_aside(self, header: Header, size: int, message_id: str) -> None:
        """Capacity for a new message of ours, until :meth:`admit` or `end_arrival`. Raises NotAccepted."""
        reason = self._own_limit_reason(header, size, 0)
        if reason is not None:
            raise self._not_accepted(reason, header, size)
        self.reserve_capacity(message_id, size)

    def reserve_capacity(self, message_id: str, size: int) -> None:
        """As :meth:`set_aside`, for a message that was accepted before."""
        self._arriving.begin(message_id, size, self._journal.now_s)

    def admit(self, bundle: Bundle, since: float) -> None:
        """Holds a message of ours that is on disk now."""
        self.end_arrival(bundle.message_id)
        self.add(bundle, self.limits.copies or None, since)

    def drop(self, message_id: str) -> None:
        """A message of ours is given up."""
        self._remove(message_id)

    def _is_news(self, receipt: Receipt) -> bool:
        return self._at_platform.is_ended_by(receipt) or super()._is_news(receipt)

    def _remove(self, message_id: str) -> None:
        if message_id in self:
            self._journal.change(urgent=False).removed[message_id] = None
        super()._remove(message_id)
        self.ciphertexts.forget(message_id)

    def _new_table(self) -> HeldById:
        return HeldTable()

    def _record(self, bundle: Bundle, copies: int | None, now: float) -> Held:
        return self._records.of_bundle(bundle, copies, now)

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
