"""Where clients have their homes, as far as a host must know it: here, or at which other gateway (G14)."""

from typing import NamedTuple, Protocol


class HomeElsewhere(NamedTuple):
    """The gateway that has a client's shard: its name, and where it takes relayed connections. `epoch`: of the shard's
    ownership; it grows with each owner."""

    gateway: str
    address: str
    port: int
    shard: int
    epoch: int


class Homes(Protocol):
    """The present owners of all shards."""

    def elsewhere(self, client: str) -> HomeElsewhere | None:
        """Who has the client's shard; None if this gateway has it, or nobody known does."""
        ...

    def epoch(self, client: str) -> int:
        """The epoch of the client's shard, as far as this gateway knows."""
        ...

    async def newer(self, client: str, epoch: int) -> HomeElsewhere | None:
        """As `elsewhere`, once the client's shard has at least `epoch`, or after a while."""
        ...
