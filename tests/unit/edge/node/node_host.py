"""Nodes for tests: on disk, with an application that notes what it gets; joined by TLS or in memory, killed at will."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bundles.bundle import Header, Kind
from bundles.certificates import Certificate
from bundles.content import Content
from bundles.identity import Identity
from bundles.receipt import Receipt, Role
from edge.client.errors import DiskFull, StoreFailed
from edge.client.store_clock import DOWN_MOST_S
from edge.node.batch import Batch
from edge.node.bundle_store import BundleStore, StepLog
from edge.node.contact_driver import ContactDriver
from edge.node.node import MeshNode
from edge.node.settings import MeshSettings
from edge.reconnect import FullJitter
from tests.unit.bundles.keys import AUTHORITY, identity

NOW_S = time.time()
LIFETIME_S = 3_600


class KilledStore(BundleStore):
    """Its process is killed at commit number `kill_at`, `before` it or right after it; its disk is full at others."""

    kill_at, before, commits = 0, False, 0
    full_at: range = range(0)

    def commit(self, batch: Batch) -> None:
        self.commits += 1
        if self.commits in self.full_at:
            raise DiskFull("the disk is full")
        is_killed = bool(self.kill_at) and self.commits >= self.kill_at
        if not is_killed or (self.commits == self.kill_at and not self.before):
            super().commit(batch)
        if is_killed:
            raise StoreFailed("killed")


class NodeHost:
    """One agent's application and the directory of its node. `given`, `receipts`, `failed`: what it was told, by all
    processes of the node. It remembers ids on disk, as an application must."""

    def __init__(self, name: str, directory: Path, who: Identity | None = None, **settings: Any) -> None:
        self.name, self.directory = name, directory / name
        self.directory.mkdir(exist_ok=True)
        self.identity = who or identity(name, now_s=NOW_S)
        self.settings = MeshSettings(**{"enabled": True, "port": 0, "handshake_s": 20.0, **settings})
        self.given: list[tuple[str, Content]] = []
        self.receipts: list[str] = []
        self.failed: list[tuple[str, str]] = []
        self.wall_s: Callable[[], float] = time.time
        self.running_s: Callable[[], float] = time.monotonic
        self.backoff = lambda: FullJitter(0.01, 0.1)
        self.fails = 0
        self.store: KilledStore | None = None
        self.kill_at, self.before = 0, False
        self.down_most_s = DOWN_MOST_S
        self.presence = False
        self.log: StepLog | None = None

    @asynccontextmanager
    async def running(self, known: Sequence[Certificate] = ()) -> AsyncIterator[MeshNode]:
        node = MeshNode(
            *(self.settings, self.directory, self.identity, AUTHORITY),
            wall_s=lambda: self.wall_s(),
            running_s=lambda: self.running_s(),
            down_most_s=self.down_most_s,
            on_envelope=self._on_envelope,
            on_receipt=self._on_receipt,
            on_failed=self._on_failed,
            backoff=lambda: self.backoff(),
            open_store=self._open,
            log=self.log,
            presence=self.presence,
        )
        async with node:
            for one in known:
                node.take_certificate(one.der)
            yield node

    def _open(self, *arguments: Any, **options: Any) -> KilledStore:
        self.store = KilledStore(*arguments, **options)
        self.store.kill_at, self.store.before = self.kill_at, self.before
        return self.store

    async def _on_envelope(self, header: Header, content: Content) -> None:
        if self.fails:
            self.fails -= 1
            raise OSError("no space in the application's folder")
        self.given.append((header.message_id, content))

    async def _on_receipt(self, message_id: str, receipt: Receipt) -> None:
        assert receipt.message_id == message_id
        self.receipts.append(message_id)

    async def _on_failed(self, message_id: str, reason: str) -> None:
        self.failed.append((message_id, reason))


def certificates(*names: str) -> list[Certificate]:
    return [identity(name, now_s=NOW_S).certificate for name in names]


def gateway() -> Identity:
    return identity("gateway", roles={Role.GATEWAY}, now_s=NOW_S)


async def send(node: MeshNode, to: str, text: str = "hello", lifetime_s: int = LIFETIME_S) -> str:
    """An envelope, or a message to a topic."""
    kind = Kind.ENVELOPE if to.startswith("@") else Kind.MESSAGE
    return await node.submit(kind, to, Content(text.encode()), lifetime_s)


class Join:
    """A link in memory between two nodes, which passes at most `budget` bytes and then breaks. `sent`: what each side
    has sent."""

    def __init__(self, one: MeshNode, other: MeshNode, budget: int | None = None) -> None:
        self._nodes, self._budget = (one, other), budget
        self.sent = [bytearray(), bytearray()]
        self.drivers: list[ContactDriver] = []

    async def run(self, until: Callable[[], bool] | None = None, *, names: Sequence[str] = ()) -> None:
        """Until the link breaks, or `until` holds; `names`: of the certificates that each shows the other."""
        pairs = [socket.socketpair(), socket.socketpair()]
        for pair in pairs:
            for end in pair:
                end.setblocking(False)
        outer = [await asyncio.open_connection(sock=pair[1]) for pair in pairs]
        tasks = []
        for side in (0, 1):
            reader, writer = await asyncio.open_connection(sock=pairs[side][0])
            shown = names[1 - side] if names else self._nodes[1 - side].carrier.name
            peer = certificates(shown)[0]
            driver = ContactDriver(self._nodes[side].desk, reader, writer, peer, "memory", dialled=side == 0)
            assert self._nodes[side].contacts.begin(driver)
            self.drivers.append(driver)
            tasks.append(asyncio.create_task(self._drive(side, driver)))
        pumps = [asyncio.create_task(self._pump(side, outer[side][0], outer[1 - side][1])) for side in (0, 1)]
        try:
            while until is None or not until():
                done, _ = await asyncio.wait([*tasks, *pumps], timeout=0.005, return_when=asyncio.FIRST_COMPLETED)
                if done:
                    break
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for _, writer in outer:
                writer.transport.abort()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _drive(self, side: int, driver: ContactDriver) -> None:
        try:
            await driver.run()
        finally:
            self._nodes[side].contacts.over(driver)

    async def _pump(self, side: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            if self._budget is not None:
                data = data[: self._budget]
                self._budget -= len(data)
            self.sent[side] += data
            writer.write(data)
            await writer.drain()
            if self._budget == 0:
                return


async def eventually(condition: Callable[[], bool], what: str, within_s: float = 20.0) -> None:
    try:
        async with asyncio.timeout(within_s):
            while not condition():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"not within {within_s:g} s: {what}") from None
