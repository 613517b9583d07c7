"""The links that this gateway holds to others: with owners of shards that it keeps warm, and with standbys of its own
(Q6)."""

import asyncio
from collections.abc import Iterator
from typing import Final

from gateway.cluster.lease_table import LeaseTable
from gateway.links.dialled import Wanted
from gateway.links.links import Links
from gateway.members.table import MemberTable
from schemas.leases import Claimant

_LOOK_S: Final = 0.2


def wanted_links(leases: LeaseTable, members: MemberTable, me: Claimant) -> Iterator[Wanted]:
    """One for each gateway whose end this one must notice, or that must notice this one's."""
    names: set[str] = set()
    for lease in (leases[shard] for shard in range(len(leases))):
        if lease.owner == me:
            names.update(lease.standbys)
        elif lease.owner is not None and me.name in lease.standbys:
            names.add(lease.owner.name)
    for name in sorted(names - {me.name}):
        member = members.get(name)
        if member is not None and member.record.links is not None:
            yield Wanted(Claimant(name, member.record.boot), member.record.links)


class MemberLinks:
    """Keeps `links` as leases and members want them, from `start` to `stop`."""

    def __init__(self, links: Links, leases: LeaseTable, members: MemberTable, me: Claimant) -> None:
        self._links, self._leases, self._members, self._me = links, leases, members, me
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> int | None:
        """Opens the listener; its port, None if it is off. Raises SettingsError, OSError."""
        port = await self._links.start()
        self._look()
        return port

    def stop(self) -> None:
        """Others may take this process for dead from then on: see :meth:`gateway.links.links.Links.stop`."""
        if self._timer is not None:
            self._timer.cancel()
        self._links.stop()

    def _look(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)
        self._links.want(wanted_links(self._leases, self._members, self._me))
