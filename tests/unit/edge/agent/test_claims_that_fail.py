"""Claims only spare duplicates: when all of them fail, the recipient's memory is what is left (M11, M14, M15)."""

import asyncio
from pathlib import Path

from bundles import bundle as bundle_format
from edge.node.node import MeshNode
from edge.uplink.delivery_plan import PlanLimits
from edge.uplink.errors import GatewayProblem
from schemas.mesh_api import BundleResult
from tests.draw import generator
from tests.unit.edge.agent.test_delivery_crashes import uplink
from tests.unit.edge.node.node_host import Join, NodeHost, certificates, eventually, gateway, send
from tests.unit.edge.uplink.fake_platform import FakePlatform

NAMES = ("a", "p", "q", "r", "c")
MESSAGES = 5
OUT = GatewayProblem(503, "kafka_error", "message presence is out of reach")


class Platform(FakePlatform):
    """Judges no claim, and keeps every bundle that it is given: what reaches a recipient whose gateway remembers
    nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.presence_problem = self.claim_problem = OUT
        self.given: list[bytes] = []

    def take(self, agent: str, raw: bytes, out_s: float = 0.0) -> BundleResult:
        self.given.append(raw)
        return super().take(agent, raw, out_s)


async def deliver(one: MeshNode, proxy: MeshNode, platform: Platform) -> None:
    """The proxy gets copies, and brings them all to the platform."""
    await Join(one, proxy).run(lambda: len(proxy.carrier) == MESSAGES)
    delivering = asyncio.create_task(uplink(proxy, platform, PlanLimits(patience_s=0.0)).run())
    await eventually(lambda: not len(proxy.carrier), "the proxy has delivered", 60)
    delivering.cancel()
    await asyncio.wait([delivering])


def test_every_proxy_delivers_and_the_recipient_has_each_message_once(tmp_path: Path) -> None:
    """Three proxies bring their copies to the platform without a claim. All of these reach the recipient, in a drawn
    order, while the originator meets it: mesh and server path race."""

    async def run() -> None:
        known, platform = [*certificates(*NAMES), gateway().certificate], Platform()
        a, c = NodeHost("a", tmp_path), NodeHost("c", tmp_path)
        async with a.running(known) as one:
            sent = [await send(one, "@c", f"text {number}") for number in range(MESSAGES)]
            for name in "pqr":
                async with NodeHost(name, tmp_path).running(known) as proxy:
                    await deliver(one, proxy, platform)
            assert platform.taken == dict.fromkeys(sent, 3)

            async with c.running(known) as other:
                generator("copies of all proxies").shuffle(platform.given)

                async def by_server() -> None:
                    for raw in platform.given:
                        await other.take(bundle_format.decode(raw))

                racing = asyncio.create_task(by_server())
                await Join(one, other).run(lambda: racing.done() and set(a.receipts) == set(sent))
                await racing
                await eventually(lambda: other.status()["inbox_messages"] == 0, "all are handed over")
        assert sorted(message_id for message_id, _ in c.given) == sorted(sent)

    asyncio.run(asyncio.wait_for(run(), 200))
