"""The platform in memory behind a real socket: what a gateway answers over HTTP (:mod:`schemas.mesh_api`)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import msgspec

from schemas.mesh_api import BundlesAnswer, BundlesRequest, MeshState, PresenceQuery, ReportsAnswer, ReportsRequest
from tests.unit.edge.uplink.fake_platform import FakePlatform

HOST = "127.0.0.1"
OFF = b'{"status": 404, "reason": "access_point_off", "detail": "switched off"}'


@contextlib.asynccontextmanager
async def http_platform(
    platform: FakePlatform, agent: str, cut: Callable[[bytes, bytes], bytes | None] = lambda request, answer: answer
) -> AsyncIterator[str]:
    """Gives its URL. `cut(head of the request, answer)` may shorten an answer, after which the connection ends, or say
    None: nothing is answered, for ever."""
    talks: set[asyncio.Task[None]] = set()

    def served(head: bytes, body: bytes) -> bytes:
        target = head.split(b" ", 2)[1]
        answer: object
        if target == b"/v1/bundles":
            answer = BundlesAnswer([platform.take(agent, one) for one in _read(body, BundlesRequest).bundles])
        elif target == b"/v1/message-presence":
            answer = ReportsAnswer([platform.report(agent, one) for one in _read(body, ReportsRequest).events])
        elif target == b"/v1/message-presence/query":
            answer = platform.query(_read(body, PresenceQuery).ids)
        elif target == b"/v1/mesh":
            answer = MeshState([b"certificate"])
        else:
            return _response("404 Not Found", "application/problem+json", OFF)
        return _response("200 OK", "application/json", msgspec.json.encode(answer))

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (task := asyncio.current_task()) is not None:
            talks.add(task)
        with contextlib.suppress(OSError, EOFError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = [line for line in head.split(b"\r\n") if line.startswith(b"Content-Length:")]
                body = await reader.readexactly(int(length[0].split(b":")[1])) if length else b""
                whole = served(head, body)
                answer = cut(head, whole)
                if answer is None:
                    await reader.read()
                    break
                writer.write(answer)
                if len(answer) < len(whole):
                    break
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async with await asyncio.start_server(talk, HOST, 0, limit=1 << 20) as listener:
        yield f"http://{HOST}:{listener.sockets[0].getsockname()[1]}"
        if talks:
            await asyncio.wait(talks)


def _response(status: str, kind: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nContent-Type: {kind}\r\n\r\n".encode() + body


S = TypeVar("S")


def _read(body: bytes, kind: type[S]) -> S:
    return msgspec.json.decode(body, type=kind)
