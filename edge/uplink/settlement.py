"""Settles messages by receipts, however these come, and logs what message presence is to know of it (M12, M13)."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from bundles.receipt import Receipt, VerifiedReceipt
from edge.mesh import reports
from edge.uplink.bearer_link import BearerLink
from edge.uplink.delivery_plan import DeliveryPlan, Entry
from edge.uplink.errors import GatewayProblem, NotReachable
from edge.uplink.holder import Holder
from edge.uplink.mesh_news import MeshNews
from edge.uplink.receipt_check import NoReceipt, checked
from schemas.events import MessagePresenceEvent

_AT_ONCE: Final = 50
"""Signatures checked before others on the event loop have their turn; one takes about 0.2 ms."""


class Settlement:
    """Only a verified receipt settles a message; a signer that is not known is looked up once."""

    def __init__(self, holder: Holder, plan: DeliveryPlan, news: MeshNews, wall_us: Callable[[], int]) -> None:
        self._holder, self._plan, self._news, self._wall_us = holder, plan, news, wall_us

    async def settle(
        self, link: BearerLink, answers: Sequence[tuple[Entry, bytes]], *, by_us: bool
    ) -> list[tuple[Entry, str]]:
        """Settles what has a valid receipt, and returns the others, with the reason. `by_us`: this agent delivered
        them. The events are logged first: what is settled twice does no harm, what is never reported may."""
        good, bad = await self._sorted(answers)
        if any(error.is_unknown for _, _, error in bad) and await self._has_news(link):
            more, bad = await self._sorted([(entry, raw) for entry, raw, _ in bad])
            good += more
        events = [event for entry, receipt in good for event in self._events(entry, receipt, by_us=by_us)]
        if events:
            await self._holder.report(events)
        if good:
            await self._holder.settle([receipt for _, receipt in good])
        return [(entry, str(error)) for entry, _, error in bad]

    async def _sorted(
        self, answers: Sequence[tuple[Entry, bytes]]
    ) -> tuple[list[tuple[Entry, VerifiedReceipt]], list[tuple[Entry, bytes, NoReceipt]]]:
        good, bad = [], []
        for number, (entry, raw) in enumerate(answers):
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
            try:
                good.append((entry, checked(raw, entry.header, self._holder.signers)))
            except NoReceipt as error:
                bad.append((entry, raw, error))
        return good, bad

    async def _has_news(self, link: BearerLink) -> bool:
        try:
            return await self._news.signer_unknown(link)
        except (NotReachable, GatewayProblem):
            return False

    def _events(self, entry: Entry, receipt: Receipt, *, by_us: bool) -> list[MessagePresenceEvent]:
        """None for a message of which nobody else has heard."""
        if not self._plan.needs_claim(entry):
            return []
        name, now_us = self._holder.name, self._wall_us()
        events = [reports.delivered(entry.header, name, receipt.signer, now_us)] if by_us else []
        if entry.header.originator == name:
            events.append(reports.retired(entry.header, name, now_us))
        return events
