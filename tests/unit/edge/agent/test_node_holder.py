"""A node as the uplink sees it: what needs a claim, and what message presence is told (M6, M10, M11, M13)."""

import asyncio
from pathlib import Path

import pytest

from bundles.receipt import Role
from edge.agent.mesh.node_holder import NodeHolder
from edge.mesh import reports
from edge.mesh.held import Held
from schemas.mesh_api import MeshState
from tests.unit.edge.node.node_host import LIFETIME_S, Join, NodeHost, certificates, gateway, send


class Watcher:
    """What the uplink is told of."""

    def __init__(self, holder: NodeHolder) -> None:
        self.held: dict[str, Held] = {}
        holder.watch(self)

    def added(self, held: Held) -> None:
        self.held[held.message_id] = held

    def given(self, held: Held) -> None:
        assert held.message_id in self.held

    def removed(self, held: Held) -> None:
        del self.held[held.message_id]


@pytest.mark.parametrize("copies", [8, 0], ids=["copies", "unlimited"])
def test_what_has_left_the_agent_needs_a_claim(tmp_path: Path, copies: int) -> None:
    """M11: also what came from another; and over a restart. M6: the copy that was given is reported."""

    async def run() -> None:
        a, b = NodeHost("a", tmp_path, copies=copies), NodeHost("b", tmp_path, copies=copies)
        a.presence = True
        known = certificates("a", "b", "c")
        async with a.running(known) as one, b.running(known) as other:
            given = await send(one, "@c")
            holder, there = NodeHolder(one, "a"), NodeHolder(other, "b")
            here_held, there_held = Watcher(holder).held, Watcher(there).held
            assert [holder.needs_claim(held) for held in here_held.values()] == [False]
            await Join(one, other).run(lambda: bool(one.pending.is_pending) and given in other.carrier)
            kept = await send(one, "@c")
            claims = {name: holder.needs_claim(held) for name, held in here_held.items()}
            assert claims == {given: True, kept: False}
            assert [there.needs_claim(held) for held in there_held.values()] == [True]
            [report] = holder.pending(10)
            assert (report.event.event, report.event.id, report.event.peer) == ("propagated", given, "b")
            loaded = await holder.load(list(here_held.values()))
            assert [one.message_id for one in loaded] == [given, kept]
        async with a.running(known) as one:
            holder = NodeHolder(one, "a")
            claims = {name: holder.needs_claim(held) for name, held in Watcher(holder).held.items()}
            assert claims == {given: True, kept: copies == 0}  # unlimited: nobody knows any more
            await holder.published([report.number])
            assert holder.pending(10) == []
            await holder.report([reports.attempting(loaded[0].header, "a", 1)])
            assert len(holder.pending(10)) == 1

    asyncio.run(asyncio.wait_for(run(), 30))


def test_the_end_of_a_shared_message_is_reported(tmp_path: Path) -> None:
    """M13: not of one of which nobody has heard."""

    async def run() -> None:
        a, b, time_s = NodeHost("a", tmp_path), NodeHost("b", tmp_path), [0.0]
        a.presence, a.running_s = True, lambda: time_s[0]
        known = certificates("a", "b", "c")
        async with a.running(known) as one, b.running(known) as other:
            given = await send(one, "@c")
            await Join(one, other).run(lambda: one.pending.is_pending)
            await send(one, "@c")
            time_s[0] += LIFETIME_S + 1
            while one.status()["bundles"]:
                await asyncio.sleep(0.01)
            events = [(report.event.event, report.event.id) for report in one.pending.batch(10)]
            assert events == [("propagated", given), ("expired", given)]

    asyncio.run(asyncio.wait_for(run(), 30))


def test_who_learns_of_a_delivery_from_a_peer_retires_the_record(tmp_path: Path) -> None:
    """M13: whether the receipt comes over a link or over the uplink; the report is on disk with the receipt. Nothing is
    reported of a message of which nobody has heard."""

    async def run() -> None:
        a, b = NodeHost("a", tmp_path), NodeHost("b", tmp_path)
        a.presence = b.presence = True
        known = [*certificates("a", "b", "c"), gateway().certificate]
        async with a.running(known) as one, b.running(known) as other:
            given = await send(one, "@c")
            await Join(one, other).run(lambda: one.pending.is_pending)
            kept = await send(one, "@c")
            receipts = [gateway().receipt(message_id, Role.GATEWAY, 1) for message_id in (given, kept)]
            await other.settle(receipts)
            assert not other.pending.is_pending, "it is not b's message"
            await Join(one, other).run(lambda: sorted(a.receipts) == sorted([given, kept]))
        async with a.running() as one:
            events = [(report.event.event, report.event.id) for report in one.pending.batch(10)]
            assert events == [("propagated", given), ("retired", given)]

    asyncio.run(asyncio.wait_for(run(), 30))


def test_what_a_gateway_says_of_the_mesh_is_verified(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """M5: what is wrong is logged, and stops nothing."""

    async def run() -> None:
        async with NodeHost("a", tmp_path).running() as one:
            good = certificates("b")[0]
            await NodeHolder(one, "a").take_mesh(MeshState([b"x", good.der], b"y"))
            assert [found.der for found in one.known.of("b")] == [good.der]
            assert list(NodeHolder(one, "a").certificates("b")) == [good.der]

    asyncio.run(asyncio.wait_for(run(), 30))
    assert caplog.text.count("cannot be used") == 2
