"""A platform in memory, the gateways in front of it with the faults of a bad day, and an agent that holds bundles."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from bundles import bundle as bundle_format
from bundles import receipt as receipt_format
from bundles.bundle import Bundle
from bundles.receipt import Receipt
from edge.client.access_point import AccessPoint
from edge.client.connect_points import ConnectPoint
from edge.reachability import ReachabilityLimits
from edge.uplink.batch_limit import BatchLimit
from edge.uplink.bearer_link import BearerLink
from edge.uplink.bearers import Bearer
from edge.uplink.deliverer import Deliverer
from edge.uplink.delivery_plan import PlanLimits
from edge.uplink.errors import GatewayProblem, NotReachable
from edge.uplink.gateway_api import Gateway
from edge.uplink.holder import Holder
from schemas.mesh_api import (
    BundleResult,
    BundlesAnswer,
    BundlesRequest,
    CertificatesAnswer,
    CertificatesRequest,
    MeshState,
    PresenceAnswer,
    ReceiptResult,
    ReceiptsAnswer,
    ReceiptsRequest,
    ReportedEvent,
    ReportResult,
    ReportsAnswer,
    WaitingAnswer,
    WaitingRequest,
)
from schemas.states import Claim, MessagePresenceState
from tests.unit.bundles import keys

CLAIM_S = 60.0
OFF = GatewayProblem(404, "access_point_off", "the access point of this gateway is switched off")


def now() -> float:
    return asyncio.get_running_loop().time()


def wall_us() -> int:
    return int((keys.NOW_S + now()) * 1e6)


class FakePlatform:
    """`taken` counts bundles that gateways took; `events` are those reported, with the agent. `answered_at`: when
    presence last answered a question or claim of an agent; `unjudged_since`: since when an agent's claims of a message
    get no answer. `watch(agent, id, out_s)` is called for each bundle posted; `out_s` as when
    the request began."""

    def __init__(self) -> None:
        self.taken: Counter[str] = Counter()
        self.order: list[tuple[str, int]] = []
        self.receipts: dict[str, Receipt] = {}
        self.claims: dict[str, Claim] = {}
        self.delivered: dict[str, str] = {}
        self.states_max = 500
        self.told: set[str] = set()
        self.retired: set[str] = set()
        self.events: list[tuple[str, ReportedEvent]] = []
        self.claim_problem: GatewayProblem | None = None
        self.presence_problem: GatewayProblem | None = None
        self.answered_at: dict[str, float] = {}
        self.unjudged_since: dict[tuple[str, str], float] = {}
        self.outcomes: dict[str, BundleResult] = {}
        self.asked: list[str] = []
        self.waiting: dict[str, list[Bundle]] = {}
        self.brought: list[str] = []
        self.announced: set[bytes] = set()
        self.receipt_outcomes: dict[str, ReceiptResult] = {}
        self.watch: Callable[[str, str, float], None] = lambda agent, message_id, out_s: None

    def claimant(self, message_id: str) -> str:
        claim = self.claims.get(message_id)
        return claim.agent if claim is not None and claim.until_ms > wall_us() // 1000 else ""

    def out_s(self, agent: str, message_id: str) -> float:
        """For how long presence has not answered the agent, or its claim of the message."""
        unjudged = self.unjudged_since.get((agent, message_id), now())
        return now() - min(self.answered_at.get(agent, 0.0), unjudged)

    def take(self, agent: str, raw: bytes, out_s: float = 0.0) -> BundleResult:
        bundle = bundle_format.decode(raw)
        bundle_format.verify(bundle, keys.originators(bundle.header.originator))
        self.watch(agent, bundle.message_id, out_s)
        if bundle.message_id in self.outcomes:
            return self.outcomes[bundle.message_id]
        self.taken[bundle.message_id] += 1
        self.order.append((bundle.header.originator, bundle.header.sequence))
        made = self.receipts.setdefault(bundle.message_id, keys.receipt(bundle.message_id))
        return BundleResult("taken", receipt=made.encoded)

    def report(self, agent: str, event: ReportedEvent) -> ReportResult:
        self.events.append((agent, event))
        match event.event:
            case "delivered":
                self.delivered[event.id] = agent
            case "retired":
                self.retired.add(event.id)
            case "claimed":
                is_done = event.id in self.delivered or event.id in self.retired
                if is_done or self.claimant(event.id) not in ("", agent):
                    return ReportResult(True, False)
                until_ms = int(wall_us() / 1000 + CLAIM_S * 1000)
                self.claims[event.id] = Claim(agent=agent, at_us=event.at_us, until_ms=until_ms)
                return ReportResult(True, True)
        return ReportResult(True)

    def query(self, ids: Sequence[str]) -> PresenceAnswer:
        self.asked += ids
        known = [one for one in ids if one in self.claims or one in self.delivered or one in self.retired]
        known, left_out = known[: self.states_max], known[self.states_max :]
        self.told.update(known)
        receipts = {one: self.receipts[one].encoded for one in ids if one in self.receipts}
        return PresenceAnswer({one: self._state(one) for one in known}, receipts, left_out)

    def exchange(self, request: CertificatesRequest) -> CertificatesAnswer:
        self.announced.update(request.certificates)
        return CertificatesAnswer([name.encode() for name in request.names if name.encode() in self.announced])

    def wait(self, request: WaitingRequest) -> WaitingAnswer:
        """Two bundles at most; a position is the number of bundles before it."""
        found, positions = list[Bundle](), dict[str, int]()
        for device, after in request.devices.items():
            more = self.waiting.get(device, [])[after:][: 2 - len(found)]
            found += more
            positions[device] = after + len(more)
        is_more = any(len(self.waiting.get(device, [])) > at for device, at in positions.items())
        return WaitingAnswer([bundle_format.encode(one) for one in found], [b"certificate"], positions, is_more, {})

    def bring(self, request: ReceiptsRequest) -> ReceiptsAnswer:
        ids = [receipt_format.decode(raw).message_id for raw in request.receipts]
        self.brought += ids
        return ReceiptsAnswer([self.receipt_outcomes.get(one, ReceiptResult("settled")) for one in ids])

    def reported(self, kind: str) -> list[tuple[str, str]]:
        return [(agent, event.id) for agent, event in self.events if event.event == kind]

    def _state(self, message_id: str) -> MessagePresenceState:
        return MessagePresenceState(
            id=message_id,
            state="delivered" if message_id in self.delivered else "pending",
            origin="",
            delivered_by=self.delivered.get(message_id, ""),
            delivered_to="",
            delivered_us=0,
            holders=[],
            attempting=[],
            refused=[],
            claim=self.claims.get(message_id),
            retired=message_id in self.retired,
            kept_until_ms=0,
            judged=-1,
        )


class FakeGateway:
    """`fault()` is asked before each request: None, or the name of what goes wrong."""

    def __init__(self, platform: FakePlatform, agent: str, *, name: str = "gateway", delay_s: float = 0.05) -> None:
        self.platform, self.agent, self.name, self.delay_s = platform, agent, name, delay_s
        self.fault: Callable[[], str | None] = lambda: None
        self.presence_fault: Callable[[], str | None] = lambda: self.fault()
        self.points: list[ConnectPoint] = []
        self.posts: list[int] = []
        self.most = 500
        self.most_bytes = 1 << 30
        self.requests = 0
        self.upload_s = 0.0
        self.problem = GatewayProblem(503, "overloaded", "come back later", 3.0)

    async def probe(self) -> float:
        await self._served(lambda: None)
        return self.delay_s

    async def post_bundles(self, request: BundlesRequest) -> BundlesAnswer:
        await asyncio.sleep(self.upload_s)
        if len(request.bundles) > self.most or sum(map(len, request.bundles)) > self.most_bytes:
            raise GatewayProblem(413, "too_large", "the request is too large")
        self.posts.append(len(request.bundles))

        ids = [bundle_format.decode(raw).message_id for raw in request.bundles]
        out_s = [self.platform.out_s(self.agent, one) for one in ids]

        def take() -> BundlesAnswer:
            sent = zip(request.bundles, out_s, strict=True)
            return BundlesAnswer([self.platform.take(self.agent, raw, seconds) for raw, seconds in sent])

        answer = await self._served(take, with_receipts=True)
        assert isinstance(answer, BundlesAnswer)
        return answer

    async def report(self, events: Sequence[ReportedEvent]) -> ReportsAnswer:
        if self.platform.claim_problem is not None:
            raise self.platform.claim_problem
        claims = [(self.agent, event.id) for event in events if event.event == "claimed"]
        for claim in claims:
            self.platform.unjudged_since.setdefault(claim, now())
        answer = await self._presence(
            lambda: ReportsAnswer([self.platform.report(self.agent, event) for event in events]), counts=bool(claims)
        )
        for claim in claims:
            del self.platform.unjudged_since[claim]
        assert isinstance(answer, ReportsAnswer)
        return answer

    async def query(self, ids: Sequence[str]) -> PresenceAnswer:
        return await self._presence(lambda: self.platform.query(ids))

    async def mesh(self) -> MeshState:
        return await self._served(lambda: MeshState([b"certificate"]))

    async def certificates(self, request: CertificatesRequest) -> CertificatesAnswer:
        found = await self._served(lambda: self.platform.exchange(request))
        assert isinstance(found, CertificatesAnswer)
        return found

    async def waiting(self, request: WaitingRequest) -> WaitingAnswer:
        found = await self._served(lambda: self.platform.wait(request))
        assert isinstance(found, WaitingAnswer)
        return found

    async def bring_receipts(self, request: ReceiptsRequest) -> ReceiptsAnswer:
        found = await self._served(lambda: self.platform.bring(request))
        assert isinstance(found, ReceiptsAnswer)
        return found

    async def connect_points(self, client: str) -> list[ConnectPoint]:
        if not self.points:
            raise OFF
        return self.points

    def close(self) -> None:
        pass

    async def _presence(self, act: Callable[[], Any], *, counts: bool = True) -> Any:
        problem = self.platform.presence_problem
        if problem is not None:
            await asyncio.sleep(self.delay_s)
            raise problem
        answer = await self._served(act, fault=self.presence_fault())
        if counts:
            self.platform.answered_at[self.agent] = now()
        return answer

    async def _served(self, act: Callable[[], Any], *, with_receipts: bool = False, fault: str | None = "") -> Any:
        self.requests += 1
        fault = self.fault() if fault == "" else fault
        await asyncio.sleep(self.delay_s)
        match fault:
            case "refused":
                raise NotReachable("connection refused", is_certain=True)
            case "login page":
                raise NotReachable("the answer is text/html", is_certain=True)
            case "hang":
                await asyncio.sleep(15)
                raise NotReachable("no complete answer within 15 s")
            case "problem":
                raise self.problem
            case "answer lost":
                act()
                raise NotReachable("the connection ended within the answer")
            case "wrong receipts" if with_receipts:
                forged = keys.receipt("00000000-0000-8000-8000-000000000000").encoded
                return BundlesAnswer([BundleResult("taken", receipt=forged)] * len(act().results))
        return act()


def link(
    gateways: FakeGateway | dict[str, FakeGateway], bearer: Bearer | None = None, latency_s: float = 0.0
) -> BearerLink:
    """Over which the gateways are reached; by URL, if there are several."""

    def open_gateway(base: AccessPoint) -> Gateway:
        return gateways if isinstance(gateways, FakeGateway) else gateways[str(base)]

    return BearerLink(
        bearer or Bearer("lan", "http://gateway"),
        "a",
        open_gateway,
        BatchLimit(1 << 20),
        ReachabilityLimits(latency_s=latency_s),
        clock=now,
        draw=lambda: 0.5,
    )


def deliverer(holder: Holder, *links: BearerLink, limits: PlanLimits | None = None, **more: Any) -> Deliverer:
    return Deliverer(holder, links, limits or PlanLimits(), clock=now, wall_us=wall_us, draw=lambda: 0.5, **more)


async def run_until(condition: Callable[[], bool], *deliverers: Deliverer, most_s: float = 4_000.0) -> float:
    """Runs the deliverers until the condition holds, and says when that was. Fails after `most_s`."""
    tasks = [asyncio.create_task(one.run()) for one in deliverers]
    try:
        async with asyncio.timeout(most_s):
            while not condition():
                await asyncio.sleep(0.25)
                for task in tasks:
                    if task.done():
                        task.result()
        return now()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
