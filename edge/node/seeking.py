"""How a node comes to know other agents: addresses in the settings, and those that discovery finds (M5)."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from edge.node.contacts import Contacts, PeerStatus
from edge.node.dialer import Dialer
from edge.node.links import Links
from edge.node.settings import MeshSettings, parse_peer
from edge.reconnect import FullJitter

if TYPE_CHECKING:
    from edge.node.discovery import Discovery

ALL_NETWORKS = ("0.0.0.0", "::")


class Seeking:
    """`name`: the agent's own. :meth:`start` it once links are accepted. Read-only: `dialer`."""

    def __init__(
        self, name: str, settings: MeshSettings, links: Links, contacts: Contacts, backoff: Callable[[], FullJitter]
    ) -> None:
        self._name, self._settings = name, settings
        self.dialer = Dialer(name, links, contacts, backoff)
        self._discovery: Discovery | None = None

    def start(self, port: int) -> list[asyncio.Task[None]]:
        """Begins; `port`: where links are accepted. Returns the tasks that must not end."""
        for peer in self._settings.peers:
            self.dialer.keep(parse_peer(peer))
        if not self._settings.discovery:
            return []
        from edge.node.discovery import Discovery  # zeroconf takes memory: only when it is used

        host = self._settings.host
        interfaces = None if host in ALL_NETWORKS else [host]
        dialer = self.dialer
        self._discovery = Discovery(
            self._name, port, dialer.add, dialer.remove, dialer.has_answered, interfaces=interfaces
        )
        return [asyncio.create_task(self._discovery.run())]

    def statuses(self) -> list[PeerStatus]:
        """The addresses to which there is no contact."""
        return self.dialer.statuses()

    async def network_changed(self) -> None:
        """Addresses or routes of this machine have come or gone: addresses without a contact are tried at once, and
        discovery looks anew."""
        self.dialer.try_now()
        if self._discovery is not None:
            await self._discovery.check()

    async def stop(self) -> None:
        """Says goodbye to those that discovery tells of this agent. Before :meth:`close`, while its tasks run."""
        if self._discovery is not None:
            await self._discovery.close()

    async def close(self) -> None:
        """Ends all links that were dialled."""
        await self.dialer.close()
