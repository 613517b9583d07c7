"""Loads for the agent and the access point, and what they are compared with: the disk, and a client without one."""

import asyncio
import contextlib
import multiprocessing
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import uvloop

from bench.edge_agent import DOMAIN, TOPIC
from edge.agent.envelope import FILE_TYPE, File
from edge.agent.mailroom import new_id
from edge.client.access_point import AccessPoint, ask
from edge.client.client import Client
from edge.client.limits import Limits
from harness.processes import HOST

PAGE_BYTES: Final = 4_096
MAIL: Final = b"Subject: position\r\n\r\n" + b"x" * 229 + b"\r\n"
"""A mail of 256 bytes with its final dot."""
AT_ONCE: Final = 500
ASK_TIMEOUT_S: Final = 10.0
HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
ANSWER: Final = b'{"connect_points": [{"protocol": "mqtt", "address": "127.0.0.1", "port": 1883}]}'
"""What the bare access point says to everybody."""


def syncs_per_s(directory: Path, seconds: float) -> float:
    """How often the disk of `directory` makes a page durable that is appended to a file: the least a commit does."""
    page, count, file = os.urandom(PAGE_BYTES), 0, directory / "syncs"
    descriptor = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    try:
        began = time.perf_counter()
        while (took := time.perf_counter() - began) < seconds:
            os.write(descriptor, page)
            os.fdatasync(descriptor)
            count += 1
    finally:
        os.close(descriptor)
        file.unlink()
    return count / took


class Submitter:
    """A program that submits mails over one connection, the next one when the one before is answered with 250.

    `accepted`: how many were. Any other answer raises RuntimeError.
    """

    def __init__(self) -> None:
        self.accepted = 0

    async def run(self, port: int, until: float) -> None:
        """Until `until`, by the loop's clock."""
        self._reader, self._writer = await asyncio.open_connection(HOST, port)
        try:
            await self._expect(b"220")
            await self._command(b"HELO bench", b"250")
            while asyncio.get_running_loop().time() < until:
                await self._command(b"MAIL FROM:<bench@van.example>", b"250")
                await self._command(b"RCPT TO:<office@" + DOMAIN.encode() + b">", b"250")
                await self._command(b"DATA", b"354")
                await self._command(MAIL + b".", b"250")
                self.accepted += 1
        finally:
            self._writer.close()

    async def _command(self, line: bytes, expected: bytes) -> None:
        self._writer.write(line + b"\r\n")
        await self._expect(expected)

    async def _expect(self, expected: bytes) -> None:
        answer = await self._reader.readline()
        if not answer.startswith(expected):
            raise RuntimeError(f"the agent answered {answer!r}, not {expected.decode()}")


async def submitted_per_s(port: int, connections: int, seconds: float) -> float:
    """Mails a second that the agent accepts from so many programs at once."""
    loop = asyncio.get_running_loop()
    submitters, began = [Submitter() for _ in range(connections)], loop.time()
    await asyncio.gather(*(one.run(port, began + seconds) for one in submitters))
    return sum(one.accepted for one in submitters) / (loop.time() - began)


async def memory_client_s(gateway_port: int, messages: int, payload_bytes: int) -> tuple[float, float]:
    """Until a client of the library, without a disk, has so many messages acknowledged: seconds, and processor seconds
    of this process. The envelope is the agent's, the payload as long, and AT_ONCE are published together."""
    payload, limits = os.urandom(payload_bytes), Limits(messages=messages)
    points = [f"mqtt://{HOST}:{gateway_port}"]
    async with Client(client_id="bench-memory", connect_points=points, limits=limits) as client:
        await client.connected()
        began, cpu_began_s = time.perf_counter(), time.process_time()
        for first in range(0, messages, AT_ONCE):
            count = min(AT_ONCE, messages - first)
            files = [File(new_id(), "x.bin", payload) for _ in range(count)]
            await asyncio.gather(
                *(
                    client.publish(TOPIC, payload, content_type=FILE_TYPE, user_properties=file.properties())
                    for file in files
                )
            )
        await client.drained()
        return time.perf_counter() - began, time.process_time() - cpu_began_s


async def asked_ms(http_port: int, rate: float, seconds: float) -> list[float]:
    """Milliseconds of each `GET /v1/connect`, on a connection of its own as clients make it, at `rate` requests a
    second. They count from the moment at which the request was due: a late one is the answer's fault or ours."""
    point, tasks = AccessPoint.parse(f"http://{HOST}:{http_port}"), []

    async def one(number: int, due: float) -> float:
        due = min(due, time.perf_counter())  # sleep may end a millisecond early
        points = await ask(point, "mqtt", f"van-{number}", None, ASK_TIMEOUT_S)
        if not points:
            raise RuntimeError("the access point has named no connect point")
        return (time.perf_counter() - due) * 1000

    began = time.perf_counter()  # uvloop's own clock has milliseconds only
    for number in range(int(rate * seconds)):
        due = began + number / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(one(number, due)))
    return list(await asyncio.gather(*tasks))


@contextlib.contextmanager
def bare_access_point() -> Iterator[int]:
    """A process that gives every request the same answer, and does nothing else; yields its port. What a request costs
    beyond it is the gateway's; the rest is the machine's and the load generator's."""
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve_answers, args=(theirs,), daemon=True)
    server.start()
    try:
        yield ours.recv()
    finally:
        server.kill()
        server.join()


async def answer_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serves a connection of the bare access point."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(ANSWER) + ANSWER)
    await writer.drain()
    writer.close()


def _serve_answers(ready: Any) -> None:
    async def serve() -> None:
        server = await asyncio.start_server(answer_all, HOST, 0)
        ready.send(server.sockets[0].getsockname()[1])
        await asyncio.Event().wait()

    uvloop.run(serve())
