"""A client that is killed at every step: nothing accepted is lost, nothing at QoS 2 is sent twice (M2, G8, G13).

A step is a commit of its store: the kill comes before it, or after it and before the bytes that depend on it leave. So
every pair of what is on disk and what the server has seen occurs.
"""

import asyncio
import copy
import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.client.client import Client
from edge.client.errors import DiskFull, StoreError, StoreFailed, StoreFull
from edge.client.limits import Limits
from edge.client.memory_store import MemoryStore
from edge.client.store import Batch
from edge.reconnect import FullJitter
from tests.faithful_client import eventually
from tests.unit.edge.client.client_harness import NOBODY
from tests.unit.edge.client.server_host import ServerHost

CLIENT = "van-7"
PUBLISHED = [(b"out-%d" % number, 1 + number % 2) for number in range(6)]
DELIVERED = [(b"in-%d" % number, 1 + number % 2) for number in range(4)]


class KilledStore(MemoryStore):
    """Its process is killed at the commit with this number, `before` it or right after it."""

    def __init__(self, client_id: str) -> None:
        super().__init__(client_id)
        self.kill_at, self.before, self.commits = 0, False, 0
        self.accepted: list[bytes] = []

    def commit(self, batch: Batch) -> None:
        self.commits += 1
        is_killed = bool(self.kill_at) and self.commits >= self.kill_at
        if not is_killed or (self.commits == self.kill_at and not self.before):
            super().commit(copy.deepcopy(batch))
            self.accepted += [message.payload for message in batch.added.values()]
        if is_killed:
            raise StoreFailed("killed")


class FullStore(KilledStore):
    """Its disk has no space for these commits."""

    full_at: range = range(0)

    def commit(self, batch: Batch) -> None:
        if self.commits + 1 in self.full_at:
            self.commits += 1
            raise DiskFull("the disk is full")
        super().commit(batch)


class Application:
    """What it wants, and what it was given by all its processes. It publishes again what is not on disk."""

    def __init__(self, server: ServerHost) -> None:
        self.server = server
        self.given: list[bytes] = []

    async def run(self, store: KilledStore, *, window: int = 1_000) -> None:
        """One process, until everything is done or it is killed."""
        url = self.server.url
        limits = Limits(window_messages=window)
        backoff = FullJitter(0.001, 0.01)
        try:
            async with Client(
                client_id=CLIENT, connect_points=[url], store=store, limits=limits, backoff=backoff
            ) as client:
                receiving = asyncio.create_task(self._receive(client))
                try:
                    await self._publish(client, store)
                    await client.drained()
                    all_taken = asyncio.create_task(self._all_taken())
                    await asyncio.wait((receiving, all_taken), return_when=asyncio.FIRST_COMPLETED)
                    all_taken.cancel()
                finally:
                    receiving.cancel()
                    await asyncio.wait([receiving])
        except StoreError:
            pass

    async def _publish(self, client: Client, store: KilledStore) -> None:
        while left := [one for one in PUBLISHED if one[0] not in store.accepted]:
            results = await asyncio.gather(
                *(client.publish("t", payload, qos=qos) for payload, qos in left), return_exceptions=True
            )
            for (payload, _), result in zip(left, results, strict=True):
                if isinstance(result, StoreError):
                    raise result
                assert isinstance(result, StoreFull) is (payload not in store.accepted)

    async def _receive(self, client: Client) -> None:
        """Ends when it is killed."""
        async for message in client.messages():
            self.given.append(message.payload)
            message.acknowledge()

    async def _all_taken(self) -> None:
        taken = self.server.session.taken
        await eventually(lambda: len(set(taken)) == len(DELIVERED), "everything is acknowledged")


def judge(server: ServerHost, application: Application) -> None:
    """Exactly once at QoS 2, at least once at QoS 1, both ways; and in order."""
    stored = Counter(packet.payload for packet in server.session.stored)
    for payload, qos in PUBLISHED:
        assert stored[payload] == 1 if qos == 2 else stored[payload] >= 1, (payload, stored)
    first = list(dict.fromkeys(packet.payload for packet in server.session.stored))
    assert first == [payload for payload, _ in PUBLISHED]
    taken = Counter(server.session.taken)
    assert all(taken[payload] == 1 for payload, qos in DELIVERED if qos == 2), taken
    assert set(taken) == {payload for payload, _ in DELIVERED} == set(application.given)


async def run(kills: list[tuple[int, bool]], *, window: int = 1_000, drops: frozenset[int] = frozenset()) -> bool:
    """Processes that are killed so, one after the other, and one that is not; whether all kills happened. Connections
    break after these reads of the server."""
    async with ServerHost() as server:
        application, store, all_killed = Application(server), KilledStore(CLIENT), True
        await connect_once(server, store)
        server.drop_at = {server.reads + read for read in drops}
        for payload, qos in DELIVERED:
            server.deliver("i", payload, qos)
        for kill_at, before in kills:
            store.kill_at, store.before, store.commits = kill_at, before, 0
            await application.run(store, window=window)
            all_killed = all_killed and store.commits >= kill_at
        store.kill_at = 0
        await application.run(store, window=window)
        judge(server, application)
        assert store.recover().messages == 0
        return all_killed


async def connect_once(server: ServerHost, store: MemoryStore) -> None:
    """The server has a session of this client, from now on."""
    async with Client(client_id=CLIENT, connect_points=[server.url], store=store) as client:
        await client.connected()
        await client.subscribe("i")


STEPS = range(1, 40)


@pytest.mark.parametrize("before", [True, False], ids=["before the commit", "after the commit"])
@pytest.mark.parametrize("window", [1_000, 2])
def test_killed_at_every_step(before: bool, window: int) -> None:
    async def every() -> None:
        for step in STEPS:
            if not await run([(step, before)], window=window):
                break
        assert 4 < step < STEPS[-1], step

    asyncio.run(asyncio.wait_for(every(), 60))


@pytest.mark.parametrize("times", [1, 3])
def test_the_disk_is_full_at_every_step(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Messages are refused then; what depends on other changes is not sent until they are on disk."""
    monkeypatch.setattr("edge.client.outbox.DISK_FULL_S", 0.01)

    async def every() -> None:
        for step in STEPS:
            async with ServerHost() as server:
                application, store = Application(server), FullStore(CLIENT)
                await connect_once(server, store)
                for payload, qos in DELIVERED:
                    server.deliver("i", payload, qos)
                store.commits, store.full_at = 0, range(step, step + times)
                await application.run(store)
                store.full_at = range(0)
                await application.run(store)
                judge(server, application)
                assert store.recover().messages == 0
                if store.commits < step + times:
                    break
        assert step > 4

    asyncio.run(asyncio.wait_for(every(), 60))


def test_who_waits_for_the_last_message_learns_that_the_disk_has_no_space_for_it() -> None:
    async def run() -> None:
        store = FullStore(CLIENT)
        store.full_at = range(1, 2)
        async with Client(client_id=CLIENT, connect_points=[NOBODY], store=store) as client:
            publishing = asyncio.create_task(client.publish("t"))
            await asyncio.sleep(0)
            assert client.usage[0] == 1
            await client.drained()
            with pytest.raises(StoreFull):
                await publishing

    asyncio.run(asyncio.wait_for(run(), 20))


def test_killed_twice() -> None:
    async def every() -> None:
        for first, second in itertools.product(range(1, 6), range(1, 6)):
            await run([(first, first % 2 == 0), (second, second % 2 == 1)])

    asyncio.run(asyncio.wait_for(every(), 60))


@settings(deadline=None, max_examples=60)
@given(
    kills=st.lists(st.tuples(st.integers(1, 8), st.booleans()), max_size=4),
    drops=st.frozensets(st.integers(1, 20), max_size=6),
    window=st.integers(1, 8),
)
def test_killed_and_cut_off_at_any_moments(kills: list[tuple[int, bool]], drops: frozenset[int], window: int) -> None:
    asyncio.run(asyncio.wait_for(run(kills, window=window, drops=drops), 60))
