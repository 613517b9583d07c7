"""MQTT clients of a site of gateways: they come back at once when their connection ends, and note when messages come.

Light, as those of bench.mqtt_clients, and on one event loop: what is measured are gaps of tens of milliseconds.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple

from mqtt.codes import PacketType
from mqtt.encode import encode, encode_puback, encode_publish
from mqtt.packets import Connect, Subscribe, Subscription

VERSION: Final = 4
TOPIC: Final = "bench/beat"
RATE: Final = 50.0
AGAIN_S: Final = 0.005
ACCEPT_S: Final = 2.0
"""How long a client waits for CONNACK before it tries elsewhere."""
NUMBER_BYTES: Final = 4

Door = Callable[[], int]
"""The port of the gateway to connect to next."""


class Arrival(NamedTuple):
    """A message of a beater has come at `at`, seconds of the monotonic clock, over this connection of the listener."""

    at: float
    beater: int
    connection: int


def packets(data: bytes) -> Iterator[tuple[int, int, int]]:
    """First byte, start of the body and end of each whole packet."""
    at, size = 0, len(data)
    while at + 2 <= size:
        length, shift, body = 0, 0, at + 1
        while body < size:
            byte = data[body]
            body += 1
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        else:
            return
        if body + length > size:
            return
        yield data[at], body, body + length
        at = body + length


class _Wire(asyncio.Protocol):
    """One connection."""

    def __init__(self, client: "Returning") -> None:
        loop = asyncio.get_running_loop()
        self._client, self._partial = client, b""
        self.accepted: asyncio.Future[bool] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        data, end = self._partial + data, 0
        for first, body, end in packets(data):
            if first >> 4 == PacketType.CONNACK and not self.accepted.done():
                self.accepted.set_result(data[body + 1] == 0)
            else:
                self._client.take(first, data[body:end])
        self._partial = data[end:]

    def connection_lost(self, error: Exception | None) -> None:
        if not self.accepted.done():
            self.accepted.set_result(False)
        if not self.closed.done():
            self.closed.set_result(None)


class Returning:
    """A client of 3.1.1 with a persistent session. `connections`: how many were accepted; `served_at`: when the last
    one was."""

    def __init__(self, name: str, door: Door) -> None:
        self.name, self.connections, self.served_at = name, 0, 0.0
        self._door = door
        self._wire: _Wire | None = None
        self._task: asyncio.Task[None] | None = None

    async def come(self, timeout_s: float = 30.0) -> None:
        """Stays connected from now on; returns once it is."""
        self._task = asyncio.create_task(self._stay())
        async with asyncio.timeout(timeout_s):
            while self._wire is None:
                if self._task.done():
                    self._task.result()
                await asyncio.sleep(AGAIN_S)

    async def leave(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def drop(self) -> None:
        """Breaks the connection; the client connects again at once."""
        if self._wire is not None:
            self._wire.transport.abort()

    def write(self, data: bytes) -> None:
        """Nothing, while it is not connected. A transport that is closing would raise."""
        if self._wire is not None and not self._wire.transport.is_closing():
            self._wire.transport.write(data)

    def began(self) -> None:
        """A connection was accepted."""

    def take(self, first: int, body: bytes) -> None:
        """A packet has come."""

    async def _stay(self) -> None:
        loop = asyncio.get_running_loop()
        connect = encode(Connect(self.name, VERSION, False, 0), VERSION)
        wire: _Wire | None = None
        try:
            while True:
                try:
                    async with asyncio.timeout(ACCEPT_S):
                        _, wire = await loop.create_connection(lambda: _Wire(self), "127.0.0.1", self._door())
                        wire.transport.write(connect)
                        is_accepted = await wire.accepted
                except (OSError, TimeoutError):
                    is_accepted = False
                if is_accepted and wire is not None:
                    self._wire, self.served_at = wire, time.monotonic()
                    self.connections += 1
                    self.began()
                    await wire.closed
                    self._wire = None
                else:
                    if wire is not None:
                        wire.transport.abort()
                    await asyncio.sleep(AGAIN_S)
        finally:
            if wire is not None:
                wire.transport.abort()


class Listener(Returning):
    """Subscribes to all beaters, at QoS 1, until it is acknowledged. `arrivals` are in order."""

    def __init__(self, name: str, door: Door) -> None:
        super().__init__(name, door)
        self.arrivals: list[Arrival] = []
        self._is_subscribed = False

    def began(self) -> None:
        if not self._is_subscribed:
            self.write(encode(Subscribe(1, [Subscription(f"{TOPIC}/+", 1)]), VERSION))

    def take(self, first: int, body: bytes) -> None:
        if first >> 4 == PacketType.SUBACK:
            self._is_subscribed = True
        if first >> 4 != PacketType.PUBLISH:
            return
        topic_ends = 2 + int.from_bytes(body[:2])
        packet_id, payload = int.from_bytes(body[topic_ends : topic_ends + 2]), body[topic_ends + 2 :]
        self.write(encode_puback(packet_id))
        self.arrivals.append(Arrival(time.monotonic(), int.from_bytes(payload[:NUMBER_BYTES]), self.connections))

    def has_got_since(self, at: float, connection: int) -> bool:
        """Whether :meth:`next_after` has an answer already."""
        last = self.arrivals[-1] if self.arrivals else None
        return last is not None and last.at >= at and last.connection > connection

    def next_after(self, at: float, connection: int) -> float:
        """Seconds from `at` until the first message over a connection after that one. Raises RuntimeError if none has
        come."""
        for arrival in self.arrivals:
            if arrival.at >= at and arrival.connection > connection:
                return arrival.at - at
        raise RuntimeError(f"{self.name} got nothing after its connection {connection}")

    def silence_s(self, began: float, ended: float, beaters: set[int]) -> float:
        """The longest time without a message of these beaters, between the two times."""
        times = [arrival.at for arrival in self.arrivals if arrival.beater in beaters and began <= arrival.at <= ended]
        return max(after - before for before, after in pairwise([began, *times, ended]))


class Beater(Returning):
    """Publishes at QoS 1 at RATE, whether acknowledged or not, as long as it is connected."""

    def __init__(self, name: str, number: int, door: Door) -> None:
        super().__init__(name, door)
        self.number, self.sent = number, 0
        self._beating: asyncio.Task[None] | None = None

    async def come(self, timeout_s: float = 30.0) -> None:
        await super().come(timeout_s)
        self._beating = asyncio.create_task(self._beat())

    async def leave(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
        await super().leave()

    async def _beat(self) -> None:
        topic, loop = f"{TOPIC}/{self.number}".encode(), asyncio.get_running_loop()
        payload = self.number.to_bytes(NUMBER_BYTES) + b"x" * 252
        began = loop.time()
        for beat in range(1, 1 << 62):
            self.sent += 1
            packet_id = 1 + self.sent % 60_000
            self.write(encode_publish(topic, payload, 1, False, False, packet_id, None))
            await asyncio.sleep(max(0, began + beat / RATE - loop.time()))
