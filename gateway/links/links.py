"""The links of this gateway over TCP: those that it makes, and a listener for those that others make (Q6).

A link belongs to the gateway that has made it: it asks, the other answers, and only the one that asks reports. So two
gateways that care for each other have two connections, and neither needs to agree with the other on one.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from gateway.cluster.life import LifeEvent, RedialResult
from gateway.links.answering import Answering
from gateway.links.dialled import DialledLink, Wanted
from gateway.listening import listening
from schemas.errors import SettingsError
from schemas.leases import Claimant
from schemas.sections import OFF, ListenerPort
from schemas.this_machine import is_loopback

TICK_S: Final = 0.05
"""How often it is looked whether something is due, in seconds, or oftener with short `ping_s`."""


class LinkTls(NamedTuple):
    """Mutual TLS with certificates of members: the context for the listener, and what gives that for a new connection
    of a link. Both demand a certificate of the other side and check no host name: a member's name is the common name of
    its certificate. Files may change meanwhile: the listener's context then takes the present one in each handshake
    (:mod:`gateway.host.tls`), and `client` gives another one."""

    server: ssl.SSLContext
    client: Callable[[], ssl.SSLContext]


class Links:
    """The links of `me`, from `start` to `stop`. `host` and `port` are those of the listener. Without `tls` only
    gateways on this machine have links. `on_event` is called on the loop; it may call any method."""

    def __init__(
        self,
        me: Claimant,
        host: str,
        port: ListenerPort,
        ping_s: float,
        tls: LinkTls | None,
        on_event: Callable[[LifeEvent], None],
    ) -> None:
        self._me = me
        self._host, self._port = host, port
        self._ping_s = ping_s
        self._tls = tls
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self._links: dict[str, DialledLink] = {}
        self._answering: set[Answering] = set()
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.redials = 0
        """How often a link was dialled again for `redial`."""

    async def start(self) -> int | None:
        """Opens the listener; returns its port, None if it is off. Raises SettingsError."""
        self._tick()
        if isinstance(self._port, str):
            return None
        if self._tls is None and not is_loopback(self._host):
            raise SettingsError(
                f"gateway.cluster.links.host = {self._host!r} can be reached from other machines, and links to those "
                f"need certificates of the gateways: set them, an address of this machine only, or "
                f'gateway.cluster.links.port = "{OFF}" (then it takes longer to notice that a gateway was killed)'
            )
        context = None if self._tls is None else self._tls.server
        with listening("gateway.cluster.links.port", self._host, self._port):
            self._server = await self._loop.create_server(self._answer, self._host, self._port, ssl=context)
        return int(self._server.sockets[0].getsockname()[1])

    def stop(self) -> None:
        """Closes all links and the listener. Others may take this process for dead from then on: first give up all
        shards, and say in a last heartbeat that the gateway ends."""
        self.want(())
        if self._timer is not None:
            self._timer.cancel()
        if self._server is not None:
            self._server.close()
        for answering in list(self._answering):
            answering.close()

    def want(self, wanted: Iterable[Wanted]) -> None:
        """From now on there are links to these, and to no others. This gateway itself is left out."""
        new = {one.member.name: one for one in wanted if one.member.name != self._me.name}
        for name, link in list(self._links.items()):
            if new.get(name) != link.wanted and self._links.get(name) is link:
                del self._links[name]
                link.close()
        for name, one in new.items():
            if name not in self._links:
                tls = None if self._tls is None else self._tls.client
                self._links[name] = DialledLink(self._me, one, self._ping_s, tls, self._on_event)
                self._links[name].tick()

    def redial(self, name: str) -> None:
        """Performs :class:`gateway.cluster.life.Redial`. A RedialResult follows in any case, perhaps within the call;
        `timeout` if no link to the member is wanted."""
        link = self._links.get(name)
        if link is None:
            self._on_event(RedialResult(name, "timeout"))
        else:
            self.redials += 1
            link.redial()

    def states(self) -> Mapping[str, str]:
        """The state of each link (:mod:`gateway.links.dialling`), by member, for people."""
        return {name: link.state for name, link in self._links.items()}

    def _tick(self) -> None:
        self._timer = self._loop.call_later(min(TICK_S, self._ping_s / 4), self._tick)
        for link in list(self._links.values()):
            link.tick()
        now = self._loop.time()
        for answering in list(self._answering):
            answering.tick(now)

    def _answer(self) -> asyncio.Protocol:
        return Answering(self._me, self._tls is not None, self._answering)
