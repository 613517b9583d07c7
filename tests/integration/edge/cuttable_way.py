"""The only way from a network namespace to a port of the host, which a test cuts and mends."""

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from tests.listener_in_namespace import BLOCK, Listener, until_one_ends
from tests.namespaces import Namespace

HOST = "127.0.0.1"
LOOK_S = 0.02


class CuttableWay:
    """`with CuttableWay(namespace, port) as way:`; inside, 127.0.0.1:`port` is the host's. While `is_cut`, nothing
    comes through, and nobody is told, as with a network that is gone: connections stay, what was sent comes later."""

    def __init__(self, inside: Namespace, port: int) -> None:
        self._port, self.is_cut = port, False
        self._outside = ThreadPoolExecutor(1, "outside")  # its thread is in the host's network, as whoever begins it
        self._outside.submit(int).result()
        self._listener = Listener(inside, self._serve, port, HOST)

    def __enter__(self) -> "CuttableWay":
        self._listener.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listener.__exit__(kind, error, at)
        self._outside.shutdown()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._outside, socket.create_connection, (HOST, self._port))
        there = await asyncio.open_connection(sock=found)
        try:
            await until_one_ends(self._pass_on(reader, there[1]), self._pass_on(there[0], writer))
        finally:
            there[1].close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while block := await reader.read(BLOCK):
            while self.is_cut:
                await asyncio.sleep(LOOK_S)
            writer.write(block)
