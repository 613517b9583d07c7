"""HTTPS: clients that read a large answer slowly get all of it (G11)."""

import asyncio
import ssl
from asyncio import constants
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from harness.keys import Authority
from schemas.settings import process_settings
from tests.unit.gateway.http.http_harness import HttpHarness, run

ANSWER = 8 << 20


def test_a_slow_reader_gets_all_of_a_large_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of write_timeout_s counts what nobody reads. That of asyncio for the close of TLS (30 s, here much less)
    counts from the last word of the answer on, and does not apply."""
    monkeypatch.setattr(constants, "SSL_SHUTDOWN_TIMEOUT", 0.05)

    async def large(_: web.Request) -> web.Response:
        return web.Response(body=bytes(ANSWER))

    async def scenario() -> None:
        authority = Authority(tmp_path)
        ours = authority.sign("localhost", file="server")
        tls = msgspec.structs.replace(
            process_settings({}).gateway.tls, certificate=str(ours.certificate), key=str(ours.key), https_port=0
        )
        harness = await HttpHarness(tmp_path, gateway={"tls": tls, "http_port": "off"}).start()
        harness.http.routes.add_get("/large", large)
        trust = ssl.create_default_context(cafile=str(authority.file))
        reader, writer = await asyncio.open_connection("localhost", harness.ports["https"], ssl=trust, limit=1_024)
        writer.write(b"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        taken = 0
        while chunk := await reader.read(65_536):
            taken += len(chunk)
            await asyncio.sleep(0.002)
        assert taken == ANSWER
        writer.close()

    run(scenario())
