"""From the MQTT stand-in's spool into the mesh (M2, M16)."""

import asyncio
from pathlib import Path

from edge.agent.mesh.mesh_log import MeshLog
from edge.agent.mesh.mesh_sender import MeshSender, MeshTransport
from edge.agent.mqtt.message import MqttMessage
from edge.agent.mqtt.store import Spooled
from tests.unit.edge.node.node_host import NodeHost, certificates


def spooled(spool: int, number: int) -> Spooled:
    return Spooled(spool, number, "@c", MqttMessage(f"{spool:016x}{number:016x}", "far/x", b"x", 1), None)


def test_a_spool_in_a_new_file_is_taken_from_its_beginning(tmp_path: Path) -> None:
    """M2: what is handed in again is recognised by its number, in the file that has the number."""

    async def send(messages: list[Spooled], bundles: int) -> None:
        log, host = MeshLog(100), NodeHost("a", tmp_path)
        host.log = log
        async with host.running(certificates("c")) as node:
            transport = MeshTransport(node, log, MeshSender(node, log, 3_600), "lane", "")
            assert await transport.send(messages, {}) == len(messages)
            assert len(node.carrier) == bundles

    async def run() -> None:
        await send([spooled(1, number) for number in (1, 2, 3)], 3)
        await send([spooled(1, number) for number in (2, 3, 4)], 4)
        await send([spooled(2, number) for number in (1, 2)], 6)
        await send([spooled(2, number) for number in (1, 2, 3)], 7)

    asyncio.run(run())
