"""Nodes killed at every step, links cut at any byte: nothing accepted is lost, nothing is given twice (M2, M8, M14).

A step is a commit of a node's store: the kill comes before it, or after it and before anything that depends on it is
said. Nodes are killed and started again until everything has arrived; each sequence of meetings is then judged.
"""

import asyncio
import contextlib
from pathlib import Path

import pytest

from bundles.receipt import Role
from edge.client.errors import DiskFull, NotAccepted, StoreError
from edge.node.errors import NodeError
from edge.node.node import MeshNode
from tests.draw import generator, some, times
from tests.unit.edge.node.node_host import Join, NodeHost, certificates, eventually, gateway, send

MESSAGES = 4
STEPS = range(1, 9)
SURE_STEPS = 2
"""So many commits each node needs at least."""
EVERYBODY = ("a", "b", "c")


class Journey:
    """a writes to c; b carries. Each stage is one process of two nodes, or of one."""

    def __init__(self, directory: Path) -> None:
        self.a, self.b, self.c = (NodeHost(name, directory) for name in EVERYBODY)
        self.accepted: list[str] = []

    async def write(self, node: MeshNode) -> None:
        """Until `MESSAGES` are accepted, by all processes together."""
        while len(self.accepted) < MESSAGES:
            self.accepted.append(await send(node, "@c", f"text {len(self.accepted)}"))

    async def run(self) -> None:
        """One process each, until all have what they want, or one is killed."""
        everybody = certificates(*EVERYBODY)
        a, b, c = self.a, self.b, self.c
        with contextlib.suppress(StoreError, NodeError):
            async with contextlib.AsyncExitStack() as stack:
                one, carrier, other = [await stack.enter_async_context(host.running(everybody)) for host in (a, b, c)]

                def is_killed() -> bool:
                    return any(node.failed for node in (one, carrier, other))

                await self.write(one)

                def is_carried(message_id: str) -> bool:
                    return message_id in carrier.carrier or message_id not in one.carrier

                await Join(one, carrier).run(lambda: is_killed() or all(map(is_carried, self.accepted)))
                await Join(carrier, other).run(lambda: is_killed() or not len(carrier.carrier))
                await Join(carrier, one).run(lambda: is_killed() or (self.is_told and self.is_given))

    @property
    def is_given(self) -> bool:
        return len({message_id for message_id, _ in self.c.given}) >= MESSAGES

    @property
    def is_told(self) -> bool:
        return len(set(self.a.receipts)) >= MESSAGES

    def judge(self) -> None:
        """The application remembers the ids that it has on disk: it may get one again if it was killed with it."""
        assert len(self.accepted) == MESSAGES
        texts = {message_id: content.payload for message_id, content in self.c.given}
        in_order = list(dict.fromkeys(message_id for message_id, _ in self.c.given))
        assert set(self.accepted) <= set(in_order)
        assert [texts[one] for one in self.accepted] == [b"text %d" % number for number in range(MESSAGES)]
        assert set(self.accepted) <= set(self.a.receipts)


@pytest.mark.parametrize(
    ("victim", "before"), some([(name, before) for name in EVERYBODY for before in (True, False)], 3, "killed nodes")
)
def test_killed_at_every_step(victim: str, before: bool, tmp_path: Path) -> None:
    """M2, M8: exactly once, unless the application itself was killed while it was given a message."""

    async def every() -> None:
        for step in some(STEPS, 2, f"steps of {victim} {before}"):
            directory = tmp_path / str(step)
            directory.mkdir()
            journey = Journey(directory)
            host = {"a": journey.a, "b": journey.b, "c": journey.c}[victim]
            host.kill_at, host.before = step, before
            await journey.run()
            assert step > SURE_STEPS or (host.store is not None and host.store.commits >= step)
            host.kill_at = 0
            for _ in range(3):
                await journey.run()
                if journey.is_told and journey.is_given:
                    break
            journey.judge()
            given = [message_id for message_id, _ in journey.c.given]
            if victim != "c":
                assert len(given) == len(set(given))

    asyncio.run(asyncio.wait_for(every(), times(30, 300)))


def test_receipts_that_a_kill_has_lost_come_again(tmp_path: Path) -> None:
    """M2, M8: a peer must not think that we have them before our disk does: it would not send them again."""

    async def run() -> None:
        v, r = NodeHost("v", tmp_path), NodeHost("r", tmp_path)
        everybody = [*certificates("v", "r"), gateway().certificate]
        async with r.running(everybody) as relay:
            with contextlib.suppress(StoreError, NodeError):
                async with v.running(everybody) as one:
                    message = await send(one, "topic")
                    await relay.settle([gateway().receipt(message, Role.GATEWAY, 1)])
                    await one.durable()
                    assert v.store is not None
                    v.store.kill_at, v.store.before = v.store.commits + 1, True
                    await Join(one, relay).run(lambda: one.failed)
            async with v.running(everybody) as one:
                assert message in one.carrier
                join = Join(one, relay).run(lambda: message not in one.carrier)
                await asyncio.wait_for(join, 20)
                assert message not in one.carrier

    asyncio.run(run())


def test_cut_at_any_byte(tmp_path: Path) -> None:
    """M8: a link that breaks anywhere loses nothing, and gives nothing twice."""

    async def run() -> None:
        draws, everybody = generator("cut links"), certificates("a", "c")
        a, c = NodeHost("a", tmp_path), NodeHost("c", tmp_path)
        async with a.running(everybody) as one, c.running(everybody) as other:
            sent: list[str] = []
            for _ in range(times(12, 300)):
                sent.append(await send(one, "@c", "x" * draws.randrange(3_000)))
                await Join(one, other, draws.randrange(1, 12_000)).run(lambda: a.receipts[-1:] == sent[-1:])
            await Join(one, other).run(lambda: len(set(a.receipts)) == len(sent))
            await eventually(lambda: len(c.given) == len(sent), "all are given")
            assert [message_id for message_id, _ in c.given] == sent or set(sent) == {one for one, _ in c.given}
            assert len({message_id for message_id, _ in c.given}) == len(c.given)
            assert sorted(a.receipts) == sorted(sent)

    asyncio.run(asyncio.wait_for(run(), 120))


def test_a_full_disk_refuses_and_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M2: what is new is refused; what was taken for the application waits for space, with its receipt."""
    monkeypatch.setattr("edge.node.journal.DISK_FULL_S", 0.02)

    async def run() -> None:
        a, c = NodeHost("a", tmp_path), NodeHost("c", tmp_path)
        async with a.running(certificates("a", "c")) as one, c.running(certificates("a", "c")) as other:
            sent = await send(one, "@c")
            assert a.store is not None
            assert c.store is not None
            a.store.full_at = range(a.store.commits + 1, a.store.commits + 2)
            with pytest.raises(NotAccepted, match="the disk is full"):
                await send(one, "@c", "refused")
            await one.durable()
            c.store.full_at = range(c.store.commits + 1, c.store.commits + 4)
            await Join(one, other).run(lambda: a.receipts == [sent])
            assert [message_id for message_id, _ in c.given] == [sent]
        async with a.running() as one, c.running() as other:
            assert not len(one.carrier)
            again = await send(one, "@c", "again")
            await Join(one, other).run(lambda: again in a.receipts)
            assert [content.payload for _, content in c.given] == [b"hello", b"again"]

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_change_of_its_log_that_needs_space_does_not_end_a_node(tmp_path: Path) -> None:
    async def run() -> None:
        def change(_: object) -> None:
            raise DiskFull("the disk is full")

        async with NodeHost("a", tmp_path).running(certificates("a", "c")) as one:
            with pytest.raises(DiskFull):
                await one.on_store(change)
            await send(one, "@c")

    asyncio.run(run())
