"""How many bytes of bodies may arrive at a time, for all requests together (R9)."""

import asyncio
from pathlib import Path

from tests.unit.gateway.http.http_harness import HttpHarness, run, until

POST = b"POST /v1/messages/a HTTP/1.1\r\nHost: localhost\r\n"


async def sent(harness: HttpHarness, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which the gateway has read these bytes of a body that is not complete."""
    reader, writer = await asyncio.open_connection("127.0.0.1", harness.port)
    writer.write(POST + b"Content-Length: 1000000\r\nConnection: close\r\n\r\n" + data)
    return reader, writer


def test_bytes_of_bodies_that_arrive_are_limited(tmp_path: Path) -> None:
    """arriving_bytes: what has come counts, for all requests together; small bodies go on, and later ones too."""

    async def scenario() -> None:
        harness = await HttpHarness(tmp_path, {"arriving_bytes": 150_000}).start()
        announced = await sent(harness, b"")
        half = await sent(harness, b"." * 100_000)
        await until(lambda: harness.http.bodies.arriving > 80_000)
        reader, writer = await sent(harness, b"." * 100_000)
        refused = await asyncio.wait_for(reader.read(), 20)
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: " in refused
        assert b"too_many_bytes_at_once" in refused
        assert (await harness.post("small", b"." * 16_384)).status == 202
        half[1].close()
        await until(lambda: not harness.http.bodies.arriving)
        announced[1].write(b"." * 1_000_000)
        assert (await asyncio.wait_for(announced[0].read(), 20)).startswith(b"HTTP/1.1 503 "), "alone too large"
        assert (await harness.post("large", b"." * 150_000)).status == 202
        assert harness.http.bodies.arriving == 0
        for one in (announced[1], writer):
            one.close()

    run(scenario())
