"""What the uplink needs of the agent that holds the bundles; the agent's node implements it, with a durable store."""

from collections.abc import Sequence
from typing import Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from bundles.bundle import Bundle
from bundles.receipt import Role, VerifiedReceipt
from edge.mesh.held import Held, HeldWatcher
from edge.mesh.pending_reports import PendingReport
from schemas.events import MessagePresenceEvent
from schemas.mesh_api import MeshState


class Holder(Protocol):
    """All methods are called on the event loop. What is awaited is durable when it returns."""

    @property
    def name(self) -> str:
        """The agent's."""

    def watch(self, watcher: HeldWatcher) -> None:
        """`watcher` is told at once of everything that is held for the platform or other agents, and from then on of
        each change. What has expired is to be removed soon. `since` goes by the same clock as the deliverer's."""

    async def load(self, held: Sequence[Held]) -> Sequence[Bundle]:
        """The bundles with their ciphertexts and their present age; without those that are gone."""

    def needs_claim(self, held: Held) -> bool:
        """Whether others may have a copy: one has left this agent, or it came from another (M11)."""

    def signers(self, name: str, role: Role) -> Sequence[Ed25519PublicKey]:
        """:data:`bundles.receipt.Signers`."""

    def certificates(self, originator: str) -> Sequence[bytes]:
        """The originator's certificates (DER), for gateways that do not know them."""

    def wanted(self) -> Sequence[str]:
        """The names of recipients to whom messages wait here because their certificates are not known."""

    async def settle(self, receipts: Sequence[VerifiedReceipt]) -> None:
        """The messages are delivered: drops the bundles, keeps the receipts, tells the application of its own.
        Raises StoreError."""

    async def refused(self, bundle: Bundle, reason: str) -> None:
        """The platform will never take the bundle. If it is the agent's own, its application is told and the bundle is
        dropped; another's stays until its lifetime is over, for other ways."""

    async def report(self, events: Sequence[MessagePresenceEvent]) -> None:
        """Logs events for message presence, durably; the deliverer publishes them (M10)."""

    def pending(self, most: int) -> Sequence[PendingReport]:
        """The oldest of the events that are not published."""

    async def published(self, numbers: Sequence[int]) -> None:
        """Message presence has these events."""

    async def take_mesh(self, state: MeshState) -> None:
        """Certificates of gateways and the revocation list, as a gateway gives them, not verified. What is wrong with
        them is logged there; nothing is raised."""

    def set_uplink(self, is_up: bool) -> None:
        """Whether a gateway is reachable now."""
