"""Clients of a site of gateways, one for each shard, and what they notice when a gateway is lost or a shard moves."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count, cycle
from typing import Final

from bench.cluster_clients import Beater, Listener
from harness.gateway_site import NAMES, Site, SiteGateway
from schemas.identity import shard_of

WINDOW_S: Final = 3.0
MOVE_WINDOW_S: Final = 0.5
QUIET_S: Final = 1.5
"""So long nothing changes at `leases` before something is measured."""
BALANCE_S: Final = 30.0
LOOK_S: Final = 0.1
COME_S: Final = 20.0


def settle(site: Site) -> None:
    """Returns once all shards are served, each gateway has its share, and nothing changes any more at `leases`; or
    after twice BALANCE_S. Gateways move one shard after the other, with seconds in between: while shares differ, the
    next move is to come."""
    site.all_served()
    ends = time.monotonic() + BALANCE_S
    while time.monotonic() < ends:
        if site.are_balanced():
            break
        time.sleep(LOOK_S)
    ends = time.monotonic() + BALANCE_S
    while time.monotonic() < ends and site.watch.since(time.monotonic() - QUIET_S):
        time.sleep(LOOK_S)


async def within(condition: Callable[[], bool], what: str) -> None:
    """Raises RuntimeError if the condition does not come true in time."""
    ends = time.monotonic() + COME_S
    while not condition():
        if time.monotonic() > ends:
            raise RuntimeError(f"not all {what}")
        await asyncio.sleep(0.01)


class Fleet:
    """A listener for each of the first `listeners` shards, and a beater at each gateway, all at their homes."""

    def __init__(self, site: Site, listeners: int) -> None:
        self._site = site
        self._doors = cycle(site.gateways)
        self.listeners = [Listener(name, self._door_of(name)) for name in names_of(range(listeners), site.shards)]
        of_beaters = names_of(range(len(NAMES)), site.shards, "beater")
        self.beaters = [Beater(name, number, self._door_of(name)) for number, name in enumerate(of_beaters)]

    def _door_of(self, name: str) -> Callable[[], int]:
        """The home's port if that is up by what is known, else that of the next gateway that is up."""
        shard = self._site.shard_of(name)

        def door() -> int:
            owner = self._site.watch.owners()[shard]
            if owner is not None and self._site.gateways[owner].is_up:
                return self._site.gateways[owner].mqtt
            return next(self._site.gateways[n] for n in self._doors if self._site.gateways[n].is_up).mqtt

        return door

    async def home(self) -> None:
        """Everybody connects to its home, which may have moved."""
        for client in (*self.listeners, *self.beaters):
            before = client.connections
            client.drop()
            while client.connections == before:
                await asyncio.sleep(0.01)

    async def quiet(self) -> float:
        """The longest silence of a listener while nothing happens, ms."""
        began = time.monotonic()
        await asyncio.sleep(WINDOW_S)
        everybody = {beater.number for beater in self.beaters}
        return self._silence_ms(self.listeners, began, everybody)

    async def takeover(self, strike: Callable[[SiteGateway], None]) -> dict[str, float]:
        """A gateway is lost. Milliseconds: `owner_ms`, `serving_ms`, `client_ms`, `others_ms`. Afterwards all are there
        again, and everybody is at home."""
        site = self._site
        victim = site.owner_of(self.listeners[0].name)
        lost = {shard for shard, name in enumerate(site.watch.owners()) if name == victim.gateway_name}
        hit = [listener for listener in self.listeners if site.shard_of(listener.name) in lost]
        others = [listener for listener in self.listeners if listener not in hit]
        beating = {beater.number for beater in self.beaters if site.shard_of(beater.name) not in lost}
        connections = {listener.name: listener.connections for listener in hit}
        began = time.monotonic()
        strike(victim)
        if not victim.ended():
            for client in (*hit, *(beater for beater in self.beaters if beater.number not in beating)):
                client.drop()
        await asyncio.to_thread(site.all_served)
        await within(
            lambda: all(one.has_got_since(began, connections[one.name]) for one in hit),
            "clients of the lost gateway are back",
        )
        await asyncio.sleep(max(0.0, began + WINDOW_S - time.monotonic()))
        found = {
            "owner_ms": self._all_at(began, lost, victim, is_served=False),
            "serving_ms": self._all_at(began, lost, victim, is_served=True),
            "client_ms": 1000 * max(one.next_after(began, connections[one.name]) for one in hit),
            "others_ms": self._silence_ms(others, began, beating) if others and beating else 0.0,
        }
        if victim.ended():
            await asyncio.to_thread(site.start, victim.gateway_name)
        else:
            victim.wake()
        await asyncio.to_thread(settle, site)
        await self.home()
        return found

    async def move(self) -> float:
        """A shard is moved in order; the longest silence of its listener, ms."""
        site, listener = self._site, self.listeners[0]
        shard = site.shard_of(listener.name)
        owner = site.owner(shard)
        to = next(gateway for gateway in site.up if gateway is not owner)
        began = time.monotonic()
        await asyncio.to_thread(site.moved, shard, to.gateway_name)
        await asyncio.sleep(MOVE_WINDOW_S)
        silence_ms = self._silence_ms([listener], began, {beater.number for beater in self.beaters})
        await asyncio.to_thread(settle, site)
        await self.home()
        return silence_ms

    def _all_at(self, began: float, shards: set[int], victim: SiteGateway, *, is_served: bool) -> float:
        """Milliseconds until the log gave the last of these shards to another gateway, or said that it is served."""
        first: dict[int, float] = {}
        for change in self._site.watch.since(began):
            lease = change.lease
            is_another = lease.owner is not None and lease.owner.name != victim.gateway_name
            if is_another and (lease.is_fenced or not is_served):
                first.setdefault(lease.shard, change.at)
        return 1000 * (max(first[shard] for shard in shards) - began)

    def _silence_ms(self, listeners: list[Listener], began: float, beaters: set[int]) -> float:
        ended = time.monotonic()
        return 1000 * max(listener.silence_s(began, ended, beaters) for listener in listeners)


@asynccontextmanager
async def fleet(site: Site, listeners: int | None = None) -> AsyncIterator[Fleet]:
    """With a listener for each shard if `listeners` does not say how many."""
    clients = Fleet(site, site.shards if listeners is None else listeners)
    try:
        for client in (*clients.listeners, *clients.beaters):
            await client.come()
        await asyncio.sleep(QUIET_S)
        await clients.home()
        yield clients
    finally:
        for client in (*clients.listeners, *clients.beaters):
            await client.leave()


def names_of(shards: range, of: int, word: str = "listener") -> list[str]:
    """A client's name for each of these shards."""
    return [next(name for n in count() if shard_of(name := f"{word}-{n}", of) == shard) for shard in shards]
