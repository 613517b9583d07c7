"""Whether this gateway may run beside the others of its site (G4, G14).

| beside one that lives                         | then                         |
|-----------------------------------------------|------------------------------|
| of another name, and both share the shards    | they fit                     |
| of another name, and either has all shards    | the one that began last ends |
| of the same name                              | see below                    |

Whoever has all shards knows nothing of leases. Beside it another gateway would deliver everything twice, and each would
overwrite the sessions of the other.

Leases, heartbeats and links know a gateway by its name, and of a name only the process that began last counts. So the
earlier one is dead for everyone, and ends when it hears of the later one: it may have stood still for so long that it
was replaced. Whoever has all shards lets the earlier process go on.

A process listens before it serves anything, or writes what others read. It waits only if one that does not fit has left
a record, and no last word. One that has all shards does not wait for an earlier process of its own name: that was
killed, and its clients wait. If it lives all the same, it is heard soon after.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.errors import ClusterError
from gateway.members.table import MemberTable
from schemas.member_settings import GatewayClusterSettings
from schemas.members import Heartbeat

SILENT_BEATS: Final = 3
"""Heartbeats in a row whose absence tells that a gateway does not live."""

_NAMES: Final = "give each gateway of a site a gateway.name of its own"


class Companions:
    """Of the gateway `name`. `members` has what was on the topic before; `on_fatal` ends this process."""

    def __init__(
        self, name: str, settings: GatewayClusterSettings, members: MemberTable, on_fatal: Callable[[Exception], None]
    ) -> None:
        loop = asyncio.get_running_loop()
        self._name, self._shares, self._on_fatal = name, settings.enabled, on_fatal
        self._boot: int | None = None
        self._found: asyncio.Future[str] = loop.create_future()
        self._until = loop.time() + SILENT_BEATS * settings.heartbeat_s
        self._may_live = any(
            not self._fits(one.name, one.record) and (self._shares or one.name != name) for one in members
        )

    async def alone(self) -> None:
        """Returns once it is clear that nobody lives beside whom this process may not run. Raises ClusterError."""
        if self._may_live:
            await asyncio.wait([self._found], timeout=self._until - asyncio.get_running_loop().time())
        self._check()

    def begin(self, boot: int) -> None:
        """The process has its number; heartbeats with it follow. Raises ClusterError, as `alone`."""
        self._boot = boot
        self._check()

    def heard(self, name: str, record: Heartbeat) -> None:
        """A heartbeat has come to the topic."""
        boot, is_own_name = self._boot, name == self._name
        if is_own_name and record.boot == boot:
            return
        if is_own_name and self._shares and boot is not None:
            if record.boot > boot:
                replaced = f"another process has started as the gateway {name}, and has its place now: {_NAMES}"
                self._on_fatal(ClusterError(replaced))
        elif self._fits(name, record):
            return
        elif boot is None:
            if not self._found.done():
                self._found.set_result(self._reason(name))
        elif record.boot < boot:
            self._on_fatal(ClusterError(self._reason(name)))

    def _check(self) -> None:
        if self._found.done():
            raise ClusterError(self._found.result())

    def _fits(self, name: str, record: Heartbeat) -> bool:
        return record.state == "gone" or (name != self._name and self._shares and record.shares)

    def _reason(self, name: str) -> str:
        if name == self._name:
            return f"a gateway with the name {name} is running already: {_NAMES}, or stop the other one first"
        return (
            f"the gateway {name} is running already, and {'it' if self._shares else 'this one'} does not share its "
            "shards: gateways run side by side only if gateway.cluster.enabled = true at all of them"
        )
