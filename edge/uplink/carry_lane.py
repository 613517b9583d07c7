"""Takes along what waits for devices that this agent may meet, and brings their receipts to the platform (M15, M21).

*Fetching*, every `fetch_s`: the agent asks a gateway for what waits for the devices that it has met, with the position
up to which it has got it, in pages, and gives each bundle to the holder. A position moves on when all of a page's
bundles for the device are on disk here. So what does not fit now is asked for again after `OFF_S`, and a failure or a
restart costs a repetition, never a message. At most `bundles` and `size` bytes are taken in a round.

*Receipts* go to a gateway as they are learnt. Its answer ends the matter, unless it says `later`: then the receipt is
brought again with the next round. A restart brings all again, which is accepted and ignored.

An older gateway, or one without the mesh, answers 404; it is asked again after `OFF_S`.
"""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from bundles import bundle as bundle_format
from bundles.errors import BundleError
from bundles.receipt import Receipt
from edge.uplink.bearer_link import BearerLink
from edge.uplink.carry_holder import CarryHolder
from edge.uplink.errors import GatewayProblem
from schemas.mesh_api import (
    CERTIFICATES_MAX,
    DEVICES_MAX,
    RECEIPTS_MAX,
    ReceiptsRequest,
    WaitingAnswer,
    WaitingRequest,
)

OFF_S: Final = 900.0
LATER_MAX: Final = 10_000

_log: Final = logging.getLogger("waystation.uplink")


class FetchLimits(NamedTuple):
    """`bundles` and `size` (bytes) are those of one round. `fetch_s` 0: none are fetched; receipts are brought."""

    fetch_s: float = 60.0
    bundles: int = 1_000
    size: int = 16 << 20


class CarryLane:
    """`clock`: seconds, never going back. Read-only: `taken`, bundles taken along; `settled`, receipts that ended
    something at the platform; `last_problem`."""

    def __init__(self, holder: CarryHolder, limits: FetchLimits, clock: Callable[[], float]) -> None:
        self._holder, self._limits, self._clock = holder, limits, clock
        self._positions: dict[str, int] = {}
        self._next_fetch = self._next_receipts = self._next_later = 0.0
        self._left, self._left_bytes = limits.bundles, limits.size
        self._brought = 0
        self._later: dict[str, Receipt] = {}
        self.taken = self.settled = 0
        self.last_problem = ""

    async def step(self, link: BearerLink) -> bool:
        """One request or two; whether there may be more to do now. Raises NotReachable, GatewayProblem."""
        is_moving = await self._bring(link) if self._clock() >= self._next_receipts else False
        if self._limits.fetch_s and self._clock() >= self._next_fetch:
            is_moving |= await self._fetch(link)
        return is_moving

    # -- what waits ----------------------------------------------------------------------------------------------------

    async def _fetch(self, link: BearerLink) -> bool:
        devices = list(self._holder.devices())[:DEVICES_MAX]
        self._positions = {name: self._positions.get(name, 0) for name in devices}
        self._next_fetch = self._clock() + self._limits.fetch_s
        if not devices:
            return False
        request = WaitingRequest(dict(self._positions))
        try:
            answer = await link.call(lambda gateway: gateway.waiting(request))
        except GatewayProblem as problem:
            self._next_fetch = self._clock() + self._wait_s(problem)
            return False  # other requests go on
        for name, reason in answer.refused.items():
            _log.debug("nothing is taken along for %s: %s", name, reason)
        are_here = await self._take(answer)
        has_more = are_here and answer.more and self._left > 0 and self._left_bytes > 0
        if has_more:
            self._next_fetch = self._clock()
            return True
        if not are_here:  # the store is full: not the same bytes every minute
            self._next_fetch = self._clock() + max(self._limits.fetch_s, OFF_S)
        self._left, self._left_bytes = self._limits.bundles, self._limits.size
        return False

    async def _take(self, answer: WaitingAnswer) -> bool:
        """Takes the bundles of a page; whether all are here, so that the next page can be asked for."""
        if answer.certificates:
            await self._holder.learn(answer.certificates[:CERTIFICATES_MAX])
        missing = set[str]()
        for raw in answer.bundles:
            try:
                bundle = bundle_format.decode(raw)
            except BundleError as error:
                self.last_problem = f"a gateway gives a bundle that cannot be read: {error}"
                continue
            recipient = bundle.header.recipient
            if recipient not in self._positions:
                self.last_problem = f"a gateway gives message {bundle.message_id}, which nobody has asked for"
                continue
            if recipient in missing or not await self._holder.carry(bundle):
                missing.add(recipient)
                continue
            self.taken += 1
            self._left -= 1
            self._left_bytes -= len(raw)
        for name, position in answer.positions.items():
            if name in self._positions and name not in missing:
                self._positions[name] = position
        return not missing

    # -- receipts ------------------------------------------------------------------------------------------------------

    async def _bring(self, link: BearerLink) -> bool:
        receipts, last = self._holder.receipts_after(self._brought, RECEIPTS_MAX)
        found = {one.message_id: one for one in receipts}
        if self._clock() >= self._next_later:
            for one in list(self._later.values())[: RECEIPTS_MAX - len(found)]:
                found.setdefault(one.message_id, one)
            self._next_later = self._clock() + (self._limits.fetch_s or OFF_S)
        if not found:
            self._brought = last
            return False
        certificates = list[bytes]()
        for name in dict.fromkeys(one.signer for one in found.values()):
            certificates += self._holder.certificates(name)
        request = ReceiptsRequest([one.encoded for one in found.values()], certificates[:CERTIFICATES_MAX])
        try:
            answer = await link.call(lambda gateway: gateway.bring_receipts(request))
        except GatewayProblem as problem:
            self._next_receipts = self._clock() + self._wait_s(problem)
            return False  # other requests go on
        for one, result in zip(found.values(), answer.results, strict=True):
            self._later.pop(one.message_id, None)
            if result.outcome == "later" and len(self._later) < LATER_MAX:
                self._later[one.message_id] = one
            if result.outcome in ("later", "refused"):
                self.last_problem = f"{one.message_id}: {result.reason}"
            self.settled += result.outcome == "settled"
        self._brought = last
        return bool(receipts)

    def _wait_s(self, problem: GatewayProblem) -> float:
        self.last_problem = str(problem)
        seconds = OFF_S if problem.status in (403, 404, 405) else self._limits.fetch_s or OFF_S
        return max(seconds, problem.retry_after_s)
