"""Publishes what is pending for message presence, in batches; what is not stored is reported again later (M10)."""

from collections.abc import Callable
from typing import Final

from edge.mesh.reports import reported
from edge.reconnect import FullJitter
from edge.uplink.bearer_link import BearerLink
from edge.uplink.errors import GatewayProblem
from edge.uplink.holder import Holder
from schemas.mesh_api import EVENTS_MAX

_STUCK_MOST: Final = 2_000
"""Events that were not stored one by one, and are passed over for a while."""


class Publisher:
    """Events that presence will not store, because a clock is wrong for instance, do not keep back those after them."""

    def __init__(self, holder: Holder, clock: Callable[[], float], draw: Callable[[], float]) -> None:
        self._holder, self._clock = holder, clock
        self._backoff = FullJitter(1.0, 60.0, draw)
        self._failures = 0
        self._most = EVENTS_MAX
        self._next = 0.0
        self._stuck: dict[int, float] = {}  # until when, by number
        self.last_problem = ""

    async def step(self, link: BearerLink) -> bool:
        """Publishes a batch if it is time; whether there may be more to do now. Raises NotReachable, GatewayProblem."""
        now = self._clock()
        if now < self._next:
            return False
        self._stuck = {number: until for number, until in self._stuck.items() if until > now}
        batch = [one for one in self._holder.pending(EVENTS_MAX + len(self._stuck)) if one.number not in self._stuck]
        batch = batch[: self._most]
        if not batch:
            return False
        self._next = now + max(0.5, self._backoff.delay_s(self._failures))
        try:
            answer = await link.call(lambda gateway: gateway.report([reported(one.event) for one in batch]))
        except GatewayProblem as problem:
            self._failures += 1
            self._next += problem.retry_after_s
            self.last_problem = str(problem)
            if problem.is_for_the_request:  # smaller requests find the event that it objects to
                self._most = max(1, len(batch) // 2)
                if len(batch) == 1:
                    self._pass_over([batch[0].number], now)
            raise
        self._most = min(EVENTS_MAX, 2 * self._most)
        stored = [one.number for one, result in zip(batch, answer.results, strict=True) if result.stored]
        await self._holder.published(stored)
        left = {one.number for one in batch} - set(stored)
        if left:
            self._failures += 1
            self.last_problem = next(result.problem for result in answer.results if not result.stored)
            self._pass_over(sorted(left), now)
        else:
            self._failures, self.last_problem = 0, ""
        if stored:
            self._next = self._clock()
        return bool(stored)

    def _pass_over(self, numbers: list[int], now: float) -> None:
        for number in numbers[: _STUCK_MOST - len(self._stuck)]:
            self._stuck[number] = now + 60.0
