"""A node with an uplink, killed at every step of a delivery: the platform gets everything, each originator learns it,
and message presence is told (M2, M7, M8, M10-M13).

A step is a commit of the node's store: the kill comes before it, or after it and before anything that depends on it is
said. A gateway that is given a bundle again recognises it (M14).
"""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from edge.agent.mesh.node_holder import NodeHolder
from edge.client.access_point import AccessPoint
from edge.client.errors import StoreError
from edge.node.errors import NodeError
from edge.node.node import MeshNode
from edge.reachability import ReachabilityLimits
from edge.uplink.batch_limit import BatchLimit
from edge.uplink.bearer_link import BearerLink
from edge.uplink.bearers import Bearer
from edge.uplink.deliverer import Deliverer
from edge.uplink.delivery_plan import PlanLimits
from tests.draw import some
from tests.unit.edge.node.node_host import Join, NodeHost, certificates, eventually, gateway, send
from tests.unit.edge.uplink.fake_platform import FakeGateway, FakePlatform, wall_us

MESSAGES = 3
STEPS = range(1, 9)
SURE_STEPS = 2
"""So many commits a delivery needs at least."""
KNOWN = [*certificates("a", "b"), gateway().certificate]


def uplink(node: MeshNode, platform: FakePlatform, plan: PlanLimits | None = None) -> Deliverer:
    """To a gateway that answers at once."""
    name = node.carrier.name
    there = FakeGateway(platform, name, delay_s=0.0)

    def open_gateway(base: AccessPoint) -> FakeGateway:
        return there

    def clock() -> float:
        return node.now_s

    bearer, reach = Bearer("lan", "http://gateway"), ReachabilityLimits()
    link = BearerLink(bearer, name, open_gateway, BatchLimit(1 << 20), reach, clock=clock)
    return Deliverer(NodeHolder(node, name), [link], plan, clock=clock, wall_us=wall_us)


async def deliver(host: NodeHost, platform: FakePlatform, is_told: Callable[[], bool]) -> None:
    """One process with an uplink, until it has nothing to do any more, or is killed."""
    with contextlib.suppress(StoreError, NodeError):
        async with host.running() as node:

            def is_over() -> bool:
                return node.failed or (not (len(node.carrier) or node.pending.is_pending) and is_told())

            delivering = asyncio.create_task(uplink(node, platform).run())
            try:
                await eventually(is_over, "everything is delivered and reported", 60)
            finally:
                delivering.cancel()
                await asyncio.wait([delivering])


async def killed_once(directory: Path, victim: str, is_shared: bool, step: int, before: bool) -> None:
    """`a` writes, and gives copies to `b` if that is to be so; the victim delivers, and is killed. Then, if it was not
    `a`, both meet."""
    directory.mkdir()
    a, b, platform = NodeHost("a", directory), NodeHost("b", directory), FakePlatform()
    a.presence = b.presence = True
    async with a.running(KNOWN) as one, b.running(KNOWN) as other:
        sent = [await send(one, "a/topic", f"text {number}") for number in range(MESSAGES)]
        if is_shared:
            await Join(one, other).run(lambda: all(held.is_shared for held in one.sendable(MESSAGES)))
    host = {"a": a, "b": b}[victim]

    def is_told() -> bool:
        return victim == "b" or set(a.receipts) == set(sent)

    host.kill_at, host.before = step, before
    await deliver(host, platform, is_told)
    assert host.store is not None
    was_killed = host.store.commits >= step
    assert was_killed or step > SURE_STEPS
    host.kill_at = 0
    await deliver(host, platform, is_told)
    if victim == "b":
        async with a.running() as one, b.running() as other:
            await Join(one, other).run(lambda: set(a.receipts) == set(sent) and not len(one.carrier))
            retired = [report.event.id for report in one.pending.batch(99) if report.event.event == "retired"]
        assert sorted(retired) == sorted(sent)
    assert set(platform.taken) == set(sent)
    assert set(platform.taken.values()) <= ({1, 2} if was_killed else {1})
    assert not a.failed
    shared = set(sent) if is_shared else set()
    # Whoever is killed before it has written down a delivery gets the receipt when it asks; the gateway reports itself.
    assert set(platform.delivered) <= shared if was_killed else set(platform.delivered) == shared
    assert set(platform.delivered.values()) <= {victim}
    assert platform.retired == (shared if victim == "a" else set())


@pytest.mark.parametrize("before", [True, False], ids=["before the commit", "after the commit"])
@pytest.mark.parametrize(
    ("victim", "is_shared"), [("a", False), ("a", True), ("b", True)], ids=["originator", "after a contact", "proxy"]
)
def test_killed_at_every_step_of_a_delivery(tmp_path: Path, victim: str, is_shared: bool, before: bool) -> None:
    """M2, M7, M13: nothing is lost, and nothing is delivered that was not held; without a kill, once."""

    async def every() -> None:
        for step in some(STEPS, 1, f"steps of a delivery by {victim} {is_shared} {before}"):
            await killed_once(tmp_path / str(step), victim, is_shared, step, before)

    asyncio.run(asyncio.wait_for(every(), 300))
