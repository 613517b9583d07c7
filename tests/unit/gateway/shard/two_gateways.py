"""Two gateways over one broker in memory, each with the homes of some shards; shards move, and gateways are killed."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from gateway.errors import NotAdmitted
from gateway.memory_bus import MemoryBus
from gateway.shard.arrivals import Arrival
from gateway.shard.home import Home
from gateway.shard.link import Link
from gateway.shard.session_values import SessionValues
from gateway.shard.shard_home import Attached
from gateway.shard.shard_spool import SpoolThread
from gateway.shard.spool import Spool
from gateway.shard.spool_files import OpenedFiles
from mqtt.codes import ReasonCode
from schemas.identity import shard_of
from tests.unit.gateway.shard.home_client import Client
from tests.unit.gateway.shard.home_harness import SHARDS, HomeHarness, InlineSpool, InlineSpools, turn


def opened(
    files: Mapping[int, SpoolThread], warm: Mapping[int, SessionValues] | None = None
) -> Callable[[], Awaitable[OpenedFiles]]:
    """What opens the spools of shards that are to start, for which these are taken."""

    async def open_files() -> OpenedFiles:
        return OpenedFiles(dict(files), dict(warm or {}), {})

    return open_files


class Gateway:
    """One process, with the homes of its `shards`."""

    def __init__(self, harness: "TwoGateways", directory: Path) -> None:
        self._directory = directory
        self._harness = harness
        self.bus = MemoryBus(harness.broker, asyncio.get_running_loop())
        self.spools = InlineSpools(directory, 0)
        self.node = harness.make_node(harness.settings(), self.bus)
        self.is_up = True
        self.home: Home

    async def start(self, *shards: int) -> "Gateway":
        self.home = Home(self.node, {number: self._spool(number) for number in shards})
        self.bus.start(self.home.records)
        await self.home.start()
        return self

    async def start_shard(self, number: int) -> None:
        started = await self.home.start_shards({number: 0}, opened({number: self._spool(number)}), lambda *_: True)
        for error in started.failed.values():
            raise error

    async def hand_over(self, number: int) -> None:
        await self.home.hand_over(number)
        del self.spools.files[number]

    def kill(self) -> None:
        if not self.is_up:
            return
        self.is_up = False
        self.bus.crash()
        self.spools.close()
        for client in self._harness.clients:
            if client.link is not None and client.attached.home in self.home.shards.values():
                client.link = None

    def _spool(self, number: int) -> InlineSpool:
        spool = InlineSpool(number, Spool(str(self._directory / f"{number}.sqlite")), self.spools)
        self.spools.files[number] = spool
        return spool


async def done_or_killed(work: Coroutine[Any, Any, None], seconds: float, *failures: type[Exception]) -> None:
    """What one of them does while one is killed, which may end with these `failures`. After `seconds` it waits for what
    a killed one will never get: in a process of its own that would be gone. So it is cancelled until it ends, whatever
    it tidies up meanwhile."""
    task = asyncio.ensure_future(work)
    await asyncio.wait({task}, timeout=seconds)
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
    with contextlib.suppress(asyncio.CancelledError, *failures):
        task.result()


class Either:
    """What clients see: whichever gateway has their shard."""

    def __init__(self, gateways: list[Gateway]) -> None:
        self._gateways = gateways

    async def attach(self, arrival: Arrival, link: Link) -> Attached:
        number = shard_of(arrival.client, SHARDS)
        for gateway in self._gateways:
            if gateway.is_up and number in gateway.home.shards:
                return await gateway.home.attach(arrival, link)
        raise NotAdmitted(ReasonCode.USE_ANOTHER_SERVER, "nobody has the shard")

    def flush(self) -> None:
        for gateway in self._gateways:
            gateway.node.ready.flush()


class TwoGateways(HomeHarness):
    """`gateways` are those that were ever started; a killed one is followed by another with an empty disk."""

    def __init__(self, directory: Path, **limits: Any) -> None:
        super().__init__(directory, **limits)
        self._path = directory
        self.gateways: list[Gateway] = []

    async def start(self) -> "TwoGateways":
        self.home = Either(self.gateways)  # type: ignore[assignment]
        self.is_up = True
        for number in range(SHARDS):
            await (await self.gateway()).start(number)
        return self

    async def gateway(self) -> Gateway:
        gateway = Gateway(self, self._path / f"gateway{len(self.gateways)}")
        self.gateways.append(gateway)
        return gateway

    def owner(self, number: int) -> Gateway | None:
        """Who has a shard."""
        found = [g for g in self.gateways if g.is_up and hasattr(g, "home") and number in g.home.shards]
        assert len(found) <= 1, "two have it"
        return found[0] if found else None

    async def take_up(self) -> None:
        """Whoever is up starts the shards that nobody has; a new gateway, if nobody is."""
        for number in range(SHARDS):
            if self.owner(number) is None:
                up = [g for g in self.gateways if g.is_up]
                await up[0].start_shard(number) if up else await (await self.gateway()).start(number)

    async def reconnect(self) -> None:
        """All clients that have lost their connection connect again."""
        for client in self.clients:
            if client.link is None:
                with contextlib.suppress(TimeoutError, NotAdmitted):
                    await asyncio.wait_for(Client.connect(client), 1)

    def spool_rows(self) -> int:
        spools = [spool.inline for g in self.gateways if g.is_up for spool in g.spools.files.values()]
        return sum(rows for spool in spools for rows, _ in spool.backlogs().values())

    async def settle(self) -> None:
        """Everybody is there, and all that is on its way arrives."""
        await self.take_up()
        for _ in range(3):
            await self.reconnect()
            for client in self.clients:
                client.mute = False
                client.answer_all()
            await turn(20)
