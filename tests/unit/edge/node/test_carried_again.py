"""A bundle that is removed and added again in one commit."""

import asyncio
from pathlib import Path

from tests.unit.edge.node.node_host import Join, NodeHost, certificates, send
from tests.unit.edge.node.test_carrying import NAMES, knows


def test_carried_from_the_platform_in_the_commit_of_the_gateways_receipt(tmp_path: Path) -> None:
    """`carry` says that it is on disk, and so it is, though the receipt has removed it in the same commit."""

    async def run() -> None:
        sender, host = NodeHost("sender", tmp_path), NodeHost("carrier", tmp_path)
        async with host.running(certificates(*NAMES)) as node:
            async with sender.running(certificates(*NAMES)) as one:
                message = await send(one, "@device")
                await Join(one, node).run(lambda: message in node.carrier)
                [bundle] = await one.load([one.carrier.held(message)])  # type: ignore[list-item]
            _, is_held = await asyncio.gather(knows(node, bundle), node.desk.carry(bundle))
            assert is_held
            held = node.carrier.held(message)
            assert held is not None
            await node.desk.answered()
            assert await node.load([held]), "it is in memory, and not on disk"

    asyncio.run(run())
