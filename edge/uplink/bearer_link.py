"""One bearer at work: finds gateways, sends requests to one, and measures whether it is reachable (M3, M4, G14).

The URL may be an access point, which says which gateways there are now, or a gateway whose access point is switched off
(404); then the URL itself is used. The list is asked for again from time to time. If the access point does not answer,
the gateways known last are tried. After a failure the next request goes to the next gateway.
"""

import math
import time
from collections.abc import Awaitable, Callable
from random import random
from typing import Final, TypeVar

from edge.client.access_point import AccessPoint
from edge.reachability import Reachability, ReachabilityLimits
from edge.reconnect import FullJitter
from edge.uplink.batch_limit import BatchLimit
from edge.uplink.bearers import Bearer
from edge.uplink.errors import GatewayProblem, NotReachable
from edge.uplink.gateway_api import Gateway
from edge.uplink.http_transport import Traffic
from edge.uplink.status import BearerStatus

T = TypeVar("T")
REFRESH_S: Final = 300.0
_PAUSE_FIRST_S: Final = 1.0
_PAUSE_MOST_S: Final = 60.0

OpenGateway = Callable[[AccessPoint], Gateway]


class BearerLink:
    """`open_gateway` makes what talks to a gateway at a URL, over this bearer. `client`: our name, for access points.
    `clock`: seconds, never going back. Raises ValueError for a URL that is none."""

    def __init__(
        self,
        bearer: Bearer,
        client: str,
        open_gateway: OpenGateway,
        batch: BatchLimit,
        limits: ReachabilityLimits,
        *,
        traffic: Traffic | None = None,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random,
    ) -> None:
        self.bearer, self.batch = bearer, batch
        self.reach = Reachability(limits, clock(), draw)
        self._access_point = AccessPoint.parse(bearer.url)
        self._client, self._open_gateway, self._clock = client, open_gateway, clock
        self._gateways: list[AccessPoint] = []  # the next one to try first
        self._failed_at: dict[AccessPoint, float] = {}
        self._refresh_at = 0.0
        self._current: tuple[AccessPoint, Gateway] | None = None
        self._pauses = FullJitter(_PAUSE_FIRST_S, _PAUSE_MOST_S, draw)
        self._paused = 0  # times in sequence
        self._paused_until = 0.0
        self.status = BearerStatus(name=bearer.name, url=str(self._access_point))
        self._traffic = traffic or Traffic()
        self.told: set[str] = set()
        """The originators whose certificates the current gateway has got."""

    @property
    def is_usable(self) -> bool:
        """Whether bundles may be sent over it now."""
        return self.reach.is_up and not self.reach.is_doubtful and self._clock() >= self._paused_until

    async def probe(self) -> None:
        """Measures; never raises an UplinkError."""
        try:
            gateway = await self._gateway()
            round_trip_s = await gateway.probe()
        except NotReachable as error:
            self._failed(error)
        except GatewayProblem as problem:
            if problem.status in (503, 429):
                self.reach.answered(self._clock())  # a gateway of ours, whose message presence is out of reach
            else:
                self._failed(NotReachable(str(problem), is_certain=True))
        else:
            self.reach.answered(self._clock(), round_trip_s)

    async def call(self, request: Callable[[Gateway], Awaitable[T]]) -> T:
        """Sends a request. Raises NotReachable, after which the bearer is in doubt until a probe succeeds, and
        GatewayProblem."""
        try:
            answer = await request(await self._gateway())
        except NotReachable as error:
            self._failed(error)
            raise
        except GatewayProblem as problem:
            self.status.last_problem = str(problem)
            raise
        self.reach.answered(self._clock())
        return answer

    def pause(self, problem: GatewayProblem) -> None:
        """The gateway takes no bundles now: none are sent over this bearer for a while; then another gateway is
        tried."""
        self._paused_until = self._clock() + max(
            problem.retry_after_s, _PAUSE_FIRST_S / 2, self._pauses.delay_s(self._paused)
        )
        self._paused += 1
        self._next_gateway()

    def delivered(self, bundles: int, took_s: float) -> None:
        """A request with bundles was answered."""
        self._paused = 0
        self.batch.sent(took_s)
        self.status.delivered += bundles
        self.status.last_problem = ""

    def network_changed(self) -> None:
        """Connections may lead nowhere now: opens new ones, and probes soon."""
        self._close()
        self._refresh_at = 0.0
        self.reach.network_changed(self._clock())

    def close(self) -> None:
        """Breaks the connections."""
        self._close()

    def current_status(self) -> BearerStatus:
        """What `waystation agent status` shows."""
        status, reach = self.status, self.reach
        status.is_up, status.loss = reach.is_up, round(reach.loss, 3)
        status.round_trip_ms = None if reach.round_trip_s is None else round(reach.round_trip_s * 1000)
        status.last_answer_s = None if reach.answered_at is None else round(self._clock() - reach.answered_at, 1)
        status.gateway = "" if self._current is None else str(self._current[0])
        status.bytes_sent, status.bytes_received = self._traffic.sent, self._traffic.received
        if reach.last_problem:
            status.last_problem = reach.last_problem
        return status

    # -- gateways ------------------------------------------------------------------------------------------------------

    async def _gateway(self) -> Gateway:
        if self._clock() >= self._refresh_at:
            await self._refresh()
        if self._current is None:
            self._current = (self._gateways[0], self._open_gateway(self._gateways[0]))
            self.told = set()  # another object: a request to the gateway before may still be answered
        return self._current[1]

    async def _refresh(self) -> None:
        """Raises NotReachable if nobody says where gateways are, and none is known."""
        asked = self._open_gateway(self._access_point)
        try:
            points = await asked.connect_points(self._client)
            found = [AccessPoint.parse(str(point)) for point in points]
        except GatewayProblem as problem:
            if problem.status != 404:
                self._check_known(NotReachable(str(problem)))
                return
            found = [self._access_point]
        except NotReachable as error:
            self._check_known(error)
            return
        finally:
            asked.close()
        self._refresh_at = self._clock() + REFRESH_S
        self._failed_at = {one: at for one, at in self._failed_at.items() if at > self._clock() - REFRESH_S}
        self._gateways = sorted(found, key=lambda one: self._failed_at.get(one, -math.inf))
        if self._current is not None and self._current[0] not in found:
            self._close()

    def _check_known(self, error: NotReachable) -> None:
        if not self._gateways:
            raise error
        self._refresh_at = self._clock() + REFRESH_S / 10

    def _failed(self, error: NotReachable) -> None:
        self.reach.failed(self._clock(), str(error), is_certain=error.is_certain)
        self._next_gateway()
        if not self.reach.is_up:
            self._refresh_at = 0.0

    def _next_gateway(self) -> None:
        """The one that failed is tried again after those that have not, or longer ago."""
        if self._current is not None:
            self._failed_at[self._current[0]] = self._clock()
        self._close()
        self._gateways.sort(key=lambda one: self._failed_at.get(one, -math.inf))

    def _close(self) -> None:
        if self._current is not None:
            self._current[1].close()
            self._current = None
