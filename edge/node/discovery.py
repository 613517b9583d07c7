"""Finds peers in the local network: DNS-SD (RFC 6763) over multicast DNS (RFC 6762), with the package zeroconf (M5).

An agent announces its name and the version of the contact protocol, and dials each agent that it sees. Anybody in the
network can announce anything: what comes of it is at most a connection to a port, on which TLS then fails. So addresses
are bounded and dialled with backoff (:mod:`edge.node.dialer`), which also damps peers that come and go. Beyond the
bound the oldest one at which no agent has answered gives way, so that forged announcements keep no peer out.

zeroconf does not notice that the machine's addresses have changed (zeroconf#976: deaf after roaming). So they are
compared now and then, and zeroconf is told.

This is the only module that imports zeroconf; it is imported when discovery is on.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence
from typing import Final

import ifaddr
from zeroconf import Error, InterfaceChoice, IPVersion, ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from edge.node.dialer import Address
from edge.node.errors import DiscoveryError

SERVICE: Final = "_waystation-mesh._tcp.local."
VERSION: Final = "1"
"""Of the contact protocol; agents that announce another one are passed over."""
INTERFACES_S: Final = 5.0
RESOLVE_MS: Final = 3_000
FOUND_MAX: Final = 200
"""Announcements that are remembered, and as many whose address is being asked for."""

_log: Final = logging.getLogger("waystation.mesh")

OnFound = Callable[[Address, str], None]
OnGone = Callable[[Address], None]


class Discovery:
    """`name`: the agent's. `port`: where it accepts links. `interfaces`: addresses to use; None: all. `on_found` is
    called with an address and the name that is announced there, `on_gone` when it is announced no more, or gives way.
    `has_answered`: whether an agent of the mesh was reached at an address."""

    def __init__(
        self,
        name: str,
        port: int,
        on_found: OnFound,
        on_gone: OnGone,
        has_answered: Callable[[Address], bool],
        *,
        interfaces: Sequence[str] | None = None,
        addresses: Callable[[], frozenset[str]] | None = None,
    ) -> None:
        self._name, self._port, self._on_found, self._on_gone = name, port, on_found, on_gone
        self._has_answered = has_answered
        self._interfaces = list(interfaces) if interfaces else InterfaceChoice.All
        self._fixed = frozenset(interfaces) if interfaces else None
        self._addresses = addresses or machine_addresses
        self._instance = f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.{SERVICE}"
        self._zeroconf: AsyncZeroconf | None = None
        self._announced = frozenset[str]()
        self._found: dict[str, Address] = {}  # the oldest first
        self._resolving: dict[asyncio.Task[None], None] = {}  # likewise

    async def open(self) -> None:
        """Announces this agent and begins to listen. Raises DiscoveryError."""
        made = None
        try:
            self._announced = self._addresses()
            made = AsyncZeroconf(interfaces=self._interfaces, ip_version=IPVersion.V4Only)
            await made.async_register_service(self._info())
        except (OSError, Error) as error:
            if made is not None:
                await made.async_close()
            raise DiscoveryError(f"mesh.discovery: multicast DNS cannot be used: {error}") from error
        self._zeroconf = made
        self._browser = AsyncServiceBrowser(made.zeroconf, SERVICE, handlers=[self._changed])

    async def run(self) -> None:
        """Opens it, as soon as there is a network, and tells zeroconf when the machine's addresses have changed; for
        ever."""
        problem = ""
        while self._zeroconf is None:
            try:
                await self.open()
            except DiscoveryError as error:
                if str(error) != problem:
                    problem = str(error)
                    _log.warning("%s; tried again every %g s", problem, INTERFACES_S)
                await asyncio.sleep(INTERFACES_S)
        while True:
            await asyncio.sleep(INTERFACES_S)
            await self.check()

    async def check(self) -> None:
        """Looks whether the machine's addresses have changed."""
        try:
            now = self._addresses()
        except OSError as error:  # no file descriptor is free, for instance
            _log.debug("mesh discovery: the machine's addresses cannot be read: %s", error)
            return
        if self._zeroconf is not None and now != self._announced:
            await self.update()

    async def update(self) -> None:
        """The machine's addresses have changed."""
        if self._zeroconf is None:
            return
        try:
            now = self._addresses()
            _log.info("the network has changed: mesh discovery starts again on %s", ", ".join(sorted(now)))
            self._announced = now
            await self._zeroconf.async_update_interfaces()
            await self._zeroconf.async_update_service(self._info())
        except (OSError, Error) as error:
            _log.warning("mesh discovery: %s", error)

    async def close(self) -> None:
        """Says goodbye."""
        if self._zeroconf is None:
            return
        for task in self._resolving:
            task.cancel()
        await self._browser.async_cancel()
        await self._zeroconf.async_unregister_all_services()
        await self._zeroconf.async_close()

    def _info(self) -> AsyncServiceInfo:
        return AsyncServiceInfo(
            SERVICE,
            self._instance,
            port=self._port,
            properties={"v": VERSION, "name": self._name.encode()},
            parsed_addresses=sorted(self._fixed or self._addresses()),
            server=f"{self._instance.partition('.')[0]}.local.",
        )

    def _changed(self, zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        if name == self._instance:
            return
        if state_change is ServiceStateChange.Removed:
            self._forget(name)
        else:
            if len(self._resolving) >= FOUND_MAX:
                oldest = next(iter(self._resolving))
                del self._resolving[oldest]
                oldest.cancel()
            task = asyncio.ensure_future(self._resolve(zeroconf, name))
            self._resolving[task] = None
            task.add_done_callback(lambda done: self._resolving.pop(done, None))

    async def _resolve(self, zeroconf: Zeroconf, name: str) -> None:
        info = AsyncServiceInfo(SERVICE, name)
        if not await info.async_request(zeroconf, RESOLVE_MS):
            return
        properties = info.decoded_properties
        peer, addresses = properties.get("name") or "", info.parsed_addresses(IPVersion.V4Only)
        if properties.get("v") != VERSION or not peer or peer == self._name or not addresses or not info.port:
            return
        address = addresses[0], info.port
        if name not in self._found and not self._make_capacity():
            return
        if self._found.get(name, address) != address:
            self._forget(name)
        self._found[name] = address
        self._on_found(address, peer)

    def _make_capacity(self) -> bool:
        """Whether one more may be remembered: for it another one may give way."""
        if len(self._found) < FOUND_MAX:
            return True
        addresses: set[Address] = set()
        for name, address in self._found.items():
            if address in addresses or not self._has_answered(address):  # many may announce an address that answers
                self._forget(name)
                return True
            addresses.add(address)
        return False

    def _forget(self, name: str) -> None:
        address = self._found.pop(name, None)
        if address is not None and address not in self._found.values():
            self._on_gone(address)


def machine_addresses() -> frozenset[str]:
    """The IPv4 addresses of this machine that others can reach."""
    found = (address.ip for adapter in ifaddr.get_adapters() for address in adapter.ips if address.is_IPv4)
    return frozenset(str(one) for one in found if not str(one).startswith("127."))
