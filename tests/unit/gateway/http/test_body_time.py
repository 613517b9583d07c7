"""How long the body of a request may take: a slow link has time, a client that holds a request has not (R9)."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from aiohttp import StreamReader, web
from aiohttp.base_protocol import BaseProtocol

from gateway.http.body import BodyReader
from gateway.http.problems import Problem
from schemas.settings import load_settings
from tests.unit.gateway.shard.virtual_time import run

MEGABYTE = 1_000_000
BASE = load_settings([Path("conf/base.toml")], {}).gateway.http
SETTINGS = msgspec.structs.replace(BASE, read_timeout_s=30.0, body_bytes_per_s=500)


async def read(arrivals: list[tuple[float, int]]) -> tuple[int, float]:
    """A body that comes in pieces, each so many bytes after a pause in seconds, and does not end before the sum of them
    is a megabyte. How many bytes were read, or the status of the refusal; and after how many seconds."""
    loop = asyncio.get_running_loop()
    protocol = BaseProtocol(loop)
    protocol.connection_made(asyncio.Transport())
    content = StreamReader(protocol, MEGABYTE, loop=loop)
    request = SimpleNamespace(content=content, content_length=None, headers={})

    async def send() -> None:
        for pause_s, size in arrivals:
            await asyncio.sleep(pause_s)
            content.feed_data(bytes(size))
        if sum(size for _, size in arrivals) == MEGABYTE:
            content.feed_eof()

    sending, bodies = asyncio.create_task(send()), BodyReader(SETTINGS)
    try:
        outcome = len(await bodies.read(cast(web.BaseRequest, request), MEGABYTE))
    except Problem as problem:
        outcome = problem.status
    sending.cancel()
    assert not bodies.arriving
    return outcome, loop.time()


@pytest.mark.parametrize(("pause_s", "size"), [(1.0, 1_000), (29.0, 20_000), (2.0, 1_000), (0.0, MEGABYTE)])
def test_a_slow_link_brings_a_large_message(pause_s: float, size: int) -> None:
    """A megabyte that comes steadily, in up to half an hour."""
    pieces = MEGABYTE // size
    assert run(read([(pause_s, size)] * pieces)) == (MEGABYTE, pause_s * pieces)


@pytest.mark.parametrize(
    ("arrivals", "from_s", "to_s"),
    [
        ([], 30, 30),
        ([(1.0, 1)] * 900, 30, 31),
        ([(2.1, 1_000)] * 1_000, 30, 630),
        ([(0.0, 900_000)], 30, 30),
    ],
    ids=["nothing", "a byte a second", "below the rate", "a fast beginning"],
)
def test_who_is_too_slow_gets_408(arrivals: list[tuple[float, int]], from_s: float, to_s: float) -> None:
    """Slow-loris: bytes that come slowly buy hardly any time, and those that came fast buy no silence."""
    status, seconds = run(read(arrivals))
    assert status == 408
    assert from_s <= seconds <= to_s
