"""MoldUDP64 as a source: datagrams, and requests to the request server for what is missing (S2).

The request server answers to the port that asked, which takes datagrams from the server's address only.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import Final

from edge.feeds.adapter.address import Address
from edge.feeds.adapter.mold_order import MoldLimits, MoldOrder
from edge.feeds.adapter.sources.clock import now_us
from edge.feeds.adapter.sources.intake import Intake, Piece
from edge.feeds.adapter.sources.udp import DATAGRAM_BYTES, DATAGRAMS_AT_ONCE, UdpSource
from edge.feeds.errors import SourceUnusable
from edge.feeds.formats.moldudp64 import Downstream, MoldUdp64Parser, build_request

_log = logging.getLogger("waystation.feed")
IDLE_S: Final = 1.0


class MoldSource:
    """`server`: host and port of the request server; None: there is none."""

    def __init__(
        self,
        name: str,
        address: Address,
        server: tuple[str, int] | None,
        limits: MoldLimits,
        receive_bytes: int,
        intake: Intake,
        on_bound: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._intake, self._server = intake, server
        self._parser = MoldUdp64Parser(name)
        self.order = MoldOrder(limits, intake.last())
        self._udp = UdpSource(address, receive_bytes, self, intake, on_bound)
        self._changed = asyncio.Event()
        self._requests: socket.socket | None = None

    async def run(self) -> None:
        """Never returns. Raises SourceUnusable."""
        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as stack:
            if self._server is not None:
                self._requests = await self._connected(*self._server)
                stack.callback(self._requests.close)
                loop.add_reader(self._requests.fileno(), self._answered)
                stack.callback(loop.remove_reader, self._requests.fileno())
            timer = asyncio.create_task(self._watch())
            stack.callback(timer.cancel)
            receiving = asyncio.create_task(self._udp.run())
            stack.callback(receiving.cancel)
            done, _ = await asyncio.wait([timer, receiving], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()

    def datagrams(self, data: list[bytes]) -> None:
        """Datagrams of either socket."""
        found: list[Downstream] = []
        for one in data:
            found += self._parser.datagram(one)
        self._hand_over(self.order.take(found, self._now_ms()))
        self._changed.set()

    async def _watch(self) -> None:
        while True:
            now_ms = self._now_ms()
            self._hand_over(self.order.expire(now_ms))
            for request in self.order.requests(now_ms):
                self._send(build_request(request))
            due_ms = self.order.due_ms(now_ms)
            self._changed.clear()
            if due_ms is None:
                await self._changed.wait()
            else:
                await asyncio.sleep(max(0.001, (due_ms - now_ms) / 1000))

    def _send(self, request: bytes) -> None:
        assert self._requests is not None
        with contextlib.suppress(OSError):  # its space is full, or nobody is there now: it is asked again
            self._requests.send(request)

    def _answered(self) -> None:
        assert self._requests is not None
        data: list[bytes] = []
        with contextlib.suppress(OSError):  # all is read, or nobody is there now
            while len(data) < DATAGRAMS_AT_ONCE:
                data.append(self._requests.recv(DATAGRAM_BYTES))
        if data:
            self.datagrams(data)

    def _hand_over(self, found: list[Downstream]) -> None:
        if found:
            self._intake.offer(Piece(found, now_us()))

    async def _connected(self, host: str, port: int) -> socket.socket:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
            sock = socket.socket(found[0][0], socket.SOCK_DGRAM)
            sock.setblocking(False)
            sock.connect(found[0][4])
        except OSError as error:
            raise SourceUnusable(f"source.request cannot be used: {error.strerror or error}") from error
        return sock

    @staticmethod
    def _now_ms() -> float:
        return asyncio.get_running_loop().time() * 1000
