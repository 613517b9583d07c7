"""How fast the uplink brings the bundles of a mesh node to a gateway that answers at once.

    python -m bench.mesh_drain [--bundles 100000] [--payload 1000] [--most 1000000] [--rounds 2]

The gateway is an object in this process: it decodes bundles, grants claims and signs receipts, and its processor time
is not counted. Prints bundles a second of wall time, and of the processor time of node and uplink, and the resident
memory before, at most and after; asserts nothing. Each further round is a new process on the same store, which has the
receipts of the rounds before.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.mesh_node import People, fill, resident_mb
from bundles import bundle as bundle_format
from bundles.receipt import Role
from edge.agent.mesh.node_holder import NodeHolder
from edge.agent.process import keep_memory_small
from edge.client.access_point import AccessPoint
from edge.client.connect_points import ConnectPoint
from edge.reachability import ReachabilityLimits
from edge.uplink.batch_limit import BatchLimit
from edge.uplink.bearer_link import BearerLink
from edge.uplink.bearers import Bearer
from edge.uplink.deliverer import Deliverer
from edge.uplink.delivery_plan import PlanLimits
from edge.uplink.errors import GatewayProblem
from schemas.mesh_api import (
    BundleResult,
    BundlesAnswer,
    BundlesRequest,
    CertificatesAnswer,
    CertificatesRequest,
    MeshState,
    PresenceAnswer,
    ReceiptsAnswer,
    ReceiptsRequest,
    ReportedEvent,
    ReportResult,
    ReportsAnswer,
    WaitingAnswer,
    WaitingRequest,
)


class QuickGateway:
    """Takes everything. `processor_s`: what it has used itself."""

    def __init__(self, people: People) -> None:
        self._identity = people.identity("gateway", Role.GATEWAY)
        self.processor_s = 0.0

    async def probe(self) -> float:
        return 0.001

    async def post_bundles(self, request: BundlesRequest) -> BundlesAnswer:
        began, now_ms = time.process_time(), int(time.time() * 1000)
        ids = [bundle_format.decode(raw).message_id for raw in request.bundles]
        receipts = [self._identity.receipt(one, Role.GATEWAY, now_ms).encoded for one in ids]
        self.processor_s += time.process_time() - began
        return BundlesAnswer([BundleResult("taken", receipt=one) for one in receipts])

    async def report(self, events: Sequence[ReportedEvent]) -> ReportsAnswer:
        return ReportsAnswer([ReportResult(True, True) for _ in events])

    async def query(self, ids: Sequence[str]) -> PresenceAnswer:
        return PresenceAnswer({}, {})

    async def mesh(self) -> MeshState:
        return MeshState([])

    async def certificates(self, request: CertificatesRequest) -> CertificatesAnswer:
        return CertificatesAnswer([])

    async def waiting(self, request: WaitingRequest) -> WaitingAnswer:
        raise GatewayProblem(404, "nothing_carried", "nothing waits here")

    async def bring_receipts(self, request: ReceiptsRequest) -> ReceiptsAnswer:
        raise GatewayProblem(404, "nothing_carried", "nothing waits here")

    async def connect_points(self, client: str) -> list[ConnectPoint]:
        raise GatewayProblem(404, "access_point_off", "there is one gateway")

    def close(self) -> None:
        pass


async def drain(directory: Path, most: int) -> None:
    """Prints how long the uplink of `a` takes for the first `most` of what is in its store."""
    people = People()
    gateway = QuickGateway(people)

    def link_to_gateway(base: AccessPoint) -> QuickGateway:
        return gateway

    async with people.node("a", directory) as node:
        for identity in (people.identity("gateway", Role.GATEWAY), people.identity("x")):
            node.take_certificate(identity.certificate.der)
        count, wall_s, processor_s = len(node.carrier), time.perf_counter(), time.process_time()
        link = BearerLink(
            Bearer("lan", "http://gateway"),
            "a",
            link_to_gateway,
            BatchLimit(1 << 20),
            ReachabilityLimits(),
            clock=lambda: node.now_s,
        )
        uplink = Deliverer(NodeHolder(node, "a"), [link], PlanLimits(), clock=lambda: node.now_s)
        started_s, before_mb = time.process_time() - processor_s, resident_mb("VmRSS")
        running = asyncio.create_task(uplink.run())
        while len(node.carrier) > max(0, count - most) and not running.done():
            await asyncio.sleep(0.05)
        wall_s, processor_s = time.perf_counter() - wall_s, time.process_time() - processor_s - gateway.processor_s
        drained = count - len(node.carrier)
        print(
            f"drained {drained:,} of {count:,}: {drained / wall_s:6,.0f} a second of wall time, "
            f"{drained / processor_s:6,.0f} of processor time; the uplink began in {started_s:.2f} s; "
            f"resident {before_mb:.1f} MB before, {resident_mb('VmHWM'):.1f} at most, "
            f"{resident_mb('VmRSS'):.1f} after; {len(node.carrier.receipts):,} receipts"
        )
        running.cancel()
        await asyncio.wait([running])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundles", type=int, default=100_000)
    parser.add_argument("--payload", type=int, default=1_000)
    parser.add_argument("--most", type=int, default=1_000_000, help="stop when so many are delivered")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--drain", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    keep_memory_small()  # as `agent up` does
    if arguments.drain is not None:
        asyncio.run(drain(arguments.drain, arguments.most))
        return
    for what, originator in (("own messages", "a"), ("others' messages", "x")):
        with tempfile.TemporaryDirectory() as name:
            for number in range(arguments.rounds):
                fill(Path(name), arguments.bundles, arguments.payload, originator, number * arguments.bundles)
                print(what, end=", ", flush=True)
                command = [sys.executable, "-m", "bench.mesh_drain", "--drain", name, "--most", str(arguments.most)]
                subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
