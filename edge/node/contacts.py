"""The contacts that run now: one for each peer, refreshed when there is something new.

If two agents dial each other at once there are two links between them. Both ends know both names and who has dialled,
so both keep the same one: the link dialled by the agent whose name is lower. Of two with the same dialler the newer is
kept: the dialler opens one only if it has lost the other.

A refresh looks at all bundles. So refreshes come at once after a quiet time, but never take more than a fifth of the
time.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from bundles.certificates import Certificate
from edge.answers import Changes
from edge.node.recent_peers import RecentPeers

SHARE: Final = 4
"""A refresh is followed by a pause of so many times its duration."""

_log: Final = logging.getLogger("waystation.mesh")


class PeerStatus(msgspec.Struct, frozen=True):
    """A peer, for people. `state` is "connected"; "unreachable" with the `problem` if its round trip takes too long; or
    "waiting" with the `problem` of the last attempt. `round_trip_ms` is smoothed; None before the first
    measurement."""

    name: str
    address: str
    state: str
    dialled: bool = False
    has_uplink: bool = False
    connected_s: float = 0.0
    problem: str = ""
    round_trip_ms: float | None = None


class Running(Protocol):
    """A contact on its link; see :class:`edge.node.contact_driver.ContactDriver`."""

    certificate: Certificate
    dialled: bool

    @property
    def is_reachable(self) -> bool: ...
    def refresh(self) -> None: ...
    def end(self, detail: str) -> None: ...
    def status(self) -> PeerStatus: ...


class Contacts:
    """`own_name`: this agent's."""

    def __init__(self, own_name: str, measure_s: Callable[[], float] = time.perf_counter) -> None:
        self._own_name, self._measure_s = own_name, measure_s
        self._running: dict[str, Running] = {}
        self.recent = RecentPeers()
        self._is_due = False
        self._not_before = 0.0
        self._changes = Changes()

    def __contains__(self, name: str) -> bool:
        return name in self._running

    def __len__(self) -> int:
        return len(self._running)

    def begin(self, contact: Running) -> bool:
        """Takes a contact in; False if the one that there is stays, and this one must be closed."""
        name = contact.certificate.name
        before = self._running.get(name)
        if before is not None:
            if before.dialled != contact.dialled and self._is_kept(name, dialled=before.dialled):
                return False
            before.end("there is another link between us")
        self._running[name] = contact
        self.recent.met(name)
        self._changes.wake()
        return True

    def over(self, contact: Running) -> None:
        """It has ended."""
        name = contact.certificate.name
        if self._running.get(name) is contact:
            del self._running[name]
            self._changes.wake()

    @property
    def unreachable(self) -> int:
        """How many peers count as not reachable though there is a contact."""
        return sum(not contact.is_reachable for contact in self._running.values())

    async def until_gone(self, name: str) -> None:
        """Returns when there is no contact with the peer."""
        await self._changes.until(lambda: name not in self._running)

    def end_all(self, detail: str, where: Callable[[Certificate], bool] = lambda _: True) -> None:
        """Ends the contacts whose peers' certificates fulfil a condition."""
        for contact in list(self._running.values()):
            if where(contact.certificate):
                contact.end(detail)

    def refresh(self) -> None:
        """There is something new to send: soon."""
        if not self._is_due and self._running:
            self._is_due = True
            loop = asyncio.get_running_loop()
            loop.call_at(max(loop.time(), self._not_before), self._refresh)

    def statuses(self) -> list[PeerStatus]:
        return [contact.status() for contact in self._running.values()]

    def _refresh(self) -> None:
        self._is_due = False
        began = self._measure_s()
        for contact in list(self._running.values()):
            contact.refresh()
        self._not_before = asyncio.get_running_loop().time() + SHARE * (self._measure_s() - began)

    def _is_kept(self, name: str, *, dialled: bool) -> bool:
        dialler, other = (self._own_name, name) if dialled else (name, self._own_name)
        return dialler < other
