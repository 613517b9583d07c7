"""A contact on its link, with a store that takes its time (M2, M3)."""

import asyncio
import socket
from typing import Any

from edge.mesh.contact_events import EndedBy
from edge.mesh.contact_frames import Hello, encode
from edge.node.contact_driver import ContactDriver
from tests.unit.bundles.keys import certificate
from tests.unit.edge.mesh.contact_pair import carrier
from tests.unit.edge.node.node_host import eventually


class SlowDesk:
    """What the driver asks of a :class:`edge.node.desk.Desk`. `commits`: lets `answered` return. `looks`: how often the
    time was asked for."""

    def __init__(self) -> None:
        self.carrier: Any = carrier("a", idle_s=0.04)
        self.carrier.ciphertexts = self
        self.commits, self.time_s, self.looks = asyncio.Event(), 0.0, 0

    @property
    def now_s(self) -> float:
        self.looks += 1
        return self.time_s

    async def load(self) -> bool:
        return False

    async def answered(self) -> None:
        await self.commits.wait()

    def handle(self, *_: object) -> None:
        pass


def test_a_peer_is_not_blamed_for_what_is_not_read() -> None:
    """M3: while our disk is full nothing is read; the silence that follows is the peer's."""

    async def run() -> None:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=ours)
        desk: Any = SlowDesk()
        driver = ContactDriver(desk, reader, writer, certificate("b"), "memory", dialled=True)
        running = asyncio.create_task(driver.run())
        await asyncio.sleep(0)
        hello = Hello(
            "b", 1, has_uplink=False, predictability=0.0, frame_bytes=65_536, bundle_bytes=10**6, revocations=0
        )
        await asyncio.get_running_loop().sock_sendall(theirs, encode(hello))
        await eventually(lambda: driver.contact.peer is not None, "hello is read")
        desk.time_s, looks = 100.0, desk.looks
        await eventually(lambda: desk.looks > looks + 5, "time has passed")
        assert driver.contact.closed is None
        desk.commits.set()
        assert (await running).by is EndedBy.SILENCE
        theirs.close()

    asyncio.run(run())
