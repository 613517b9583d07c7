"""Notices that another process runs under this gateway's name (G4, G14).

Leases, heartbeats and links know a gateway by its name, and of a name only the process that began last counts. So of
two gateways with one name the earlier is dead for everyone: it gets no shard, and its clients go elsewhere. The two
also share certificates, and on one machine the names of their sockets. So they must not run side by side:

* A process that finds at its start that one of its name still writes heartbeats does not join.
* A process that hears of a later one ends. It may have stood still for so long that it was replaced.
"""

import asyncio
from collections.abc import Callable

from gateway.errors import ClusterError
from gateway.members.table import GatewayMember
from schemas.leases import Claimant
from schemas.members import Heartbeat


class Namesakes:
    """Of the process `me`, which has just read what was on the topic `members`; `earlier` is what it found there under
    its own name. An earlier process that lives is heard within `silent_s`. `on_fatal` ends this process."""

    def __init__(
        self, me: Claimant, earlier: GatewayMember | None, silent_s: float, on_fatal: Callable[[Exception], None]
    ) -> None:
        self._me, self._on_fatal = me, on_fatal
        self._loop = asyncio.get_running_loop()
        self._may_live = earlier is not None and earlier.record.state != "gone"
        self._until = self._loop.time() + silent_s
        self._heard = asyncio.Event()

    def heard(self, name: str, record: Heartbeat) -> None:
        """A heartbeat has come to the topic."""
        if name != self._me.name or record.boot == self._me.boot:
            return
        if record.boot > self._me.boot:
            self._on_fatal(
                ClusterError(
                    f"another process has started as the gateway {name}, and has its place now: give each gateway of "
                    "a site a gateway.name of its own"
                )
            )
        elif record.state != "gone":
            self._heard.set()

    async def alone(self) -> None:
        """Returns once it is clear that no earlier process of the name lives; at once if the last one has ended in
        order. Raises ClusterError if one does."""
        if not self._may_live:
            return
        try:
            async with asyncio.timeout_at(self._until):
                await self._heard.wait()
        except TimeoutError:
            return
        raise ClusterError(
            f"a gateway with the name {self._me.name} is running already: give this one a gateway.name of its own, "
            "or stop the other one first"
        )
