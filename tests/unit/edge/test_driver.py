"""The driver of a connection: what counts as a sign of life of the server, besides its answers."""

import asyncio
from typing import Any, cast

import pytest

from edge.driver import Driver
from edge.link import Link
from edge.tcp_progress import Progress
from mqtt.client_connection import ClientConnection
from mqtt.client_events import Closed, EndedBy, Event
from mqtt.client_limits import ClientLimits
from mqtt.client_session import ClientSession
from mqtt.encode import encode
from mqtt.packets import Connack, Connect

KEEP_ALIVE_S, PING_TIMEOUT_S = 60, 20.0


class SlowLink:
    """A link whose network takes what it is told."""

    def __init__(self) -> None:
        self.ended = asyncio.get_running_loop().create_future()
        self.progress = Progress(0, 0)

    def write(self, data: bytes) -> None:
        pass

    def close(self, lingers: bool = False) -> None:
        pass


@pytest.mark.parametrize(
    ("at_ping", "later", "lives"),
    [
        ((1_000, 500), (600, 900), True),  # a large message goes on
        ((1_000, 500), (900_000, 501), True),  # and more has been written meanwhile
        ((1_000, 500), (1_000, 500), False),  # it stands still
        ((0, 500), (0, 900), False),  # nothing stood before the ping, which has arrived: the answer is missing
    ],
)
def test_a_ping_behind_a_large_message_is_not_overdue_while_that_goes_on(
    at_ping: tuple[int, int], later: tuple[int, int], lives: bool
) -> None:
    async def run() -> None:
        loop: Any = asyncio.get_running_loop()
        began = loop.time()
        loop.time = lambda: began
        events: list[Event] = []
        link, driver = SlowLink(), Driver(events.extend)

        def tick(after_s: float, progress: tuple[int, int]) -> None:
            loop.time = lambda: began + after_s
            link.progress = Progress(*progress)
            driver._tick()

        limits = ClientLimits(ping_timeout_s=PING_TIMEOUT_S)
        connection = ClientConnection(ClientSession(), Connect("c", 5, True, KEEP_ALIVE_S), limits, began)
        driver.begin(cast(Link, link), connection)
        driver.data_received(encode(Connack(), 5))
        tick(46, at_ping)  # 0.75 x 60 s
        tick(67, later)
        assert (connection.closed is None) is lives
        tick(88, later)
        (closed,) = [event for event in events if isinstance(event, Closed)]
        assert closed.by is EndedBy.TIMEOUT

    asyncio.run(run())
