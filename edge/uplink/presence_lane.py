"""Asks message presence about messages of which others may have copies, and claims them (M11, M13)."""

from collections.abc import Callable, Sequence
from typing import Final

from edge.mesh import reports
from edge.uplink.bearer_link import BearerLink
from edge.uplink.bearers import BearerState
from edge.uplink.delivery_plan import DeliveryPlan, Entry
from edge.uplink.errors import GatewayProblem, NotReachable
from edge.uplink.holder import Holder
from edge.uplink.presence_view import PresenceReach, Verdict, verdict
from edge.uplink.settlement import Settlement
from schemas.mesh_api import EVENTS_MAX, IDS_MAX, PresenceAnswer, ReportResult

MESSAGES_MAX: Final = min(EVENTS_MAX // 2, IDS_MAX)
"""In one round: each may need two events, `attempting` and `claimed`."""


class PresenceLane:
    """`clock`: as the plan's. `wall_us`: microseconds since the epoch. `granted`, `refused`: how many claims were, not
    counting renewals."""

    def __init__(
        self,
        holder: Holder,
        plan: DeliveryPlan,
        presence: PresenceReach,
        settlement: Settlement,
        clock: Callable[[], float],
        wall_us: Callable[[], int],
    ) -> None:
        self._holder, self._plan, self._presence, self._settlement = holder, plan, presence, settlement
        self._clock, self._wall_us = clock, wall_us
        self._last_us = 0
        self.granted = self.refused = 0

    async def step(self, link: BearerLink, states: Sequence[BearerState]) -> bool:
        """One round; whether presence has answered. Raises NotReachable, GatewayProblem."""
        now = self._clock()
        if not self._presence.is_due(now):
            return False
        at = next(state for state in states if state.bearer is link.bearer)
        entries = self._plan.to_ask(at, states, now, MESSAGES_MAX)
        if not entries:
            return False
        try:
            answer = await self._asked(link, entries)
            await self.claim(link, await self._judge(link, entries, answer))
        finally:
            self._plan.release(entries)
        return True

    async def claim(self, link: BearerLink, entries: Sequence[Entry]) -> None:
        """Asks for claims, or renews them; the plan learns what was granted. Raises NotReachable, GatewayProblem."""
        for start in range(0, len(entries), MESSAGES_MAX):
            await self._claim(link, entries[start : start + MESSAGES_MAX])

    async def _asked(self, link: BearerLink, entries: Sequence[Entry]) -> PresenceAnswer:
        try:
            answer = await link.call(lambda gateway: gateway.query([entry.id for entry in entries]))
        except (NotReachable, GatewayProblem) as error:
            self._presence.failed(self._clock(), error.retry_after_s if isinstance(error, GatewayProblem) else 0.0)
            raise
        self._presence.answered()
        return answer

    async def _judge(self, link: BearerLink, entries: Sequence[Entry], answer: PresenceAnswer) -> list[Entry]:
        """Settles what has a receipt, leaves what is left to others, and asks again later about what the answer leaves
        out; the rest is to be claimed."""
        receipts = [(entry, answer.receipts[entry.id]) for entry in entries if entry.id in answer.receipts]
        await self._settlement.settle(link, receipts, by_us=False)
        now, now_ms = self._clock(), self._wall_us() / 1000
        to_claim, left_out = [], set(answer.left_out)
        for entry in entries:
            if not self._plan.has(entry):
                continue
            if entry.id in left_out:
                self._plan.unjudged(entry, now)
                continue
            state = answer.states.get(entry.id)
            match verdict(state, self._holder.name, now_ms):
                case Verdict.CLAIM:
                    to_claim.append(entry)
                case Verdict.TAKEN if state is not None and state.claim is not None:
                    self._plan.withheld(entry, now, now + (state.claim.until_ms - now_ms) / 1000)
                case _:
                    self._plan.withheld(entry, now)
        return to_claim

    async def _claim(self, link: BearerLink, entries: Sequence[Entry]) -> None:
        asked_at, at_us, name = self._clock(), self._next_us(), self._holder.name
        first = [entry for entry in entries if not entry.is_reported and entry.header.originator != name]
        events = [reports.attempting(entry.header, name, at_us) for entry in first]
        events += [reports.claimed(entry.header, name, at_us) for entry in entries]
        if not events:
            return
        try:
            answer = await link.call(lambda gateway: gateway.report([reports.reported(event) for event in events]))
        except (NotReachable, GatewayProblem):
            for entry in entries:  # a gateway may answer queries, but not claims
                self._plan.unjudged(entry, self._clock())
            raise
        self._presence.answered()
        for entry, result in zip(first, answer.results, strict=False):
            entry.is_reported = result.stored
        for entry, result in zip(entries, answer.results[len(first) :], strict=True):
            self._judged(entry, result, asked_at)

    def _judged(self, entry: Entry, result: ReportResult, asked_at: float) -> None:
        now = self._clock()
        if not result.stored or result.granted is None:
            self._plan.unjudged(entry, now)
        elif result.granted:
            self.granted += entry.lease_until <= asked_at
            self._plan.granted(entry, asked_at)
        else:
            self.refused += 1
            self._plan.withheld(entry, now)

    def _next_us(self) -> int:
        """The time of a request for a claim: each later than the one before."""
        self._last_us = max(self._last_us + 1, self._wall_us())
        return self._last_us
