"""Sources of one stream of bytes: a pipe, a TCP connection to a server, and connections that come to a listener (S2).

They wait while the adapter's buffer is full, so a TCP peer is held back by flow control. A connection that is lost may
end in the middle of a line or record: the rest is reported as malformed, never taken for a message. Connections to the
listener are read one after the other, so that the order is that of the source.

Adapters send nothing to the source, so connections are probed: one whose peer has lost its power would look like a
source that is silent.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from typing import Final

from edge.feeds.adapter.parsing import MakeParser
from edge.feeds.adapter.sources.clock import now_us
from edge.feeds.adapter.sources.intake import Intake, Piece
from edge.feeds.errors import SourceUnusable
from edge.keep_alive import keep_alive
from edge.reconnect import STABLE_S, FullJitter

_log = logging.getLogger("waystation.feed")
READ_BYTES: Final = 65_536
CONNECT_S: Final = 10.0


async def read_all(reader: asyncio.StreamReader, make: MakeParser, intake: Intake, *, is_connection: bool) -> None:
    """Reads until the end of the stream. Raises OSError."""
    parser = make(intake.highest())
    try:
        while data := await reader.read(READ_BYTES):
            await intake.take(Piece(parser.feed(data), now_us()))
    except OSError:
        await intake.take(Piece(parser.cut(), now_us()))
        raise
    # Only the end of a pipe says that the source had nothing more to say.
    rest = parser.cut() if is_connection else parser.end()
    await intake.take(Piece(rest, now_us()))


class PipeSource:
    """The standard input, or another descriptor that can be waited for."""

    def __init__(self, descriptor: int, make: MakeParser, intake: Intake) -> None:
        self._descriptor, self._make, self._intake = descriptor, make, intake

    async def run(self) -> None:
        """Returns at the end of the input. Raises SourceUnusable."""
        reader = asyncio.StreamReader(READ_BYTES)
        try:
            pipe = os.fdopen(os.dup(self._descriptor), "rb", buffering=0)
            with contextlib.ExitStack() as stack:
                stack.callback(pipe.close)
                transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                    lambda: asyncio.StreamReaderProtocol(reader), pipe
                )
                stack.pop_all()
        except (OSError, ValueError) as error:
            raise SourceUnusable(
                f"the standard input is no pipe, socket or terminal ({error}): use file:PATH"
            ) from error
        self._intake.is_now("up")
        try:
            await read_all(reader, self._make, self._intake, is_connection=False)
        finally:
            transport.close()


class TcpSource:
    """Connects to a server, again and again, with full jitter between attempts. A server that does not answer probes
    for `unanswered_s` is lost."""

    def __init__(
        self, host: str, port: int, make: MakeParser, intake: Intake, backoff: FullJitter, unanswered_s: float
    ) -> None:
        self._host, self._port, self._make, self._intake, self._backoff = host, port, make, intake, backoff
        self._unanswered_s = unanswered_s

    async def run(self) -> None:
        """Never returns."""
        loop, attempt = asyncio.get_running_loop(), 0
        where = f"{self._host}:{self._port}"
        while True:
            began = loop.time()
            try:
                await self._one_connection()
                reason = f"{where} has closed the connection"
            except TimeoutError:
                reason = f"{where} does not answer"
            except OSError as error:
                reason = f"no connection to {where}: {error.strerror or error}"
            self._intake.is_now("source_lost", reason)
            attempt = 0 if loop.time() - began >= STABLE_S else attempt + 1
            await asyncio.sleep(self._backoff.delay_s(attempt))

    async def _one_connection(self) -> None:
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await asyncio.open_connection(self._host, self._port, limit=READ_BYTES)
        with contextlib.closing(writer):
            keep_alive(writer.get_extra_info("socket"), self._unanswered_s)
            self._intake.is_now("up")
            await read_all(reader, self._make, self._intake, is_connection=True)


class TcpListenSource:
    """Takes connections; one at a time is read, a further one waits, and more than `waiting_max` are refused. A peer
    that does not answer probes for `unanswered_s` is gone."""

    def __init__(
        self,
        host: str,
        port: int,
        make: MakeParser,
        intake: Intake,
        unanswered_s: float,
        *,
        waiting_max: int = 4,
        on_listening: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._host, self._port, self._make, self._intake = host, port, make, intake
        self._unanswered_s, self._waiting_max, self._on_listening = unanswered_s, waiting_max, on_listening
        self._turn = asyncio.Lock()
        self._reading: set[asyncio.Task[None]] = set()
        self._refused = 0  # since the last connection was taken

    async def run(self) -> None:
        """Never returns. Raises SourceUnusable if the address cannot be used."""
        try:
            server = await asyncio.start_server(self._connected, self._host, self._port, limit=READ_BYTES)
        except OSError as error:
            raise SourceUnusable(f"cannot listen on {self._host}:{self._port}: {error.strerror or error}") from error
        self._on_listening(server.sockets[0].getsockname()[1])
        self._intake.is_now("source_lost", "nobody has connected yet")
        try:
            async with server:
                await server.serve_forever()
        finally:
            for task in self._reading:
                task.cancel()
            if self._reading:
                await asyncio.wait(self._reading)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._reading.add(task)
        try:
            if len(self._reading) > 1 + self._waiting_max:
                self._refuse(writer)
                return
            self._refused = 0
            keep_alive(writer.get_extra_info("socket"), self._unanswered_s)
            async with self._turn:
                self._intake.is_now("up")
                with contextlib.suppress(OSError):
                    await read_all(reader, self._make, self._intake, is_connection=True)
                self._intake.is_now("source_lost", "the connection has ended")
        finally:
            self._reading.remove(task)
            writer.close()

    def _refuse(self, writer: asyncio.StreamWriter) -> None:
        """Says so once: whoever is refused mostly tries again and again."""
        self._refused += 1
        if self._refused == 1:
            host, port, *_ = writer.get_extra_info("peername") or ("an unknown address", 0)
            _log.warning(
                "refuses connections, the first from %s:%s: one is read and %s wait; if their senders are gone, they "
                "end after limits.unanswered_s",
                host,
                port,
                self._waiting_max,
            )
