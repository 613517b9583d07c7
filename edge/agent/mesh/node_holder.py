"""A node as the uplink's holder of bundles: it only translates, each side knows nothing of the other (M7, M8, M11)."""

import logging
from collections.abc import Sequence
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from bundles.bundle import Bundle
from bundles.errors import BundleError
from bundles.receipt import Role, VerifiedReceipt
from edge.mesh.held import Held, HeldWatcher
from edge.mesh.pending_reports import PendingReport
from edge.node.node import MeshNode
from schemas.events import MessagePresenceEvent
from schemas.mesh_api import MeshState

_log: Final = logging.getLogger("waystation.uplink")


class NodeHolder:
    """A :class:`edge.uplink.holder.Holder`; `name` is the agent's. The node is open while the uplink runs."""

    def __init__(self, node: MeshNode, name: str) -> None:
        self._node, self._name = node, name

    @property
    def name(self) -> str:
        return self._name

    def watch(self, watcher: HeldWatcher) -> None:
        self._node.watch(watcher)

    async def load(self, held: Sequence[Held]) -> Sequence[Bundle]:
        return await self._node.load(held)

    def needs_claim(self, held: Held) -> bool:
        return held.is_shared

    def signers(self, name: str, role: Role) -> Sequence[Ed25519PublicKey]:
        return self._node.known.signer_keys(name, role)

    def certificates(self, originator: str) -> Sequence[bytes]:
        return [one.der for one in self._node.known.of(originator)]

    def wanted(self) -> Sequence[str]:
        return self._node.wanted()

    async def settle(self, receipts: Sequence[VerifiedReceipt]) -> None:
        await self._node.settle_verified(receipts)

    async def refused(self, bundle: Bundle, reason: str) -> None:
        await self._node.refuse(bundle.message_id, reason)

    async def report(self, events: Sequence[MessagePresenceEvent]) -> None:
        for event in events:
            self._node.pending.append(event)
        await self._node.durable()

    def pending(self, most: int) -> Sequence[PendingReport]:
        return self._node.pending.batch(most)

    async def published(self, numbers: Sequence[int]) -> None:
        self._node.pending.published(numbers)
        await self._node.durable()

    async def take_mesh(self, state: MeshState) -> None:
        for der in state.certificates:
            try:
                self._node.take_certificate(der)
            except BundleError as error:
                _log.warning("a gateway has sent a certificate that cannot be used: %s", error)
        if state.revocations:
            try:
                self._node.take_revocations(state.revocations)
            except BundleError as error:
                _log.warning("a gateway has sent a revocation list that cannot be used: %s", error)

    def set_uplink(self, is_up: bool) -> None:
        self._node.set_uplink(is_up)
