"""Posts bundles in batches, and does what each result asks for (M7, M11)."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final

from bundles import bundle as bundle_format
from bundles.bundle import Bundle
from edge.mesh import reports
from edge.uplink.bearer_link import BearerLink
from edge.uplink.bearers import BearerState
from edge.uplink.delivery_plan import DeliveryPlan, Entry
from edge.uplink.errors import GatewayProblem, NotReachable
from edge.uplink.gateway_api import Gateway
from edge.uplink.holder import Holder
from edge.uplink.presence_lane import PresenceLane
from edge.uplink.presence_view import PresenceReach
from edge.uplink.settlement import Settlement
from schemas.mesh_api import CERTIFICATES_MAX, BundlesAnswer, BundlesRequest

_log: Final = logging.getLogger("waystation.uplink")


class PostLane:
    """`last_problem`: why a bundle was not taken last."""

    def __init__(
        self,
        holder: Holder,
        plan: DeliveryPlan,
        presence: PresenceReach,
        claims: PresenceLane,
        settlement: Settlement,
        clock: Callable[[], float],
        wall_us: Callable[[], int],
    ) -> None:
        self._holder, self._plan, self._presence, self._claims = holder, plan, presence, claims
        self._settlement, self._clock, self._wall_us = settlement, clock, wall_us
        self.last_problem = ""

    async def step(self, link: BearerLink, states: Sequence[BearerState]) -> bool:
        """One request; whether there may be more to do now. Raises NotReachable, GatewayProblem."""
        at = next(state for state in states if state.bearer is link.bearer)
        batch = link.batch
        now = self._clock()
        entries = self._plan.to_post(at, states, now, self._presence.out_since(now), batch.bundles, batch.size)
        if not entries:
            return False
        try:
            return await self._post(link, entries)
        finally:
            self._plan.release(entries)

    async def _post(self, link: BearerLink, entries: Sequence[Entry]) -> bool:
        loaded_at = self._clock()
        loaded = {one.message_id: one for one in await self._holder.load([entry.held for entry in entries])}
        for entry in entries:
            if entry.id not in loaded:  # a receipt came meanwhile, or the store is damaged
                self._plan.later(entry, loaded_at, holds_back=False)
        entries = [entry for entry in entries if entry.id in loaded]
        if not entries:
            return False
        began = self._clock()
        size = sum(entry.held.size for entry in entries)
        sent: list[Entry] = []
        told = link.told

        async def post(gateway: Gateway) -> BundlesAnswer:
            nonlocal told
            told = link.told
            return await gateway.post_bundles(self._request(link, entries, sent, loaded, loaded_at))

        try:
            async with self._claims_renewed(link, entries):
                answer = await link.call(post)
        except NotReachable:
            link.batch.failed(len(entries), size)
            raise
        except GatewayProblem as problem:
            return await self._problem(link, entries, size, problem)
        took_s = self._clock() - began
        told.update(entry.header.originator for entry in sent)
        settled = await self._results(link, sent, answer)
        if settled:
            link.delivered(settled, took_s)
        return settled > 0

    def _request(
        self,
        link: BearerLink,
        entries: Sequence[Entry],
        sent: list[Entry],
        loaded: Mapping[str, Bundle],
        loaded_at: float,
    ) -> BundlesRequest:
        """The request to the link's current gateway; `sent` gets what is in it: as many as their certificates fit."""
        now, certificates, with_certificates = self._clock(), list[bytes](), set(link.told)
        bundles = []
        for entry in entries:
            originator = entry.header.originator
            if originator not in with_certificates:
                more = self._holder.certificates(originator)
                if len(certificates) + len(more) > CERTIFICATES_MAX:
                    break
                certificates += more
                with_certificates.add(originator)
            bundles.append(bundle_format.encode(loaded[entry.id].carried(int(now - loaded_at))))
            sent.append(entry)
        return BundlesRequest(bundles, certificates)

    async def _results(self, link: BearerLink, entries: Sequence[Entry], answer: BundlesAnswer) -> int:
        """How many are settled or refused."""
        now, taken, done = self._clock(), [], 0
        for entry, result in zip(entries, answer.results, strict=True):
            match result.outcome:
                case "taken":
                    taken.append((entry, result.receipt))
                case "later":
                    self._plan.later(entry, now)
                    link.told.discard(entry.header.originator)  # perhaps it has forgotten the certificate
                    self.last_problem = f"{entry.id}: {result.reason}"
                case "refused":
                    await self._refused(entry, result.reason)
                    done += 1
        without = await self._settlement.settle(link, taken, by_us=True)
        for entry, reason in without:
            self._plan.later(entry, now, holds_back=False)
            self.last_problem = reason
        if without and len(without) == len(taken):
            link.pause(GatewayProblem(200, "", f"taken, but {without[0][1]}"))
        return done + len(taken) - len(without)

    async def _refused(self, entry: Entry, reason: str) -> None:
        _log.warning("the platform refuses message %s of %s: %s", entry.id, entry.header.originator, reason)
        self.last_problem = f"{entry.id}: {reason}"
        if self._plan.needs_claim(entry):
            name = self._holder.name
            await self._holder.report([reports.refused(entry.header, name, reason, self._wall_us())])
        self._plan.refuse(entry, reason)
        await self._holder.refused(entry.held.bundle, reason)

    async def _problem(self, link: BearerLink, entries: Sequence[Entry], size: int, problem: GatewayProblem) -> bool:
        """The whole request was not taken. If the gateway objects to its contents, smaller ones find the bundle that it
        objects to; that one waits, since another gateway may take it. One that is too large alone is refused: it does
        not become smaller."""
        self.last_problem = str(problem)
        if not problem.is_for_the_request:
            link.pause(problem)
            raise problem
        if len(entries) > 1:
            link.batch.failed(len(entries), size)
            return True
        if problem.is_too_large:
            await self._refused(entries[0], str(problem))
            return True
        self._plan.later(entries[0], self._clock(), holds_back=False)
        return False

    @contextlib.asynccontextmanager
    async def _claims_renewed(self, link: BearerLink, entries: Sequence[Entry]) -> AsyncIterator[None]:
        """Renews the claims of a slow transfer, before half of their time is over."""
        claimed = [entry for entry in entries if entry.lease_until]
        if not claimed:
            yield
            return
        task = asyncio.create_task(self._renew(link, claimed))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _renew(self, link: BearerLink, entries: Sequence[Entry]) -> None:
        lease_s = self._plan.limits.lease_s
        wait_s = min(entry.lease_until for entry in entries) - lease_s / 2 - self._clock()
        while True:
            await asyncio.sleep(max(0.0, wait_s))
            with contextlib.suppress(NotReachable, GatewayProblem):
                await self._claims.claim(link, [entry for entry in entries if entry.lease_until])
            wait_s = lease_s / 3
