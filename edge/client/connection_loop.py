"""Performs the steps of :class:`edge.client.connecting.Connecting`: asks, connects, waits, for ever (G3, G10).

Ends only if the gateway refuses for good (:func:`edge.reconnect.is_final`), or by an error that is no MqttClientError
or NoConnectPoints, which is a bug; `fail` is called with it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from edge.client.access_point import AccessPoint
from edge.client.bearer_client import BearerClient
from edge.client.connect_points import ConnectPoint, NoConnectPoints
from edge.client.connecting import Ask, Connected, Connecting, Try, Wait
from edge.client.errors import NotReachable
from edge.client.server_reference import sent_to
from edge.errors import ConnectionLost, ConnectRefused, MqttClientError
from edge.reconnect import STABLE_S, is_final

_log: Final = logging.getLogger("waystation.client")
_log.addHandler(logging.NullHandler())  # the application decides what is logged, and where


class ConnectionLoop:
    """`ask` performs phase one, `bearer` phase two. `on_exhausted` gets the error of each round that has ended without
    a connection."""

    def __init__(
        self,
        machine: Connecting[AccessPoint],
        bearer: BearerClient,
        *,
        ask: Callable[[AccessPoint], Awaitable[list[ConnectPoint]]],
        on_exhausted: Callable[[NotReachable], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._machine, self._bearer = machine, bearer
        self._ask, self._on_exhausted, self._fail = ask, on_exhausted, fail
        self._connected_at = 0.0
        self._has_warned = False
        self._hurry = asyncio.Event()

    def hurry(self) -> None:
        """Ends a pause between two attempts; during an attempt, the pause after it."""
        self._hurry.set()

    async def run(self) -> None:
        """Returns if the client is refused for good."""
        try:
            while (error := await self._step()) is None:
                pass
        except Exception as unexpected:
            error = unexpected
        self._fail(error)

    async def _step(self) -> Exception | None:
        """Performs one step; returns the error if it is final."""
        machine = self._machine
        match machine.step:
            case Wait(seconds):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._hurry.wait()
                self._hurry.clear()
                machine.waited()
            case Ask(access_point):
                try:
                    machine.answered(await self._ask(access_point))
                except NoConnectPoints as error:
                    self._failed(str(error))
            case Try(point):
                return await self._try(point)
            case Connected(point):
                return await self._stay(point)
        return None

    async def _try(self, point: ConnectPoint) -> Exception | None:
        try:
            await self._bearer.connect(point)
        except MqttClientError as error:
            if is_final(error):
                _log.error("%s: %s", point, error)
                return error
            self._failed(str(error), _sent_to(error, point))
            return None
        self._connected_at = asyncio.get_running_loop().time()
        self._machine.connected()
        self._hurry.clear()
        self._has_warned = False
        _log.info("connected to %s", point)
        return None

    async def _stay(self, point: ConnectPoint) -> Exception | None:
        error = ConnectionLost(await self._bearer.wait_closed())
        _log.info("the connection to %s has ended: %s", point, error)
        if is_final(error):
            return error
        has_lasted = asyncio.get_running_loop().time() - self._connected_at >= STABLE_S
        self._machine.lost(has_lasted=has_lasted, sent_to=_sent_to(error, point))
        return None

    def _failed(self, reason: str, to: ConnectPoint | None = None) -> None:
        exhausted = self._machine.failed(reason, to)
        if exhausted is not None:
            _log.log(logging.DEBUG if self._has_warned else logging.WARNING, "%s", exhausted)
            self._has_warned = True  # once until it is connected again
            self._on_exhausted(exhausted)


def _sent_to(error: MqttClientError, at: ConnectPoint) -> ConnectPoint | None:
    return sent_to(error.closed, at) if isinstance(error, ConnectRefused | ConnectionLost) else None
