"""What operators can see of the cluster, and ask of it, at one gateway (G6, Q9).

The admin API and the console know only this; the gateway's part of the cluster implements it.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from gateway.cluster.lease_table import Lease


class ShardPlace(NamedTuple):
    """A shard as this gateway knows it. `phase`: of its home here (:mod:`gateway.cluster.lease_keeper`)."""

    lease: Lease
    phase: str


class ClusterControl(Protocol):
    """The cluster, seen from one of its gateways."""

    @property
    def name(self) -> str:
        """This gateway's."""
        ...

    def shards(self) -> Sequence[ShardPlace]:
        """All shards, by number."""
        ...

    def move(self, shard: int, to: str) -> str:
        """Moves a shard of this gateway to the member `to`. Returns why it does not, "" if it has begun: then the lease
        says how it went on."""
        ...

    def drain(self) -> None:
        """Gives up all shards of this gateway, and takes none any more."""
        ...
