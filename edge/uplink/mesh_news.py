"""Fetches the gateways' certificates and the revocation list, now and then and when a signer is unknown (M5)."""

from collections.abc import Callable
from typing import Final

from edge.uplink.bearer_link import BearerLink
from edge.uplink.holder import Holder

SOONEST_S: Final = 30.0
"""Between two fetches, whatever asks for them: an unknown signer must not make a gateway's answers a flood."""


class MeshNews:
    """`every_s`: between two fetches, while nothing asks for one."""

    def __init__(self, holder: Holder, clock: Callable[[], float], every_s: float) -> None:
        self._holder, self._clock, self._every_s = holder, clock, every_s
        self._next = self._soonest = 0.0

    def uplink_changed(self) -> None:
        """It is fetched when the uplink is back."""
        self._next = min(self._next, self._soonest)

    async def poll(self, link: BearerLink) -> None:
        """Fetches it if it is time. Raises NotReachable, GatewayProblem."""
        if self._clock() >= self._next:
            await self._fetch(link)

    async def signer_unknown(self, link: BearerLink) -> bool:
        """Fetches it unless that was just done; whether it was fetched. Raises NotReachable, GatewayProblem."""
        if self._clock() < self._soonest:
            return False
        await self._fetch(link)
        return True

    async def _fetch(self, link: BearerLink) -> None:
        self._soonest = self._next = self._clock() + SOONEST_S
        state = await link.call(lambda gateway: gateway.mesh())
        self._next = self._clock() + self._every_s
        await self._holder.take_mesh(state)
