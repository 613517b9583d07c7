"""A whole home in memory: broker, two routers, spool, clients; any part of it can be held back, stopped or killed."""

import asyncio
import contextlib
import functools
import shutil
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from gateway.errors import SpoolError
from gateway.memory_bus import MemoryBroker, MemoryBus
from gateway.shard.home import Home
from gateway.shard.message_presence import MessagePresence
from gateway.shard.node import Node
from gateway.shard.progress import ProgressReporter
from gateway.shard.retained import RetainedMessages
from gateway.shard.shard_home import ShardHome
from gateway.shard.shard_spool import SpoolThread
from gateway.shard.spool import Spool
from schemas.envelope import HOME_HEADERS, Instruction
from schemas.events import PresenceEvent, ProgressEvent, decode
from schemas.settings import Settings, process_settings
from schemas.topics import Topics
from tests.unit.gateway.shard.home_client import Client
from tests.unit.gateway.shard.reference_router import ReferenceRouter
from tests.unit.gateway.shard.virtual_time import EPOCH

SHARDS, PARTITIONS, LEAD_S = 2, 2, 25.0
TURN_S = 0.05
"""Long enough for everything that needs no timer longer than the routers' delay."""


class InlineSpool(SpoolThread):
    """Runs on the loop, one turn later; a dead one never answers."""

    def __init__(self, shard: int, spool: Spool, all_of_them: "InlineSpools") -> None:
        super().__init__(spool, ThreadPoolExecutor(1))  # which is not used
        self.inline = spool
        self._shard, self._all = shard, all_of_them

    async def call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        await asyncio.sleep(0)
        if method is Spool.commit and self._all.dies_at(self._shard, "before") and not self._all.is_dead:
            self._all.die()
        if self._all.is_dead:
            await asyncio.get_running_loop().create_future()
        result = method(self.inline, *arguments)
        if method is Spool.commit and self._all.dies_at(self._shard, "after"):
            self._all.die()
        await asyncio.sleep(0)
        if self._all.is_dead:
            await asyncio.get_running_loop().create_future()
        return result


class InlineSpools:
    """The spools of all shards. `die` is called before or after (`dies`) the next commit of the shard `dying`; None is
    any."""

    def __init__(self, directory: Path, shards: int) -> None:
        self.files = {n: InlineSpool(n, Spool(str(directory / f"{n}.sqlite")), self) for n in range(shards)}
        self.is_dead = False
        self.die: Callable[[], None] = lambda: None
        self.dies: str | None = None
        self.dying: int | None = None

    def dies_at(self, shard: int, when: str) -> bool:
        return self.dies == when and self.dying in (None, shard)

    def fill_disk(self) -> None:
        """The files may not grow any more: SQLite says that the disk is full."""
        for file in self.files.values():
            [(pages,)] = file.inline._db.execute("PRAGMA page_count").fetchall()
            file.inline._db.execute(f"PRAGMA max_page_count={pages}")

    def free_disk(self) -> None:
        for file in self.files.values():
            file.inline._db.execute("PRAGMA max_page_count=1000000000")

    def close(self) -> None:
        self.is_dead = True
        for file in self.files.values():
            file.close()


@functools.cache
def _loaded(environment: frozenset[tuple[str, str]]) -> Settings:
    """Homes start thousands of times with the same few environments."""
    return process_settings(dict(environment))


class HomeHarness:
    """Everything around one home. Times are virtual."""

    def __init__(self, directory: Path, **limits: int | str) -> None:
        self._loop = asyncio.get_running_loop()
        self.spool_directory = directory / "spool"
        self.limits = limits
        self.environment: dict[str, str] = {}
        self.earlier: Path | None = None
        self.topics = Topics("")
        self.broker = MemoryBroker(self.clock)
        lead_ms = int(LEAD_S * 1000)
        self.active, self.backup = (
            ReferenceRouter(name, self.broker, self.topics, SHARDS, PARTITIONS, lead_ms)
            for name in ("active", "backup")
        )
        self.backup.delay_s = 0.004
        self.fatal: list[Exception] = []
        self.clients: list[Client] = []
        self.bus: MemoryBus
        self.home: Home
        self.node: Node
        self.spool: InlineSpools
        self.is_up = False

    def clock(self) -> float:
        return EPOCH + self._loop.time()

    def loop_time(self) -> float:
        """The clock that never goes back."""
        return self._loop.time()

    def settings(self) -> Settings:
        settings = _loaded(frozenset({"WAYSTATION_KAFKA__SHARDS": str(SHARDS), **self.environment}.items()))
        limits = msgspec.structs.replace(settings.gateway.limits, **self.limits)
        return msgspec.structs.replace(settings, gateway=msgspec.structs.replace(settings.gateway, limits=limits))

    async def start(self) -> "HomeHarness":
        """A new home over the same broker and the same spool files."""
        settings, bus = self.settings(), MemoryBus(self.broker, self._loop)
        self.bus, self.spool = bus, InlineSpools(self.spool_directory, SHARDS)
        self.spool.die = self.crash
        self.node = self.make_node(settings, bus)
        self.home = Home(self.node, self.spool.files, self.earlier)
        bus.start(self.home.records)
        await self.home.start()
        self.is_up = True
        return self

    def make_node(self, settings: Settings, bus: MemoryBus) -> Node:
        """What the homes of one gateway share."""
        reporter = ProgressReporter(bus, self.topics.progress, PARTITIONS, lambda error: self.fatal.append(error))
        counts = Counter[str]()
        return Node(
            settings=settings,
            topics=self.topics,
            bus=bus,
            clock=self.clock,
            reporter=reporter,
            retained=RetainedMessages(
                settings.gateway.limits.retained_messages, settings.gateway.limits.retained_bytes, SHARDS
            ),
            message_presence=MessagePresence(
                bus,
                self.topics.message_presence,
                settings.kafka.ingress_partitions,
                settings.gateway.limits.message_presences,
                counts,
            ),
            on_fatal=self.fatal.append,
            counts=counts,
        )

    def crash(self, stored: int = 0) -> None:
        """kill -9 of the gateway: connections break, nothing of it happens any more."""
        if not self.is_up:
            return
        self.is_up = False
        for client in self.clients:
            client.link = None
        self.bus.crash(stored)
        self.spool.close()

    def change_disk(self, disk: str) -> None:
        """While it is down: the files are `lost`, or become those of the crash before (`old`); or they are `kept`."""
        present, before = self.spool_directory, self.spool_directory.with_name("before")
        now = present.with_name("now")
        shutil.copytree(present, now)
        if disk != "kept":
            shutil.rmtree(present)
        if disk == "old" and before.exists():
            shutil.copytree(before, present)
        shutil.rmtree(before, ignore_errors=True)
        now.rename(before)

    async def restart(self) -> None:
        self.crash()
        await self.start()

    async def stop(self) -> None:
        """An orderly end, as gateway.app does it."""
        for client in self.clients:
            if client.link is not None:
                client.lose("server_shutting_down")
        with contextlib.suppress(TimeoutError, SpoolError):
            await asyncio.wait_for(self.home.stop(), 10)
        self.crash(stored=1_000)

    async def client(self, name: str, **options: Any) -> "Client":
        """A client that is connected."""
        client = Client(self, name, **options)
        self.clients.append(client)
        await client.connect()
        return client

    def events(self) -> list[ProgressEvent]:
        """All of `progress`."""
        found = [self.broker.partitions[self.topics.progress, p] for p in range(PARTITIONS)]
        return [decode(ProgressEvent, record.value() or b"") for records in found for record in records]

    def presence(self, client: str) -> list[PresenceEvent]:
        found = [self.broker.partitions[self.topics.presence, p] for p in range(PARTITIONS)]
        events = [decode(PresenceEvent, record.value() or b"") for records in found for record in records]
        return sorted((e for e in events if e.client == client), key=lambda event: (event.epoch, event.seq))

    def published(self) -> dict[str, tuple[int, int]]:
        """Message ids on `ingress` and their places."""
        found = [self.broker.partitions[self.topics.ingress, p] for p in range(PARTITIONS)]
        return {
            (record.headers() or [])[0][1].decode(): (record.partition(), record.offset())
            for records in found
            for record in records
        }

    def relinquished(self, payload: bytes | None = None) -> set[tuple[str, str, int | None]]:
        """(message id, scope, number) of finished instructions; only those of messages with `payload`."""
        ids = self.ids_of(payload)
        return {(e.id, e.scope, e.number) for e in self.events() if e.kind == "relinquish" and e.id in ids}

    def instructions(self, payload: bytes | None = None) -> set[tuple[str, str, int | None]]:
        """(message id, scope, number) on `egress`, copies once."""
        ids, found = self.ids_of(payload), set()
        for shard in range(SHARDS):
            for record in self.broker.partitions[self.topics.egress, shard]:
                headers = record.headers() or []
                if headers[0][0] in HOME_HEADERS:
                    continue
                instruction = Instruction.decode(headers[4][1])
                if headers[0][1].decode() in ids:
                    found.add((headers[0][1].decode(), instruction.scope, instruction.number))
        return found

    def ids_of(self, payload: bytes | None) -> set[str]:
        found = [self.broker.partitions[self.topics.ingress, p] for p in range(PARTITIONS)]
        return {
            (record.headers() or [])[0][1].decode()
            for records in found
            for record in records
            if payload is None or record.value() == payload
        }

    def outcomes(self, client: str) -> list[str]:
        return [d.outcome for e in self.events() for d in e.deliveries if d.client == client]

    def spool_rows(self) -> int:
        """Deliveries that wait in the spools' files."""
        spools = [Spool(str(self.spool_directory / f"{shard}.sqlite")) for shard in range(SHARDS)]
        return sum(rows for spool in spools for rows, _ in spool.backlogs().values())

    def shard_of(self, client: str) -> ShardHome:
        """The home of a client's shard."""
        return self.home.home_of(client)

    @property
    def is_reading(self) -> bool:
        """Whether some shard reads `ingress`."""
        return any(home.catch_up.is_reading for home in self.home.shards.values())

    @property
    def held_back(self) -> int:
        """How many direct deliveries wait."""
        return sum(shard.order.waiting.records for shard in self.home.states)

    @property
    def is_spool_full(self) -> bool:
        """Whether too much waits for a spool."""
        return any(home.spool.outage.is_full for home in self.home.shards.values())

    def completed(self) -> set[str]:
        """Message ids that are complete: all instructions of one scope relinquished, or nobody wanted them (R4, R7)."""
        numbers: dict[tuple[str, str], set[int]] = {}
        limits: dict[tuple[str, str], int] = {}
        for event in self.events():
            if event.kind == "outcome":
                continue
            place = (event.id, event.scope)
            if event.limit is not None:
                limits[place] = event.limit
            if event.number is not None:
                numbers.setdefault(place, set()).add(event.number)
        return {place[0] for place, limit in limits.items() if len(numbers.get(place, ())) == limit}


async def turn(seconds: float = TURN_S) -> None:
    """Lets things happen."""
    await asyncio.sleep(seconds)
