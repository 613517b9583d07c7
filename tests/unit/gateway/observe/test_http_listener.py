"""Whoever reads nothing, or sends no complete request, keeps nobody from the metrics for long (R9)."""

import asyncio
import socket
from collections.abc import Coroutine
from typing import Any
from unittest.mock import patch

import aiohttp
import pytest
from aiohttp import web

from gateway.observe import http_listener
from gateway.observe.http_listener import LINE_BYTES, HttpListener
from tests.unit.gateway.http.http_harness import PATIENCE_S, until

HOST = "127.0.0.1"
PLACES = 2


class Routes:
    """`begun`: how many requests have a handler."""

    begun = 0

    def all(self) -> list[web.RouteDef]:
        return [web.get("/small", self._posted), web.get("/big", self._big), web.post("/posted", self._posted)]

    async def _big(self, _: web.Request) -> web.Response:
        self.begun += 1
        return web.Response(body=b"." * (32 << 20))

    async def _posted(self, request: web.Request) -> web.Response:
        self.begun += 1
        return web.Response(body=await request.read())


async def ask(port: int, method: str = "GET", path: str = "/small", body: bytes = b"") -> tuple[int, bytes]:
    """An answer, however often it has to be asked for."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(PATIENCE_S):
        while True:
            try:
                async with session.request(method, f"http://{HOST}:{port}{path}", data=body) as answer:
                    return answer.status, await answer.read()
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.01)


async def hold(port: int, request: bytes) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, (HOST, port))
    await loop.sock_sendall(client, request)
    return client


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /posted HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc",
    ],
)
def test_places_are_free_again(request_bytes: bytes) -> None:
    async def scenario() -> None:
        with patch.object(http_listener, "SILENCE_S", 0.2):
            listener = HttpListener(PLACES)
            routes = Routes()
            listener.add_routes(routes.all())
            port = await listener.start(HOST, 0)
            holding = [await hold(port, request_bytes) for _ in range(PLACES)]
            await until(lambda: routes.begun == PLACES)
            assert await ask(port) == (200, b"")
            assert await ask(port, "POST", "/posted", b"abc") == (200, b"abc")
            assert (await ask(port, "POST", "/posted", b"." * 2_000))[0] == 413
            for client in holding:
                client.close()
            await listener.stop()

    _run(scenario())


async def listening() -> tuple[HttpListener, int]:
    listener = HttpListener(PLACES)
    listener.add_routes(Routes().all())
    return listener, await listener.start(HOST, 0)


def test_an_address_with_the_longest_topic_is_read() -> None:
    """The console's link to a retained message."""

    async def scenario() -> None:
        listener, port = await listening()
        assert await ask(port, path=f"/small?topic={'%C3%A9' * 32_767}") == (200, b"")
        await listener.stop()

    _run(scenario())


@pytest.mark.parametrize(
    ("line", "status", "sentence"),
    [
        (b"GET /small?topic=" + b"a" * LINE_BYTES, b"431", b"the address is longer than 262144 bytes"),
        (b"GET /sm\x00all", b"400", b"the request is not valid HTTP/1.1 or 1.0"),
    ],
    ids=["too long", "no HTTP"],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(line: bytes, status: bytes, sentence: bytes) -> None:
    async def scenario() -> None:
        listener, port = await listening()
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(line + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
        assert answer.split(b" ")[1] == status
        head, _, body = answer.partition(b"\r\n\r\n")
        assert body.startswith(sentence)
        assert len(body) < 200
        assert b"Content-Type: text/plain" in head
        writer.close()
        await listener.stop()

    _run(scenario())


def _run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)
