"""Agents of a mesh over power cuts of the originator, the proxy and the exit: what was not synced is gone, what was
accepted arrives (M2, M8, M14, M16).

programs ─SMTP, folder─► agent a ── agent c ── agent b ─► stock mail server, folder

Each agent has a disk of its own. A mail that was answered with 250 arrives; more than once only as often as the exit
counts it as doubtful. A file that has left the outbox is in the inbox.
"""

import asyncio
import contextlib
import os
import re
import subprocess
from collections import Counter
from pathlib import Path

from jobs.stack.process import wait_until
from tests import draw
from tests.agent_process import AgentProcess
from tests.disk import Disk, mounted, needs_disk
from tests.faithful_client import eventually
from tests.integration.edge.mesh_authority import MeshAuthority
from tests.integration.edge.publisher_process import is_stopped
from tests.integration.edge.test_agent_processes import submit
from tests.mosquitto import HOST, free_port
from tests.unit.edge.agent.agent_harness import StockServer

STOPPED_S = 10.0
WITHIN_S = 120.0
MESH = """
client_id = "{name}"
[mesh]
enabled = true
port = {port}
peers = {peers}
redial_most_s = 0.5
"""
ORIGINATOR = """
[smtp.routes]
"b.example" = "b"
[smtp.submission]
enabled = true
port = {submission}
hostname = "a"
[folders]
enabled = true
rescan_s = 0.05
[folders.outboxes]
"out" = "@b"
"""
EXIT = """
[smtp.relay]
enabled = true
port = {server}
domains = ["b.example"]
hostname = "b"
retry_first_s = 0.1
retry_most_s = 0.2
[folders]
enabled = true
inbox = "in"
"""


class Device:
    """An agent on a disk of its own."""

    def __init__(self, disk: Disk, authority: MeshAuthority, name: str, port: int, peers: list[int], more: str) -> None:
        self.disk = disk
        addresses = [f"{HOST}:{peer}" for peer in peers]
        self.agent = AgentProcess(disk.directory / name, MESH.format(name=name, port=port, peers=addresses) + more)
        authority.issue(name, self.agent.directory / "agent" / "identity")
        subprocess.run(["sync", "--file-system", disk.directory], check=True)  # what an installation has done

    def cut(self) -> None:
        """The power fails and comes back. The process is stopped before, between two system calls: an fsync that the
        shutdown of a file system overtakes may report success."""
        self.agent.freeze(lambda pid: wait_until(lambda: is_stopped(pid), STOPPED_S))
        self.disk.cut()
        self.agent.kill()
        self.disk.unmount()
        self.disk.mount()
        self.agent.start()


def put(folder: Path, number: int) -> bool:
    """As a careful application does: the file is on disk when it gets its name. Whether that has succeeded."""
    try:
        with (folder / f".{number}").open("w") as file:
            file.write(str(number))
            file.flush()
            os.fsync(file.fileno())
        (folder / f".{number}").rename(folder / str(number))
    except OSError:
        return False
    return True


@needs_disk
def test_the_power_fails_at_each_agent(tmp_path: Path) -> None:
    choice = draw.generator("power cuts of agents")

    async def run(a: Device, c: Device, b: Device, submission: int, server: StockServer) -> None:
        for device in (b, c, a):
            await asyncio.to_thread(device.agent.start)
        loop, accepted, number = asyncio.get_running_loop(), set[int](), 0

        async def cuts() -> None:
            for _ in range(draw.times(1, 6)):
                for device in choice.sample([a, c, b], 3):
                    await asyncio.sleep(choice.uniform(0.0, 0.5))  # a random moment is what is tested
                    await asyncio.to_thread(device.cut)

        cutting = asyncio.create_task(cuts())
        while not cutting.done():
            number += 1  # one whose answer is lost may have been accepted, so it is not submitted again
            put(a.agent.directory / "out", number)
            if await loop.run_in_executor(None, submit, submission, number):
                accepted.add(number)
            else:
                await asyncio.sleep(0.02)
        await cutting
        assert accepted
        files = {number + at for at in range(1, 6)}
        for one in files:
            assert put(a.agent.directory / "out", one)

        def arrived() -> Counter[int]:
            found = (re.match(rb"X-Number: (\d+)", content) for _, _, content in server.taken)
            return Counter(int(one[1]) for one in found if one is not None)

        def in_folder() -> list[int]:
            return sorted(int(path.read_text()) for path in (b.agent.directory / "in").glob("[!.]*"))

        await eventually(lambda: accepted <= arrived().keys(), "every accepted mail arrives", WITHIN_S)
        await eventually(lambda: not any((a.agent.directory / "out").glob("[!.]*")), "no file is left", WITHIN_S)
        await eventually(lambda: files <= set(in_folder()), "every file arrives", WITHIN_S)
        for device in (a, c, b):
            while (await asyncio.to_thread(device.agent.status))["mesh"]["bundles"]:
                await asyncio.sleep(0.05)
        assert len(in_folder()) == len(set(in_folder())), "a file came twice"
        relay = (await asyncio.to_thread(b.agent.status))["relay"]
        repeated = sum(arrived().values()) - len(arrived())
        assert repeated <= relay.get("doubtful_in_all", 0)
        for device in (a, c, b):
            await asyncio.to_thread(device.agent.stop)

    async def whole() -> None:
        authority, at_a, at_b, submission = MeshAuthority(tmp_path), free_port(), free_port(), free_port()
        with contextlib.ExitStack() as stack:
            disks = []
            for name in "acb":
                (tmp_path / name).mkdir()
                disks.append(stack.enter_context(mounted(tmp_path / name)))
            async with StockServer() as server:
                a = Device(disks[0], authority, "a", at_a, [], ORIGINATOR.format(submission=submission))
                c = Device(disks[1], authority, "c", 0, [at_a, at_b], "")
                b = Device(disks[2], authority, "b", at_b, [], EXIT.format(server=server.port))
                try:
                    await run(a, c, b, submission, server)
                finally:
                    for device in (a, c, b):
                        await asyncio.to_thread(device.agent.end)

    asyncio.run(asyncio.wait_for(whole(), 300))
