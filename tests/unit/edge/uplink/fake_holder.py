"""A holder of bundles for tests of the uplink, all of it in memory."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from bundles import receipt as receipt_format
from bundles.bundle import Bundle
from bundles.receipt import Receipt, Role, VerifiedReceipt
from edge.mesh.held import Held, HeldWatcher, InMemory
from edge.mesh.pending_reports import PendingReport, PendingReports
from schemas.errors import WaystationError
from schemas.events import MessagePresenceEvent
from schemas.mesh_api import (
    MeshState,
)
from tests.unit.bundles import keys
from tests.unit.edge.uplink.fake_platform import now


class FakeStore(dict[str, Held]):
    """By id; those who watch are told of each change."""

    def __init__(self) -> None:
        super().__init__()
        self.watchers: list[HeldWatcher] = []

    def __setitem__(self, message_id: str, held: Held) -> None:
        super().__setitem__(message_id, held)
        for one in self.watchers:
            one.added(held)

    def __delitem__(self, message_id: str) -> None:
        held = self[message_id]
        super().__delitem__(message_id)
        for one in self.watchers:
            one.removed(held)


class FakeHolder:
    """Everything in memory; a settled message must have a receipt that verifies."""

    def __init__(self, name: str = "a", *, propagated: Iterable[str] = ()) -> None:
        self.name = name
        self.store = FakeStore()
        self.propagated = set(propagated)
        self.reports = PendingReports()
        self.receipts: dict[str, Receipt] = {}
        self.failed: list[tuple[str, str]] = []
        self.uplinks: list[bool] = []
        self.meshes = 0
        self.disk_problem: WaystationError | None = None
        self.strangers: set[str] = set()
        self.missing: list[str] = []

    def hold(self, *bundles: Bundle, since: float = 0.0) -> None:
        for bundle in bundles:
            self.store[bundle.message_id] = InMemory(bundle, 8, since)

    def watch(self, watcher: HeldWatcher) -> None:
        for held in self.store.values():
            watcher.added(held)
        self.store.watchers.append(watcher)

    async def load(self, held: Sequence[Held]) -> Sequence[Bundle]:
        await asyncio.sleep(0.001)
        return [replace(one.bundle, age_s=one.age_s(now())) for one in held if one.message_id in self.store]

    def needs_claim(self, held: Held) -> bool:
        return held.bundle.header.originator != self.name or held.bundle.message_id in self.propagated

    def signers(self, name: str, role: Role) -> Sequence[Ed25519PublicKey]:
        return () if name in self.strangers else keys.signers(name, role)

    def certificates(self, originator: str) -> Sequence[bytes]:
        return [originator.encode()]

    async def settle(self, receipts: Sequence[VerifiedReceipt]) -> None:
        await asyncio.sleep(0.001)
        if self.disk_problem is not None:
            raise self.disk_problem
        for receipt in receipts:
            receipt_format.verify(receipt, keys.signers)
            if receipt.message_id in self.store:
                del self.store[receipt.message_id]
            self.receipts[receipt.message_id] = receipt

    async def refused(self, bundle: Bundle, reason: str) -> None:
        if bundle.header.originator == self.name:
            self.failed.append((bundle.message_id, reason))
            del self.store[bundle.message_id]

    async def report(self, events: Sequence[MessagePresenceEvent]) -> None:
        for event in events:
            self.reports.append(event)

    def pending(self, most: int) -> Sequence[PendingReport]:
        return self.reports.batch(most)

    async def published(self, numbers: Sequence[int]) -> None:
        self.reports.published(numbers)

    def wanted(self) -> Sequence[str]:
        return self.missing

    async def take_mesh(self, state: MeshState) -> None:
        self.meshes += 1
        self.missing = [name for name in self.missing if name.encode() not in state.certificates]
        self.strangers.clear()

    def set_uplink(self, is_up: bool) -> None:
        self.uplinks.append(is_up)
