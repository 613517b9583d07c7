"""Where clients have their homes, as far as a host must know it: here, or at which other gateway (G14)."""

from typing import NamedTuple, Protocol


class HomeElsewhere(NamedTuple):
    """The gateway that has a client's shard: its name, and where it takes relayed connections; port 0 if it takes none.
    `epoch`: of the shard's ownership; it grows with each owner."""

    gateway: str
    address: str
    port: int
    shard: int
    epoch: int


class Homes(Protocol):
    """The present owners of all shards. A client "" is one without an identifier: any shard will do."""

    def is_here(self, client: str) -> bool:
        """Whether this gateway serves the client's shard."""
        ...

    def elsewhere(self, client: str) -> HomeElsewhere | None:
        """The other gateway that serves the client's shard; None if this one does, or nobody known."""
        ...

    def epoch(self, client: str) -> int:
        """The epoch of the client's shard, as far as this gateway knows."""
        ...

    async def newer(self, client: str, epoch: int) -> HomeElsewhere | None:
        """As `elsewhere`, once the client's shard has at least `epoch` and somebody serves it, or after a while."""
        ...

    def is_owner(self, home: HomeElsewhere) -> bool:
        """Whether nobody has owned the shard since."""
        ...

    def reference(self, client: str, bearer: str) -> str | None:
        """Where a client that has to leave this gateway finds its home by `bearer` (:data:`schemas.members.BEARERS`),
        as a Server Reference (MQTT 5.0, 4.11); None if that is not known."""
        ...
