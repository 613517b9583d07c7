"""TCP proxies on loopback that a test cuts, freezes and heals: a process is cut off from one other, and from nobody
else, and needs no rights for it.

**Frozen**, nothing comes through, and nobody is told, as with a network that is gone: connections stay, and what was
sent comes once the proxy is healed. **Cut**, connections are reset, and new ones too, as when a firewall answers.
Either may be for the connections of one source only, if `source_of` tells whose the port of a peer is.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, TypeVar, cast

from harness.processes import HOST

T = TypeVar("T")
ANYBODY: Final = ""
_RESET: Final = struct.pack("ii", 1, 0)
_TARGET_BUFFER: Final = 1 << 20
_CALL_S: Final = 10.0

SourceOf = Callable[[int], str]
"""The name of who has a local port of a connection; "" if nobody knows. It may take long: it runs in another thread."""


class _Side(asyncio.Protocol):
    """One side of a connection through the proxy; `_Way` joins two."""

    def __init__(self, way: "_Way") -> None:
        self._way = way
        self.transport: asyncio.Transport | None = None
        self.other: _Side | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=_TARGET_BUFFER)
        self._way.made(self)

    def data_received(self, data: bytes) -> None:
        assert self.other is not None
        assert self.other.transport is not None
        self.other.transport.write(data)

    def pause_writing(self) -> None:
        self._way.is_full(self.other, True)

    def resume_writing(self) -> None:
        self._way.is_full(self.other, False)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._way.lost(self)


class _Way:
    """A connection through the proxy: the side that came, and the one to the target."""

    def __init__(self, proxy: "CuttableProxy") -> None:
        self._proxy = proxy
        self.source: str | None = None
        """None until it is known: nothing is read before."""
        self._near, self._far = _Side(self), _Side(self)
        self._near.other, self._far.other = self._far, self._near
        self._full: set[_Side] = set()
        self._is_frozen = False
        self._is_reaching = False
        self._is_over = False

    def accept(self) -> asyncio.Protocol:
        return self._near

    def made(self, side: _Side) -> None:
        if side is self._near:
            self._proxy.came(self)
        # Not now: Python 3.11.2 begins to read after this, even what is paused by then.
        asyncio.get_running_loop().call_soon(self._begin if side is self._near else self._apply)

    def _begin(self) -> None:
        transport = self._near.transport
        if transport is not None and not transport.is_closing():
            transport.pause_reading()
            self._proxy.begun(self, transport.get_extra_info("peername")[1])

    def go_on(self) -> None:
        """Reaches the target, or goes on to read; nothing while it is frozen."""
        self._is_frozen = False
        if self._far.transport is None and not self._is_reaching:
            self._is_reaching = True
            self._proxy.spawn(self._reach())
        else:
            self._apply()

    def freeze(self) -> None:
        self._is_frozen = True
        self._apply()

    def reset(self) -> None:
        for side in (self._near, self._far):
            if side.transport is not None and not side.transport.is_closing():
                found = side.transport.get_extra_info("socket")
                if found is not None:
                    found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                side.transport.abort()

    def is_full(self, reading: _Side | None, is_full: bool) -> None:
        """The side to which `reading` is passed on takes no more for now, or takes more again."""
        assert reading is not None
        (self._full.add if is_full else self._full.discard)(reading)
        self._apply()

    def lost(self, side: _Side) -> None:
        """Either end is the end of both; what was read before is still written."""
        self._is_over = True
        self._proxy.gone(self)
        other = side.other
        if other is not None and other.transport is not None:
            other.transport.close()

    async def _reach(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self._far, HOST, self._proxy.target)
        except OSError:
            self.reset()
        if self._is_over and self._far.transport is not None:
            self._far.transport.abort()

    def _apply(self) -> None:
        if self._far.transport is None:
            return
        for side in (self._near, self._far):
            if side.transport is None or side.transport.is_closing():
                continue
            if self._is_frozen or side in self._full:
                side.transport.pause_reading()
            else:
                side.transport.resume_reading()


class CuttableProxy:
    """Listens on `port` and passes on to `target`; made by :meth:`Proxies.open`. Its methods return once they hold."""

    def __init__(self, proxies: "Proxies", port: int, target: int, source_of: SourceOf | None) -> None:
        self.port, self.target = port, target
        self._proxies, self._source_of = proxies, source_of
        self._ways: set[_Way] = set()
        self._frozen: set[str] = set()
        self._cut: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Way(self).accept(), HOST, self.port)

    async def close(self) -> None:
        """Nobody is accepted any more, and all connections are being reset."""
        self._cut.add(ANYBODY)
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for way in list(self._ways):
            way.reset()

    # -- for the test, from its thread ---------------------------------------------------------------------------------

    def freeze(self, source: str = ANYBODY) -> None:
        """Nothing comes through, of anybody or of one source."""
        self._proxies.call(self._change(self._frozen, source))

    def cut(self, source: str = ANYBODY) -> None:
        """Connections are reset, and so are new ones."""
        self._proxies.call(self._change(self._cut, source))

    def blip(self) -> None:
        """Connections are reset; new ones go through."""
        self._proxies.call(self._reset())

    def heal(self) -> None:
        self._proxies.call(self._heal())

    @property
    def connections(self) -> int:
        return len(self._ways)

    # -- in the loop of the proxies ------------------------------------------------------------------------------------

    def came(self, way: _Way) -> None:
        self._ways.add(way)

    def begun(self, way: _Way, peer_port: int) -> None:
        if self._source_of is None:
            way.source = ANYBODY
            self._treat(way)
        else:
            self.spawn(self._learn_source(way, self._source_of, peer_port))

    async def _learn_source(self, way: _Way, source_of: SourceOf, peer_port: int) -> None:
        """All proxies share this loop: those of others must not wait meanwhile."""
        way.source = await asyncio.to_thread(source_of, peer_port)
        if way in self._ways:
            self._treat(way)

    def gone(self, way: _Way) -> None:
        self._ways.discard(way)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _change(self, kept: set[str], source: str) -> None:
        kept.add(source)
        for way in list(self._ways):
            self._treat(way)

    async def _reset(self) -> None:
        for way in list(self._ways):
            way.reset()

    async def _heal(self) -> None:
        self._cut.clear()
        self._frozen.clear()
        for way in list(self._ways):
            self._treat(way)

    def _treat(self, way: _Way) -> None:
        if {ANYBODY, way.source} & self._cut:
            way.reset()
        elif way.source is None:
            pass  # it is treated once it is known
        elif {ANYBODY, way.source} & self._frozen:
            way.freeze()
        else:
            way.go_on()


class Proxies:
    """`with Proxies() as proxies:`; all of them run in one thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._all: list[CuttableProxy] = []

    def __enter__(self) -> "Proxies":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def open(self, port: int, target: int, source_of: SourceOf | None = None) -> CuttableProxy:
        """Raises OSError if the port cannot be used."""
        proxy = CuttableProxy(self, port, target, source_of)
        self.call(proxy.listen())
        self._all.append(proxy)
        return proxy

    async def _close(self) -> None:
        """Returns once no connection is left, not even one that was being accepted."""
        for proxy in self._all:
            await proxy.close()
        while any(proxy.connections for proxy in self._all):
            await asyncio.sleep(0)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_S)
