"""Servers that a test writes itself, in a network namespace: each in a thread with an event loop of its own."""

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any

from tests.namespaces import Namespace, enter

START_S = 30.0
BLOCK = 65_536

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Listener:
    """`with Listener(namespace, serve, port):`; awaits `serve` for each connection, and closes it afterwards."""

    def __init__(self, inside: Namespace, serve: Serve, port: int, host: str = "0.0.0.0") -> None:
        self._inside, self._serve, self._port, self._host = inside, serve, port, host
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> "Listener":
        self._loop, self._problem, ready = asyncio.new_event_loop(), "", threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(START_S), "no answer of the listener's thread"
        assert not self._problem, self._problem
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._main.cancel)
        self._thread.join(START_S)

    def _run(self, ready: threading.Event) -> None:
        async def main() -> None:
            try:
                server = await asyncio.start_server(self._accept, self._host, self._port)
            except OSError as error:
                self._problem = str(error)
                return
            finally:
                ready.set()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                server.close()
                await asyncio.sleep(0)  # nobody is cancelled while being accepted

        enter(self._inside.pid)
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:  # which cancels what is left, at its end
            self._main = self._loop.create_task(main())

            async def until_cancelled() -> None:
                with contextlib.suppress(asyncio.CancelledError):
                    await self._main
                for writer in self._open:
                    writer.transport.abort()

            runner.run(until_cancelled())

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A task that is cancelled before it has begun would leave its connection open."""
        self._open.add(writer)
        task = self._loop.create_task(self._one(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve(reader, writer)
        except (OSError, EOFError, ssl.SSLError):
            pass  # the other end has gone
        finally:
            writer.close()
            self._open.discard(writer)


def slow_way(port: int, delay_s: float, host: str = "127.0.0.1") -> Serve:
    """A proxy to `port`: every byte needs `delay_s` each way. The kernels here cannot delay packets (no netem)."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(host, port)
        try:
            await until_one_ends(_delayed(reader, there[1], delay_s), _delayed(there[0], writer, delay_s))
        finally:
            there[1].close()

    return serve


async def until_one_ends(*ways: Coroutine[Any, Any, None]) -> None:
    """Passes on what comes each way, until one of them has ended."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _delayed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    """Returns when the end has arrived, too."""
    loop = asyncio.get_running_loop()
    while block := await reader.read(BLOCK):
        loop.call_later(delay_s, writer.write, block)
    await asyncio.sleep(delay_s)


PAGE = b"<html><head><title>Welcome</title></head><body>Please log in to use this network.</body></html>"


def captive_portal(certificate: ssl.SSLContext | None, seen: list[str]) -> Serve:
    """A network's login page: answers whatever it is sent with 200 and HTML, also over TLS, with a certificate of its
    own if it has one. `seen` gets "tls" or "plain" for each connection that sent something."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(PAGE) + PAGE
        first = await reader.read(BLOCK)
        if not first:
            return
        if certificate is None or not first.startswith(b"\x16\x03"):  # a TLS handshake (RFC 8446, 5.1)
            seen.append("plain")
            writer.write(answer)
            await writer.drain()
            return
        seen.append("tls")
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = certificate.wrap_bio(incoming, outgoing, server_side=True)
        incoming.write(first)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                block = await reader.read(BLOCK)
                if not block:
                    return
                incoming.write(block)
        writer.write(outgoing.read())
        tls.write(answer)
        writer.write(outgoing.read())
        await writer.drain()

    return serve
