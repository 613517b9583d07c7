"""Tells message presence what the platform has taken, so that other agents stop carrying it, and what recipients have
got (M9, M12).

A report follows the message onto Kafka, never the other way round: a `delivered` without a message would make carriers
drop their copies of it. Nobody waits for it, because the receipt says what `ingress` has, and waiting would double the
time of a request. If Kafka refuses a report it is made again until it is stored. If the gateway is killed between the
two, the report is missing; whoever brings another copy makes the next one.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from bundles.bundle import Header
from gateway.shard.message_presence import MessagePresence, Place
from schemas.events import MessagePresenceEvent
from schemas.identity import inbox_of

_AGAIN_S: Final = 5.0
WAITING_MAX: Final = 100_000

log = structlog.get_logger(__name__)


class DeliveryReports:
    """`agent` is the platform's name in the mesh, which nobody who reports over HTTP can have."""

    def __init__(
        self, presence: MessagePresence, agent: Callable[[], str], clock: Callable[[], float], counts: Counter[str]
    ) -> None:
        self._presence = presence
        self._agent = agent
        self._clock = clock
        self._counts = counts
        self._waiting: deque[MessagePresenceEvent] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def delivered(self, message_id: str, header: Header) -> None:
        """The platform has stored the message."""
        self._report(
            MessagePresenceEvent(
                id=message_id,
                event="delivered",
                agent=self._agent(),
                at_us=int(self._clock() * 1e6),
                origin=header.originator,
                peer=header.destination,
            )
        )

    def received(self, message_id: str, originator: str, recipient: str) -> None:
        """The recipient has the message, says its receipt."""
        self._report(
            MessagePresenceEvent(
                id=message_id,
                event="delivered",
                agent=recipient,
                at_us=int(self._clock() * 1e6),
                origin=originator,
                peer=inbox_of(recipient),
            )
        )

    def _report(self, event: MessagePresenceEvent) -> None:
        self._presence.begin(event).add_done_callback(partial(self._reported, event))

    def _reported(self, event: MessagePresenceEvent, stored: asyncio.Future[Place]) -> None:
        if stored.cancelled() or stored.exception() is None:
            return
        self._counts["mesh_reports_refused"] += 1
        if len(self._waiting) >= WAITING_MAX:
            log.error("report to message presence lost: too many wait for Kafka", message=event.id)
            return
        self._waiting.append(event)
        if self._timer is None:
            log.warning("report to message presence refused; it is made again", reason=str(stored.exception()))
            self._timer = asyncio.get_running_loop().call_later(_AGAIN_S, self._again)

    def _again(self) -> None:
        self._timer = None
        waiting, self._waiting = self._waiting, deque()
        for event in waiting:
            self._report(event)
