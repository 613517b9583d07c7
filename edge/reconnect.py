"""Keeps an MQTT client connected: reconnects after a loss, with full jitter between attempts."""

import asyncio
import contextlib
import random
from collections.abc import Callable
from types import TracebackType
from typing import Final

from edge.errors import ConnectionLost, ConnectRefused, MqttClientError
from edge.mqtt_client import MqttClient
from mqtt.client_events import EndedBy
from mqtt.codes import ConnectReturnCode, ReasonCode

STABLE_S: Final = 10.0  # a connection that lasted this long resets the backoff

# Refusals that the same CONNECT would meet again.
_FINAL: Final = frozenset(
    {
        ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
        ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
        ReasonCode.BAD_USER_NAME_OR_PASSWORD,
        ReasonCode.NOT_AUTHORIZED,
        ReasonCode.BANNED,
        ReasonCode.BAD_AUTHENTICATION_METHOD,
    }
)
_FINAL_3_1_1: Final = frozenset(ConnectReturnCode) - {ConnectReturnCode.SERVER_UNAVAILABLE}


class FullJitter:
    """Delays drawn uniformly from 0 to a bound that starts at `base_s` and doubles with each attempt up to `most_s`
    (Brooker, "Exponential Backoff And Jitter", AWS 2015). `draw` returns a number from 0 to 1."""

    def __init__(self, base_s: float = 0.5, most_s: float = 60.0, draw: Callable[[], float] = random.random) -> None:
        self._base_s, self._most_s, self._draw = base_s, most_s, draw

    def delay_s(self, attempt: int) -> float:
        """Seconds to wait before attempt number `attempt`, counted from 0."""
        return self._draw() * min(self._most_s, self._base_s * 2.0 ** min(attempt, 64))


def is_final(error: Exception) -> bool:
    """Whether reconnecting is pointless: the server refuses our identity, or another client has taken our client id."""
    if isinstance(error, ConnectRefused):
        reason = error.reason
        return reason in (_FINAL if isinstance(reason, ReasonCode) else _FINAL_3_1_1)
    if isinstance(error, ConnectionLost):
        return error.closed.by is EndedBy.SERVER and error.reason is ReasonCode.SESSION_TAKEN_OVER
    return False


class StayConnected:
    """Connects `client`, and reconnects it after each loss, until `stop`, `client.disconnect()`, or an error for which
    `gives_up` is true; callers waiting on the client then get that error. Until connected, publishing and subscribing
    wait.

        async with StayConnected(client):
            await client.wait_connected()
    """

    def __init__(
        self,
        client: MqttClient,
        backoff: FullJitter | None = None,
        gives_up: Callable[[Exception], bool] = is_final,
    ) -> None:
        self._client, self._backoff, self._gives_up = client, backoff or FullJitter(), gives_up
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts connecting, in a task."""
        if self._task is None:
            self._client.keeps_waiting = True
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Breaks the connection and stops reconnecting. To send DISCONNECT, call `client.disconnect()` first."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._client.keeps_waiting = False
        self._client.abort()

    async def __aenter__(self) -> "StayConnected":
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.stop()

    async def _run(self) -> None:
        client, loop, attempt = self._client, asyncio.get_running_loop(), 0
        while self._goes_on():
            began = loop.time()
            error = await self._one_connection()
            if self._goes_on() and self._gives_up(error):
                client.fail(error)
            if not self._goes_on():
                return
            attempt = 0 if loop.time() - began >= STABLE_S else attempt + 1
            await asyncio.sleep(self._backoff.delay_s(attempt))

    def _goes_on(self) -> bool:
        """Whether nobody has disconnected the client, or ended it with an error."""
        return self._client.keeps_waiting

    async def _one_connection(self) -> MqttClientError:
        """Connects and waits for the end; returns why it ended. Any other error is a bug and ends the client."""
        try:
            await self._client.connect()
            if not self._client.keeps_waiting:  # disconnected while it connected
                await self._client.disconnect()
            return ConnectionLost(await self._client.wait_closed())
        except MqttClientError as error:
            return error
        except Exception as error:
            self._client.fail(error)
            raise
