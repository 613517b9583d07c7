"""Attempts to connect, one after the other: when the next one begins (G3)."""

import asyncio
from typing import cast

from edge.client.bearer_client import BearerClient
from edge.client.connect_points import ConnectPoint
from edge.client.connecting import Connecting, Wait
from edge.client.connection_loop import ConnectionLoop
from edge.errors import Unreachable
from edge.reconnect import FullJitter

POINT = ConnectPoint("mqtt", "gateway", 1883)
AN_HOUR = FullJitter(3_600.0, 3_600.0, lambda: 1.0)


class AwayBearer:
    """Its attempts fail, each when the test says so."""

    def __init__(self) -> None:
        self.attempts: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()

    async def connect(self, point: ConnectPoint) -> None:
        ends: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.attempts.put_nowait(ends)
        await ends
        raise Unreachable("away")


def test_a_network_that_changes_during_an_attempt_ends_the_pause_after_it() -> None:
    """The attempt hangs on the network that has gone."""

    async def run() -> None:
        bearer, machine = AwayBearer(), Connecting([], [POINT], tries=2, backoff=AN_HOUR)
        loop = ConnectionLoop(
            machine,
            cast(BearerClient, bearer),
            ask=lambda _: asyncio.sleep(0, []),
            on_exhausted=lambda _: None,
            fail=lambda _: None,
        )
        running = asyncio.create_task(loop.run())
        first = await bearer.attempts.get()
        loop.hurry()
        first.set_result(None)
        second = await bearer.attempts.get()
        second.set_result(None)
        for _ in range(100):
            await asyncio.sleep(0)
        assert isinstance(machine.step, Wait)  # one change ends one pause
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(asyncio.wait_for(run(), 20))
