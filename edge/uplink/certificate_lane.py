"""Makes our certificate known to gateways, and asks them for those of recipients that we cannot seal to yet (M5, M17).

Contacts pass certificates on, so agents that meet need no gateway for that. Two agents that have an uplink and have
never met find each other this way. A gateway keeps them in memory only: ours is brought again now and then.
"""

from collections.abc import Callable
from typing import Final

from edge.uplink.bearer_link import BearerLink
from edge.uplink.holder import Holder
from schemas.mesh_api import NAMES_MAX, CertificatesRequest, MeshState

ASK_S: Final = 5.0
"""Between two requests, while messages wait for a certificate."""
ANNOUNCE_S: Final = 300.0
"""Between two, if none waits."""


class CertificateLane:
    """Called by the deliverer's housekeeping; `clock`: seconds, never going back."""

    def __init__(self, holder: Holder, clock: Callable[[], float]) -> None:
        self._holder, self._clock = holder, clock
        self._soonest = self._next = 0.0

    def uplink_changed(self) -> None:
        """Another gateway may be reached now: it is told at once."""
        self._soonest = self._next = 0.0

    async def step(self, link: BearerLink) -> None:
        """Exchanges certificates if it is time. Raises NotReachable, GatewayProblem."""
        now, names = self._clock(), self._holder.wanted()[:NAMES_MAX]
        if now < (self._soonest if names else self._next):
            return
        self._soonest, self._next = now + ASK_S, now + ANNOUNCE_S
        request = CertificatesRequest(list(self._holder.certificates(self._holder.name)), list(names))
        found = await link.call(lambda gateway: gateway.certificates(request))
        if found.certificates:
            await self._holder.take_mesh(MeshState(found.certificates))
