"""What the uplink needs of an agent that takes along what waits for devices that are away; beside
:class:`edge.uplink.holder.Holder`, and of the same agent."""

from collections.abc import Sequence
from typing import Protocol

from bundles.bundle import Bundle
from bundles.receipt import Receipt


class CarryHolder(Protocol):
    """All methods are called on the event loop. What is awaited is durable when it returns."""

    def devices(self) -> Sequence[str]:
        """The names of agents that this one has a contact with or has met lately, the likeliest to be met first."""

    async def learn(self, certificates: Sequence[bytes]) -> None:
        """Certificates (DER) of originators, as a gateway gives them, not verified. What is wrong with them is logged
        there; nothing is raised."""

    async def carry(self, bundle: Bundle) -> bool:
        """Holds a bundle for its recipient, not verified yet. True once it is on disk, or will not be carried;
        False if there is no capacity for it now: it is to be asked for again."""

    def receipts_after(self, number: int, most: int) -> tuple[Sequence[Receipt], int]:
        """Recipients' receipts that the agent has learnt after the receipt `number`, the oldest first, and the number
        of the last one that was looked at. 0 is before the first; after a restart they may have other numbers."""

    def certificates(self, originator: str) -> Sequence[bytes]:
        """The certificates (DER) of a name, for gateways that do not know them."""
