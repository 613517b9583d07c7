"""Reading the tables for requests: one at a time, given up in time, in bounded memory, and what is left behind ends."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from jobs.errors import QueryError
from jobs.ledger.bounded_reading import BoundedReading, Open
from jobs.ledger.journey_requests import EVER

ENDLESS = "SELECT count(*) FROM range(1000000000000) AS a WHERE a.range % 7 = 3"
HUNGRY = "SELECT * FROM range(40000000) AS a ORDER BY hash(a.range) DESC"

Answer = list[tuple[object, ...]]


def asking(sql: str, begun: Event | None = None) -> Callable[[Open], Answer]:
    def work(tables: Open) -> Answer:
        with tables(EVER) as reader:
            if begun is not None:
                begun.set()
            return reader.query(sql).rows

    return work


def test_a_reading_is_interrupted_and_the_next_one_has_its_turn(tmp_path: Path) -> None:
    async def scenario() -> None:
        reading = BoundedReading(str(tmp_path), wait_s=60, limit_s=0.3)
        for _ in range(2):
            with pytest.raises(QueryError, match="took longer than"):
                await reading.read(asking(ENDLESS))
        reading._limit_s = 60
        assert await reading.read(asking("SELECT 1")) == [(1,)]
        reading.close()

    asyncio.run(scenario())


def test_who_comes_meanwhile_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        begun, ends = Event(), Event()
        reading = BoundedReading(str(tmp_path), wait_s=0.05, limit_s=60)

        def blocked(tables: Open) -> str:
            begun.set()
            ends.wait(60)
            return "first"

        first = asyncio.create_task(reading.read(blocked))
        await asyncio.to_thread(begun.wait, 60)
        with pytest.raises(QueryError, match="busy with another request"):
            await reading.read(lambda tables: "second")
        ends.set()
        assert await first == "first"
        assert await reading.read(lambda tables: "third") == "third"
        reading.close()

    asyncio.run(scenario())


def test_memory_is_bounded(tmp_path: Path) -> None:
    async def scenario() -> None:
        reading = BoundedReading(str(tmp_path), limit_s=60)
        with pytest.raises(QueryError, match="could not allocate"):
            await reading.read(asking(HUNGRY))
        assert await reading.read(asking("SELECT current_setting('threads')")) == [(1,)]
        reading.close()

    asyncio.run(scenario())


def test_closing_ends_what_is_being_read(tmp_path: Path) -> None:
    """The application ends, whatever was asked: also between two statements, and if nobody waits for it any more."""
    reading, begun = BoundedReading(str(tmp_path), limit_s=600), Event()

    async def scenario() -> None:
        asked = asyncio.create_task(reading.read(asking(ENDLESS, begun)))
        await asyncio.to_thread(begun.wait, 60)
        asked.cancel()

    asyncio.run(scenario())
    reading.close()
    BoundedReading(str(tmp_path)).close()
