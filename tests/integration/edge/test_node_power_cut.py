"""A mesh node's store over power cuts: what was not synced is gone, what was accepted is there (M2)."""

import asyncio
import time
from pathlib import Path

from bundles.bundle import Header
from bundles.content import Content
from edge.client.store_clock import running_s
from edge.node.node import MeshNode
from edge.node.settings import MeshSettings
from tests import draw
from tests.disk import Disk, mounted, needs_disk
from tests.integration.edge.publisher_process import cut_off_after
from tests.unit.bundles.keys import AUTHORITY, identity

NODE = """
import asyncio, sys
from pathlib import Path
from bundles.bundle import Kind
from bundles.content import Content
from tests.integration.edge.test_node_power_cut import opened
from tests.unit.edge.node.node_host import certificates

async def main(directory):
    async with opened(Path(directory)) as node:
        for one in certificates("c"):
            node.take_certificate(one.der)
        while True:
            batch = (node.submit(Kind.ENVELOPE, "@c", Content(b"text"), 3_600) for _ in range(20))
            for message_id in await asyncio.gather(*batch):
                print(node.carrier.held(message_id).bundle.header.sequence, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


def opened(directory: Path) -> MeshNode:
    """A node that knows no peer."""

    async def on_envelope(header: Header, content: Content) -> None: ...

    return MeshNode(
        *(MeshSettings(enabled=True, port=0), directory, identity("a", now_s=time.time()), AUTHORITY),
        wall_s=time.time,
        running_s=running_s,
        on_envelope=on_envelope,
    )


@needs_disk
def test_the_power_fails_again_and_again(tmp_path: Path) -> None:
    """What was accepted is held after each cut, with numbers that no later message gets."""
    choice = draw.generator("power cuts of a node")

    async def run(disk: Disk) -> None:
        directory, accepted = disk.directory / "node", set[int]()
        for _ in range(draw.times(3, 40)):
            told = await cut_off_after(choice.uniform(0.0, 0.4), disk.cut, str(directory), script=NODE)
            assert not accepted & set(told)
            accepted |= set(told)
            disk.unmount()
            disk.mount()
            async with opened(directory) as node:
                held = [node.carrier.held(message_id) for message_id in node.carrier.ids()]
                assert accepted <= {one.bundle.header.sequence for one in held if one is not None}
        assert accepted

    with mounted(tmp_path) as disk:
        asyncio.run(asyncio.wait_for(run(disk), 120))
