"""Who has a client's shard: the owner by `leases`, where it is by `members`, and waiting for one that serves (G14).

Another gateway *serves* a shard once it has said that its fences are in force (`is_fenced` of the lease). It counts
only if its process is the one that writes heartbeats now: of an earlier process of the same name nobody knows where it
was. Which shards this gateway serves it knows by itself.

Takeovers are short, so clients that come meanwhile wait: at most MOST_WAITING of them, each for `wait_s`. They go on
when a lease changes. A member's address, or a home's start, may follow its lease a little later: a timer looks for
those, and runs only while somebody waits.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from gateway.cluster.lease_table import Lease, LeaseTable
from gateway.host.homes import HomeElsewhere
from gateway.members.table import GatewayMember, MemberTable
from schemas.identity import shard_of
from schemas.leases import HIGHEST_EPOCH, Claimant
from schemas.members import GatewayAddress

WAIT_S: Final = 3.0
"""A takeover takes a second at most, and clients give up a connection after five seconds or more."""

MOST_WAITING: Final = 20_000

_LOOK_S: Final = 0.1
_ANY: Final = -1
"""In place of a shard: a client without an identifier may go to any."""


class Owners:
    """Implements :class:`gateway.host.homes.Homes` for the gateway `me`. `serves`: whether the home of a shard is here
    and takes clients. `now`: monotonic seconds, as in `members`."""

    def __init__(
        self,
        table: LeaseTable,
        members: MemberTable,
        me: Claimant,
        serves: Callable[[int], bool],
        now: Callable[[], float],
        wait_s: float = WAIT_S,
    ) -> None:
        self._table, self._members, self._me, self._serves, self._now = table, members, me, serves, now
        self._wait_s = wait_s
        self._waiting: dict[int, dict[asyncio.Future[None], int]] = {}  # by shard: who waits for which epoch
        self._timer: asyncio.TimerHandle | None = None
        self._next_any = 0

    @property
    def waiting(self) -> int:
        """How many clients wait for an owner of their shard."""
        return sum(len(futures) for futures in self._waiting.values())

    # -- Homes ---------------------------------------------------------------------------------------------------------

    def is_here(self, client: str) -> bool:
        return any(self._is_served_here(lease) for lease in self._leases(self._shard(client)))

    def elsewhere(self, client: str) -> HomeElsewhere | None:
        shard = self._shard(client)
        if shard == _ANY:
            self._next_any = (self._next_any + 1) % len(self._table)
            if self.is_here(client):
                return None
        return next((home for lease in self._leases(shard) if (home := self._home(lease)) is not None), None)

    def epoch(self, client: str) -> int:
        shard = self._shard(client)
        return 0 if shard == _ANY else self._table[shard].epoch

    def is_owner(self, home: HomeElsewhere) -> bool:
        lease = self._table[home.shard]
        return lease.epoch == home.epoch and lease.owner is not None and lease.owner.name == home.gateway

    async def newer(self, client: str, epoch: int) -> HomeElsewhere | None:
        shard, loop = self._shard(client), asyncio.get_running_loop()
        deadline = loop.time() + self._wait_s
        while True:
            if self.epoch(client) >= epoch or shard == _ANY:
                home = self.elsewhere(client)
                if home is not None or self.is_here(client):
                    return home
            if loop.time() >= deadline or not await self._wait(shard, epoch, deadline):
                return None

    def reference(self, client: str, bearer: str) -> str | None:
        member = self._next_home(client)
        address = None if member is None else member.record.addresses.get(bearer)
        return None if address is None else _reference(address)

    # -- for others ----------------------------------------------------------------------------------------------------

    def owner(self, client: str) -> str | None:
        """The gateway that owns the client's shard, this one included, whether it serves it already or not; None if
        nobody does, or its process is not there."""
        lease = self._table[shard_of(client, len(self._table))]
        member = self._member(lease.owner)
        return None if member is None else member.name

    def lease_changed(self, shard: int) -> None:
        """The shard's lease has changed: who waits for it goes on, if somebody serves the shard now."""
        lease = self._table[shard]
        if not self._is_served_here(lease) and self._home(lease) is None:
            return
        for one, at_least in ((shard, lease.epoch), (_ANY, HIGHEST_EPOCH)):
            for future, epoch in self._waiting.get(one, {}).items():
                if epoch <= at_least and not future.done():
                    future.set_result(None)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _shard(self, client: str) -> int:
        return shard_of(client, len(self._table)) if client else _ANY

    def _leases(self, shard: int) -> Iterator[Lease]:
        """Of a shard, or of all of them; their order changes with each client."""
        if shard != _ANY:
            yield self._table[shard]
            return
        for number in range(len(self._table)):
            yield self._table[(self._next_any + number) % len(self._table)]

    def _is_served_here(self, lease: Lease) -> bool:
        return lease.owner == self._me and self._serves(lease.shard)

    def _home(self, lease: Lease) -> HomeElsewhere | None:
        """The home of a shard, if another gateway serves it."""
        if not lease.is_fenced or lease.owner == self._me:
            return None
        member = self._member(lease.owner)
        if member is None or member.record.state == "joining":  # it has yet to say where it is
            return None
        relay = member.record.relay
        address, port = (relay.address, relay.port) if isinstance(relay, GatewayAddress) else ("", 0)
        return HomeElsewhere(member.name, address, port, lease.shard, lease.epoch)

    def _member(self, owner: Claimant | None) -> GatewayMember | None:
        """The owner's heartbeat, if its process is the one that is there."""
        member = None if owner is None else self._members.get(owner.name)
        if member is None or owner is None or member.record.boot != owner.boot or member.record.state == "gone":
            return None
        return member

    def _next_home(self, client: str) -> GatewayMember | None:
        """The owner, if it is another gateway; otherwise the one that is to be the next owner."""
        shard = self._shard(client)
        if shard == _ANY:
            home = self.elsewhere(client)
            return None if home is None else self._members.get(home.gateway)
        lease = self._table[shard]
        if lease.owner is not None and lease.owner != self._me:
            return self._member(lease.owner)
        there = {member.name: member for member in self._members.operational(self._now())}
        names = lease.standbys if lease.successor is None else (lease.successor, *lease.standbys)
        return next((there[name] for name in names if name in there and name != self._me.name), None)

    async def _wait(self, shard: int, epoch: int, deadline: float) -> bool:
        """Returns once the shard is served in `epoch` or later, or at `deadline`. False if too many wait already."""
        if self.waiting >= MOST_WAITING:
            return False
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        waiting = self._waiting.setdefault(shard, {})
        waiting[future] = epoch
        if self._timer is None:
            self._timer = loop.call_later(_LOOK_S, self._look)
        try:
            await asyncio.wait((future,), timeout=deadline - loop.time())
        finally:
            del waiting[future]
            if not waiting and self._waiting.get(shard) is waiting:
                del self._waiting[shard]
        return True

    def _look(self) -> None:
        self._timer = None
        for shard in range(len(self._table)) if _ANY in self._waiting else list(self._waiting):
            self.lease_changed(shard)
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)


def _reference(address: GatewayAddress) -> str:
    """As in MQTT 5.0, 4.11: an IPv6 address in brackets."""
    host = f"[{address.address}]" if ":" in address.address else address.address
    return f"{host}:{address.port}"
