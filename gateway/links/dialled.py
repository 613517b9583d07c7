"""The connections of one link that this gateway makes; :mod:`gateway.links.dialling` says what to do."""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from typing import NamedTuple, cast

import structlog

from gateway.cluster.life import LifeEvent
from gateway.errors import LinkProtocolError
from gateway.host.tls import common_name
from gateway.links.connecting import connect
from gateway.links.dialling import Close, Connect, Dialling, DiallingEffect, Ping
from gateway.links.frames import PING, FrameReader, opening
from schemas.leases import Claimant
from schemas.members import GatewayAddress

log = structlog.get_logger(__name__)


class Wanted(NamedTuple):
    """A link is wanted to this process of a member; others prove nothing."""

    member: Claimant
    address: GatewayAddress


class DialledLink:
    """The link of `me` to who is `wanted`. `tls` gives the context of each connection; `on_event` is told what
    happens."""

    def __init__(
        self,
        me: Claimant,
        wanted: Wanted,
        ping_s: float,
        tls: Callable[[], ssl.SSLContext] | None,
        on_event: Callable[[LifeEvent], None],
    ) -> None:
        self._me = me
        self.wanted = wanted
        self._tls = tls
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self._dialling = Dialling(wanted.member, wanted.address, ping_s)
        self._transports: dict[int, asyncio.Transport] = {}
        self._connecting: dict[int, asyncio.Task[None]] = {}

    @property
    def state(self) -> str:
        return self._dialling.state

    def tick(self) -> None:
        self._perform(self._dialling.tick(self._loop.time()))

    def redial(self) -> None:
        self._perform(self._dialling.redial(self._loop.time()))

    def close(self) -> None:
        self._perform(self._dialling.close())

    def _perform(self, effects: Iterable[DiallingEffect]) -> None:
        for effect in effects:
            match effect:
                case Connect(attempt, to):
                    self._connecting[attempt] = self._loop.create_task(self._connect(attempt, to))
                case Close(attempt):
                    if (task := self._connecting.pop(attempt, None)) is not None:
                        task.cancel()
                    if (transport := self._transports.pop(attempt, None)) is not None:
                        transport.abort()
                case Ping(attempt):
                    self._transports[attempt].write(PING)
                case _:
                    self._on_event(effect)

    async def _connect(self, attempt: int, to: GatewayAddress) -> None:
        outcome = await connect(to, None if self._tls is None else self._tls(), lambda: _Connection(self, attempt))
        self._connecting.pop(attempt, None)
        if outcome == "refused":
            self._perform(self._dialling.refused(attempt, self._loop.time()))
        elif outcome == "failed":
            self.lost(attempt)

    # -- called by a connection ----------------------------------------------------------------------------------------

    def made(self, attempt: int, transport: asyncio.Transport) -> None:
        is_current = self._dialling.attempt == attempt and self._dialling.state == "dialling"
        if not is_current or not self._is_proven(transport):
            transport.abort()
            return
        self._transports[attempt] = transport
        transport.write(opening(self._me))

    def _is_proven(self, transport: asyncio.Transport) -> bool:
        """Whether the member's certificate has its name."""
        name = self.wanted.member.name
        if self._tls is None or common_name(transport.get_extra_info("peercert")) == name:
            return True
        log.warning("a link is closed", gateway=name, reason="its certificate has another common name")
        return False

    def greeted(self, attempt: int, by: Claimant) -> None:
        self._perform(self._dialling.greeted(attempt, by, self._loop.time()))

    def heard(self, attempt: int) -> None:
        self._perform(self._dialling.heard(attempt))

    def lost(self, attempt: int) -> None:
        self._transports.pop(attempt, None)
        self._perform(self._dialling.lost(attempt, self._loop.time()))


class _Connection(asyncio.Protocol):
    """One connection of a link."""

    def __init__(self, link: DialledLink, attempt: int) -> None:
        self._link = link
        self._attempt = attempt
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._link.made(self._attempt, self._transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None  # it was made
        if self._transport.is_closing():
            return
        try:
            frames = self._reader.receive(data)
        except LinkProtocolError as error:
            log.warning("a link is closed", gateway=self._link.wanted.member.name, reason=str(error))
            self._transport.abort()
            return
        for frame in frames:
            if isinstance(frame, Claimant):
                self._link.greeted(self._attempt, frame)
        if "pong" in frames:
            self._link.heard(self._attempt)

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.lost(self._attempt)
