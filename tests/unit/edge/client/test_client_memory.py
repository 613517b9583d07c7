"""What the client holds in memory, and how often it writes (M2)."""

import asyncio
import gc
from pathlib import Path

from edge.client.limits import Limits
from edge.client.memory_store import MemoryStore
from edge.client.store import Batch
from tests.faithful_client import eventually
from tests.unit.edge.client.client_harness import NOBODY, client, complete
from tests.unit.edge.client.server_host import ServerHost


def test_messages_that_nobody_holds_use_no_memory_here(tmp_path: Path) -> None:
    async def run() -> None:
        async with client(NOBODY, store=tmp_path / "o") as one:
            for _ in range(5):
                await one.publish("t")
            gc.collect()
            assert len(one._sending._messages) == 0
            assert one._bearer.held == 0

    complete(run())


class RecordingStore(MemoryStore):
    """Counts what is written."""

    def __init__(self, client_id: str) -> None:
        super().__init__(client_id)
        self.added: list[int] = []

    def commit(self, batch: Batch) -> None:
        self.added.append(len(batch.added))
        super().commit(batch)


def test_publishes_of_one_turn_share_a_commit_and_each_is_written_once() -> None:
    """However many wait already."""

    async def run() -> None:
        store = RecordingStore("van-7")
        async with client(NOBODY, store=store) as one:
            await asyncio.gather(*(one.publish("t", b"%d" % number) for number in range(1_000)))
            assert store.added == [1_000]
            await one.publish("t")
            assert store.added == [1_000, 1]

    complete(run())


def test_only_a_window_of_what_waits_is_in_memory(tmp_path: Path) -> None:
    async def run() -> None:
        async with client(NOBODY, store=tmp_path / "o") as one:
            await asyncio.gather(*(one.publish("t", b"%d" % number) for number in range(2_000)))
        held: list[int] = []
        async with (
            ServerHost({"receive_maximum": 10}) as server,
            client(server.url, store=tmp_path / "o", limits=Limits(window_messages=50)) as again,
        ):
            draining = asyncio.ensure_future(again.drained())
            while not draining.done():
                held.append(again._bearer.held + len(again._sending._loaded))
                await asyncio.sleep(0)
            assert 50 < max(held) <= 125
            assert [int(packet.payload) for packet in server.session.stored] == list(range(2_000))

    complete(run())


def test_large_messages_fill_the_window_by_their_bytes(tmp_path: Path) -> None:
    """However slowly the gateway acknowledges, a backlog of large messages stays on disk."""

    async def run() -> None:
        window_bytes, payload = 10_000, b"x" * 1_000
        async with client(NOBODY, store=tmp_path / "o") as one:
            await asyncio.gather(*(one.publish("t", payload) for _ in range(100)))
        held: list[int] = []
        async with (
            ServerHost({"receive_maximum": 2}) as server,
            client(server.url, store=tmp_path / "o", limits=Limits(window_bytes=window_bytes)) as again,
        ):
            draining = asyncio.ensure_future(again.drained())
            while not draining.done():
                held.append(len(payload) * (again._bearer.held + len(again._sending._loaded)))
                await asyncio.sleep(0)
            assert max(held) <= 2.5 * window_bytes
            assert len(server.session.stored) == 100

    complete(run())


def test_messages_of_qos_0_wait_on_disk_for_a_slow_network(tmp_path: Path) -> None:
    """Nobody acknowledges them, so only the network says that it is slower than the application."""
    payload, count = bytes(10_000), 2_000

    async def run() -> None:
        limits = Limits(window_bytes=200_000)
        async with ServerHost() as server, client(server.url, store=tmp_path / "o", limits=limits) as one:
            await one.connected()
            assert server._writer is not None
            reading = server._writer.transport
            assert isinstance(reading, asyncio.ReadTransport)
            reading.pause_reading()
            for _ in range(count // 20):
                await asyncio.gather(*(one.publish("t", payload, qos=0) for _ in range(20)))
            waits, link = one.usage[1], one._bearer._mqtt._driver._link  # type: ignore[attr-defined]
            assert link.unsent <= 3 * limits.window_bytes
            assert waits > count * len(payload) / 2, "most of it is in the outbox"
            reading.resume_reading()
            await one.drained()
            await eventually(lambda: len(server.session.stored) == count, "all arrive")

    complete(run())
