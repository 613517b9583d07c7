"""Brings what an agent holds to the platform, as :mod:`.delivery_plan` decides (M3, M4, M10, M11, M13).

For each bearer three tasks run side by side: one probes, one asks message presence and claims, one posts bundles. So a
message that needs no claim never waits for presence, and claims are asked for while bundles are sent. One more task
publishes pending reports, fetches the gateways' certificates, and takes along what waits for devices that are away.

What is guaranteed: a bundle is settled only by a verified receipt; while presence is in reach, one that others may
have is sent only with a claim that was granted and not over when the request began, unless presence has held it back
for `withheld_s`. What is not guaranteed: that a gateway gets a bundle only once.

No task spins: each turn either makes progress or ends in a wait, and after each failure a bearer is in doubt until a
probe, whose time :mod:`.reachability` sets, has succeeded.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from random import random
from typing import Final

from bundles.bundle import Header
from edge.uplink.bearer_link import BearerLink
from edge.uplink.bearers import BearerState
from edge.uplink.carry_lane import CarryLane
from edge.uplink.certificate_lane import CertificateLane
from edge.uplink.delivery_plan import DeliveryPlan, PlanLimits
from edge.uplink.errors import GatewayProblem, NotReachable
from edge.uplink.holder import Holder
from edge.uplink.mesh_news import MeshNews
from edge.uplink.post_lane import PostLane
from edge.uplink.presence_lane import PresenceLane
from edge.uplink.presence_view import PresenceReach
from edge.uplink.publisher import Publisher
from edge.uplink.settlement import Settlement
from edge.uplink.status import UplinkStatus
from schemas.errors import WaystationError

TICK_S: Final = 1.0
"""How long a task that has nothing to do waits, unless it is woken."""

TURN_S: Final = 0.02
"""Between two turns of a task that finds nothing to do, however often it is woken."""

_log: Final = logging.getLogger("waystation.uplink")

Step = Callable[[BearerLink, Sequence[BearerState]], Awaitable[bool]]


class Deliverer:
    """`clock`: seconds, never going back, the same as the holder's; `wall_us`: the time, microseconds since the
    epoch. `is_urgent` answers for a message by its header. `carrying`: what
    takes along what waits for devices, if anything does."""

    def __init__(
        self,
        holder: Holder,
        links: Sequence[BearerLink],
        limits: PlanLimits | None = None,
        *,
        is_urgent: Callable[[Header], bool] = lambda header: False,
        mesh_s: float = 3_600.0,
        carrying: CarryLane | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        draw: Callable[[], float] = random,
    ) -> None:
        self._holder, self._links, self._clock = holder, list(links), clock
        self._plan = DeliveryPlan(holder.name, holder.needs_claim, is_urgent, limits, draw)
        holder.watch(self._plan)
        self._presence = PresenceReach(draw=draw)
        self._news = MeshNews(holder, clock, mesh_s)
        self._publisher = Publisher(holder, clock, draw)
        self._carrying = carrying
        self._certificates = CertificateLane(holder, clock)
        settlement = Settlement(holder, self._plan, self._news, wall_us)
        self._asking = PresenceLane(holder, self._plan, self._presence, settlement, clock, wall_us)
        self._posting = PostLane(holder, self._plan, self._presence, self._asking, settlement, clock, wall_us)
        self._busy: dict[str, set[str]] = {"ask": set(), "post": set()}
        self._is_up = False
        self._last_problem = ""  # of the holder
        self._turn = 0
        self._turned: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """For ever; when it is cancelled, requests in flight are broken off, which loses nothing."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for link in self._links:
                    tasks.create_task(self._probe(link))
                    tasks.create_task(self._lane("ask", link, self._asking.step))
                    tasks.create_task(self._lane("post", link, self._posting.step))
                tasks.create_task(self._keep_house())
        finally:
            for link in self._links:
                link.close()

    def wake(self) -> None:
        """Something has changed: a bundle has come, a copy has left, an event was logged."""
        self._turn += 1
        if self._turned is not None and not self._turned.done():
            self._turned.set_result(None)

    def network_changed(self) -> None:
        """An address or a route has come or gone."""
        for link in self._links:
            link.network_changed()
        self.wake()

    def status(self) -> UplinkStatus:
        """For `waystation agent status`."""
        return UplinkStatus(
            is_up=self._is_up,
            presence_in_reach=self._is_up and self._presence.out_since(self._clock()) is None,
            held=len(self._plan),
            reports_pending=bool(self._holder.pending(1)),
            claims_granted=self._asking.granted,
            claims_refused=self._asking.refused,
            refused=self._plan.refused,
            bearers=[link.current_status() for link in self._links],
            last_problem=self._last_problem or self._posting.last_problem,
        )

    # -- tasks ---------------------------------------------------------------------------------------------------------

    async def _probe(self, link: BearerLink) -> None:
        while True:
            turn = self._turn
            wait_s = link.reach.next_probe - self._clock()
            if wait_s > 0:
                await self._wait(wait_s, turn)
                continue
            was_up = link.reach.is_up
            await link.probe()
            if link.reach.is_up is not was_up:
                problem = link.reach.last_problem
                _log.info("bearer %s is %s%s", link.bearer.name, "up" if not was_up else "down: ", problem)
            self._note()
            if link.is_usable:
                self.wake()

    async def _lane(self, kind: str, link: BearerLink, step: Step) -> None:
        busy, name = self._busy[kind], link.bearer.name
        while True:
            turn, began = self._turn, self._clock()
            is_moving = False
            if link.is_usable:
                states = [
                    BearerState(one.bearer, one.is_usable, is_busy=one.bearer.name in busy) for one in self._links
                ]
                busy.add(name)
                try:
                    is_moving = await step(link, states)
                except (NotReachable, GatewayProblem) as error:
                    _log.debug("bearer %s: %s", name, error)
                    self.wake()  # the next probe is due sooner now
                except WaystationError as error:
                    self._complain(error)
                finally:
                    busy.discard(name)
                self._note()
            if is_moving:
                self._last_problem = ""
                self.wake()
            else:
                await self._wait(TICK_S, turn)
                if (wait_s := began + TURN_S - self._clock()) > 0:
                    await asyncio.sleep(wait_s)

    async def _keep_house(self) -> None:
        while True:
            turn = self._turn
            is_moving = False
            usable = sorted((link for link in self._links if link.is_usable), key=lambda link: link.bearer.rank)
            if usable:
                link = usable[0]
                await self._attempt(self._news.poll(link))
                await self._attempt(self._certificates.step(link))
                if self._carrying is not None:
                    is_moving = await self._attempt(self._carrying.step(link))
                is_moving |= await self._attempt(self._publisher.step(link))
                self._note()
            if not is_moving:
                await self._wait(TICK_S, turn)
                await asyncio.sleep(TURN_S)

    async def _attempt(self, work: Awaitable[bool | None]) -> bool:
        """Whether it has moved something. A gateway that fails is probed sooner."""
        try:
            return bool(await work)
        except (NotReachable, GatewayProblem):
            self.wake()
        except WaystationError as error:
            self._complain(error)
        return False

    def _complain(self, error: WaystationError) -> None:
        """The holder cannot write something down, because its disk is full for instance: tried again after a wait."""
        _log.error("%s", error)
        self._last_problem = str(error)

    def _note(self) -> None:
        """Tells the holder whether there is an uplink."""
        is_up = any(link.reach.is_up for link in self._links)
        if not is_up:
            self._presence.unknown()
        if is_up is not self._is_up:
            self._is_up = is_up
            if not is_up:
                self._plan.uplink_lost()
            self._news.uplink_changed()
            self._certificates.uplink_changed()
            self._holder.set_uplink(is_up)

    async def _wait(self, seconds: float, turn: int) -> None:
        """Until something has changed since `turn`, at most so long."""
        if self._turn != turn:
            await asyncio.sleep(0)
            return
        if self._turned is None or self._turned.done():
            self._turned = asyncio.get_running_loop().create_future()
        await asyncio.wait([self._turned], timeout=seconds)
