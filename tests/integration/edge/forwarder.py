"""A TCP forwarder whose far end a test moves: what carries a device between places that never touch."""

import asyncio
import contextlib

from tests.mosquitto import HOST


class Forwarder:
    """`async with Forwarder() as forwarder:`; connections to `port` go to the port that it was moved to last, or are
    closed at once if that is None. Moving it breaks those that there are."""

    def __init__(self) -> None:
        self._target: int | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Forwarder":
        self._server = await asyncio.start_server(self._accept, HOST, 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.move(None)
        if self._tasks:
            await asyncio.wait(self._tasks)

    def move(self, target: int | None) -> None:
        self._target = target
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        other: asyncio.StreamWriter | None = None
        try:
            if self._target is not None:
                with contextlib.suppress(OSError):
                    back, other = await asyncio.open_connection(HOST, self._target)
                    self._writers.add(other)
                    pumps = [asyncio.create_task(_pump(reader, other)), asyncio.create_task(_pump(back, writer))]
                    self._tasks.update(pumps)
                    await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in (writer, other):
                if one is not None:
                    one.transport.abort()
                    self._writers.discard(one)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
