"""How the contract of gateway.bus.Bus is run: against the in-memory twin and against Kafka.

A subclass of the contract gives `scenario(check)`: it runs `check(bus, received)` on a loop, with a started bus over
fresh topics (2 partitions of `ingress`), and `received` the records that came to the bus's consumer.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any

from gateway.bus import Bus
from gateway.record import Record
from schemas.topics import Topics

Check = Callable[[Bus, Topics, list[Record]], Awaitable[None]]
PATIENCE_S = 30.0


async def until(condition: Callable[[], bool]) -> None:
    """Waits for it to become true."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "it has not happened"
        await asyncio.sleep(0.01)


class Producing:
    """Sends numbered records, and notes what becomes of them."""

    def __init__(self, bus: Bus, topic: str) -> None:
        self._bus, self._topic = bus, topic
        self.done: list[tuple[int, int, int]] = []
        self.errors: list[Any] = []

    def send(self, partition: int, number: int, value: bytes | None = b"value") -> None:
        def on_done(error: Any, record: Record) -> None:
            if error is not None:
                self.errors.append(error)
            else:
                self.done.append((partition, number, record.offset()))
                assert record.timestamp()[1] > 0

        before = len(self.done)
        headers = [("first", b"%d" % number), ("second", b"")]
        self._bus.produce(self._topic, partition, b"key-%d" % number, value, headers, on_done)
        assert len(self.done) == before, "not within the call"

    async def all_done(self, count: int) -> None:
        await until(lambda: len(self.done) + len(self.errors) >= count)


class BusScenarios(ABC):
    """Runs the tests of a contract over a bus."""

    applied: asyncio.Future[None] | None = None

    @abstractmethod
    def scenario(self, check: Check) -> None:
        """Runs `check` as the module says; `take` gets the records."""

    @abstractmethod
    async def delete(self, topic: str, partition: int, before: int) -> None:
        """The broker deletes the records of a partition before an offset."""

    def hold(self) -> None:
        """Further batches of the bus's consumer count as not applied, until `let_go`."""
        self.applied = asyncio.get_running_loop().create_future()

    def let_go(self) -> None:
        assert self.applied is not None
        self.applied.set_result(None)
        self.applied = None

    def take(self, received: list[Record], batch: list[Record]) -> asyncio.Future[None] | None:
        """`OnRecords` of the bus."""
        received.extend(batch)
        return self.applied
