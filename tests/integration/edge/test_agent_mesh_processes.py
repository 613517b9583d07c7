"""`waystation agent up` as a member of a mesh: agents without a platform, carriers, kills, a gateway (M1, M5-M8,
M10-M15, M17-M21)."""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from edge.agent.errors import ControlError
from tests.agent_process import AgentProcess
from tests.faithful_client import eventually
from tests.integration.edge.mesh_authority import MeshAuthority
from tests.mosquitto import HOST, free_port
from tests.unit.edge.agent.agent_harness import StockServer, submit

MAIL = b"Subject: over the mesh\r\n\r\nhello\r\n"
SUBMITS = """
[smtp.routes]
"b.example" = "b"
[smtp.submission]
enabled = true
port = 0
hostname = "a"
"""
RELAYS = """
[smtp.relay]
enabled = true
port = {port}
domains = ["b.example"]
hostname = "b"
"""


class Mesh:
    """The agents of a test, with identities of one authority; killed at its end if they still run."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._authority = directory, MeshAuthority(directory)
        self._processes: list[AgentProcess] = []

    def member(
        self, name: str, more: str = "", *, port: int = 0, peers: Iterable[int] = (), mesh: str = ""
    ) -> AgentProcess:
        addresses = [f"{HOST}:{one}" for one in peers]
        text = f'client_id = "{name}"\n{more}[mesh]\nenabled = true\nport = {port}\npeers = {addresses}\n{mesh}'
        process = AgentProcess(self._directory / name, text)
        self._authority.issue(name, process.directory / "agent" / "identity")
        self._processes.append(process)
        return process

    def kill_all(self) -> None:
        for process in self._processes:
            process.end()


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[Mesh]:
    found = Mesh(tmp_path)
    yield found
    found.kill_all()


async def start(*processes: AgentProcess) -> None:
    await asyncio.gather(*(asyncio.to_thread(one.start) for one in processes))


async def stop(*processes: AgentProcess) -> None:
    await asyncio.gather(*(asyncio.to_thread(one.stop) for one in processes))


async def submission_port(process: AgentProcess) -> int:
    status = await asyncio.to_thread(process.status)
    return int(status["submission"]["address"].rpartition(":")[2])


async def traced(process: AgentProcess, identifier: str, *last: str) -> list[str]:
    """The steps of a message, once these are among them."""
    while True:
        with contextlib.suppress(ControlError):
            found = [step["event"] for step in await asyncio.to_thread(process.ask, "trace", id=identifier)]
            if set(last) <= set(found):
                return found
        await asyncio.sleep(0.02)


def test_mail_between_two_agents_without_a_platform(mesh: Mesh) -> None:
    """M1, M8, M15, M20: `agent trace` shows the way at both ends, by the id that SMTP has returned."""

    async def run() -> None:
        async with StockServer() as server:
            port = free_port()
            a = mesh.member("a", SUBMITS, peers=[port])
            b = mesh.member("b", RELAYS.format(port=server.port), port=port)
            await start(a, b)
            assert await submit(await submission_port(a), "ann@a.example", ["bob@b.example"], MAIL) == {}
            await eventually(lambda: len(server.taken) == 1, "the mail arrives")
            assert server.taken == [("ann@a.example", ["bob@b.example"], MAIL)]
            identifier = (await asyncio.to_thread(a.ask, "log", count=1_000))[0]["id"]
            assert (await traced(a, identifier, "delivered"))[0] == "accepted"
            await traced(b, identifier, "received", "handed over", "relayed")
            assert [one["name"] for one in await asyncio.to_thread(a.ask, "peers")] == ["b"]
            assert (await asyncio.to_thread(a.status))["mesh"]["bundles"] == 0
            await stop(a, b)

    asyncio.run(asyncio.wait_for(run(), 60))
