"""The side of a link that another gateway has made: it says who it is, and answers pings (Q6)."""

import asyncio
from typing import Final, cast

import structlog

from gateway.errors import LinkProtocolError
from gateway.host.tls import common_name
from gateway.links.frames import PONG, FrameReader, opening
from schemas.leases import Claimant

MOST: Final = 1_000
"""Connections at a time; beyond that new ones are closed."""

SILENT_S: Final = 30.0
"""A connection over which nothing comes for so long is closed."""

log = structlog.get_logger(__name__)


class Answering(asyncio.Protocol):
    """One connection, among `all_of_them` while it is open. With `is_proven` its certificate must have the name that
    the other side says."""

    def __init__(self, me: Claimant, is_proven: bool, all_of_them: "set[Answering]") -> None:
        self._me = me
        self._is_proven = is_proven
        self._all = all_of_them
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._heard_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._heard_at = asyncio.get_running_loop().time()
        if len(self._all) >= MOST:
            self.close()
            return
        self._all.add(self)
        self._transport.write(opening(self._me))

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None  # it was made
        if self._transport.is_closing():
            return
        self._heard_at = asyncio.get_running_loop().time()
        try:
            frames = self._reader.receive(data)
            for frame in frames:
                if isinstance(frame, Claimant):
                    self._check(frame)
        except LinkProtocolError as error:
            log.warning("a link is closed", peer=str(self._transport.get_extra_info("peername")), reason=str(error))
            self.close()
            return
        pings = frames.count("ping")
        if pings:
            self._transport.write(PONG * pings)

    def pause_writing(self) -> None:
        """Pings come, and what answers them is not read."""
        self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.discard(self)

    def tick(self, now: float) -> None:
        if now - self._heard_at > SILENT_S:
            self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _check(self, peer: Claimant) -> None:
        assert self._transport is not None  # it was made
        if self._is_proven and common_name(self._transport.get_extra_info("peercert")) != peer.name:
            raise LinkProtocolError(f"the certificate is not one of {peer.name!r}")
