"""`waystation agent up` as a member of a mesh: carriers, kills, a replaced device, a gateway (M5-M8, M10-M15, M17)."""

import asyncio
import contextlib
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bundles.receipt import Role
from edge.agent.control import in_json
from edge.agent.errors import ControlError
from harness.processes import Gateway
from tests import draw
from tests.agent_process import AgentProcess
from tests.conftest import LocalBroker
from tests.faithful_client import eventually
from tests.integration.edge.forwarder import Forwarder
from tests.integration.edge.mesh_authority import MeshAuthority
from tests.integration.edge.presence_judge import PresenceJudge
from tests.integration.gateway.test_gateway_http import ids_on_ingress
from tests.integration.gateway.test_gateway_process import PATIENCE_S, Client
from tests.mosquitto import HOST, free_port
from tests.unit.bundles.files import PLATFORM, mesh_environment


class Mesh:
    """The agents of a test, with identities of one authority; killed at its end if they still run."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.authority = directory, MeshAuthority(directory)
        self._processes: list[AgentProcess] = []

    def member(
        self, name: str, more: str = "", *, port: int = 0, peers: Iterable[int] = (), mesh: str = ""
    ) -> AgentProcess:
        addresses = [f"{HOST}:{one}" for one in peers]
        text = f'client_id = "{name}"\n{more}[mesh]\nenabled = true\nport = {port}\npeers = {addresses}\n{mesh}'
        process = AgentProcess(self.directory / name, text)
        self._processes.append(process)
        self.enrol(name)
        return process

    def identity(self, name: str) -> Path:
        return self.directory / name / "agent" / "identity"

    def enrol(self, name: str) -> None:
        self.authority.issue(name, self.identity(name))

    def platform(self) -> dict[str, Any]:
        """The settings of gateways, whose identity is issued."""
        path = self.directory / "platform"
        self.authority.issue(PLATFORM, path, Role.GATEWAY)
        names = {"authority": "authority", "certificate": "certificate", "key": "key"}
        found: dict[str, Any] = {f"{name}_file": str(path / f"{file}.pem") for name, file in names.items()}
        return {"enabled": "true", **found, "sealing_key_files": (str(path / "sealing-key.pem"),)}

    def reinstall(self, name: str) -> None:
        """The device's disk is new: a new store, and new keys for the same name."""
        shutil.rmtree(self.directory / name / "agent")
        self.enrol(name)

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


async def traced(process: AgentProcess, identifier: str, *last: str) -> list[str]:
    """The steps of a message, once these are among them."""
    while True:
        with contextlib.suppress(ControlError):
            found = [step["event"] for step in await asyncio.to_thread(process.ask, "trace", id=identifier)]
            if set(last) <= set(found):
                return found
        await asyncio.sleep(0.02)


def put(folder: Path, text: str) -> None:
    """As an application does."""
    (folder / f".{text}").write_text(text)
    (folder / f".{text}").rename(folder / text)


def files(folder: Path) -> list[str]:
    """The contents of the files that have come."""
    return (
        sorted(path.read_text() for path in folder.iterdir() if not path.name.startswith("."))
        if folder.exists()
        else []
    )


async def carries(process: AgentProcess, count: int) -> None:
    """Returns once it holds so many bundles."""
    while (await asyncio.to_thread(process.status))["mesh"]["bundles"] != count:
        await asyncio.sleep(0.05)


FILES = 6
SENDS_FILES = """
[folders]
enabled = true
rescan_s = 0.05
[folders.outboxes]
"out" = "@b"
"""
TAKES_FILES = """
[folders]
enabled = true
inbox = "in"
"""


def test_a_carrier_between_agents_that_never_meet(mesh: Mesh) -> None:
    """M6, M8, M14, M17, M18: C has been at B, whose certificate A needs; then at A, and at B again. Each is killed with
    SIGKILL at a drawn time, and A's device is replaced while C carries what the old one wrote."""
    choice = draw.generator("kills of members of a mesh")

    async def killed(process: AgentProcess) -> None:
        await asyncio.sleep(choice.uniform(0.0, 0.3))  # a random moment is what is tested
        await asyncio.to_thread(process.kill)
        await asyncio.to_thread(process.start)

    async def run() -> None:
        async with Forwarder() as road:
            at_a, at_b = free_port(), free_port()
            a = mesh.member("a", SENDS_FILES, port=at_a)
            b = mesh.member("b", TAKES_FILES, port=at_b)
            c = mesh.member("c", peers=[road.port])
            road.move(at_b)
            await start(a, b, c)
            while not any(one["name"] == "b" for one in await asyncio.to_thread(c.ask, "peers")):
                await asyncio.sleep(0.05)
            outbox, inbox = a.directory / "out", b.directory / "in"
            road.move(at_a)
            put(outbox, "old-0")  # sealed once C has passed on B's certificate
            await carries(c, 1)
            for number in range(1, FILES):
                put(outbox, f"old-{number}")
            await killed(choice.choice([a, c]))
            await carries(c, FILES)
            await eventually(lambda: not any(outbox.iterdir()), "the files are gone: a new store would send them again")
            await asyncio.to_thread(a.kill)
            mesh.reinstall("a")
            await asyncio.to_thread(a.start)
            for number in range(FILES):
                put(outbox, f"new-{number}")
            await carries(c, 2 * FILES)
            road.move(at_b)
            await killed(choice.choice([b, c]))
            sent = sorted(f"{age}-{number}" for age in ("old", "new") for number in range(FILES))
            await eventually(lambda: len(files(inbox)) >= 2 * FILES, "all files have come", 60)
            await carries(c, 0)
            assert files(inbox) == sent
            road.move(at_a)  # C knows by receipts what to tell A
            await carries(a, 0)
            assert files(inbox) == sent
            await stop(a, b, c)

    asyncio.run(asyncio.wait_for(run(), 120))


UPLINK = """
[uplink]
enabled = true
patience_s = 0.0
retry_most_s = 1.0
[[uplink.bearers]]
name = "lan"
url = "http://{host}:{port}"
"""


def test_through_a_carrier_and_a_gateway(mesh: Mesh, broker: LocalBroker, unique_prefix: str) -> None:
    """M7, M8, M10, M11, M12, M13, M14: what A has given to C reaches a subscriber of the platform once, though A's own
    uplink is back at the same time; both drop their copies. An envelope is on its way to B's inbox, sealed."""
    topics = broker.topics(unique_prefix)
    gateway = Gateway(mesh.directory, broker.bootstrap, unique_prefix, **mesh_environment(mesh.platform()))
    gateway.start()

    async def run() -> None:
        async with Forwarder() as uplink:
            at_c = free_port()
            a = mesh.member("a", UPLINK.format(host=HOST, port=uplink.port), peers=[at_c])
            c = mesh.member("c", UPLINK.format(host=HOST, port=uplink.port), port=at_c)
            mesh.authority.issue("b", mesh.identity("b"))
            with (mesh.identity("a") / "gateways.pem").open("ab") as known:  # as if a contact had brought it
                known.write((mesh.identity("b") / "certificate.pem").read_bytes())
            await start(a, c)
            ids = [
                await asyncio.to_thread(a.ask, "send", to=to, content=in_json(to.encode())) for to in ("fresh/1", "@b")
            ]
            for identifier in ids:
                await traced(a, identifier, "given")
            receiver = await asyncio.to_thread(Client("receiver").connect, gateway.port)
            await asyncio.to_thread(receiver.subscribe, "fresh/#")
            uplink.move(gateway.http_port)
            await eventually(lambda: receiver.got == [b"fresh/1"], "the message has come", PATIENCE_S)
            bundles = []
            for identifier in ids:
                await traced(a, identifier, "acknowledged")
                steps = await asyncio.to_thread(a.ask, "trace", id=identifier)
                bundles.append(steps[0]["detail"].rpartition(" ")[2])
            for process in (a, c):
                await carries(process, 0)
            last = await asyncio.to_thread(c.ask, "send", to="fresh/1", content=in_json(b"last"))
            await traced(c, last, "acknowledged")
            await eventually(lambda: b"last" in receiver.got, "the last message has come", PATIENCE_S)
            assert receiver.got == [b"fresh/1", b"last"]
            assert set(bundles) <= set(await asyncio.to_thread(ids_on_ingress, broker, topics.ingress))
            await asyncio.to_thread(receiver.leave)
            await stop(a, c)

    try:
        asyncio.run(asyncio.wait_for(run(), 120))
    finally:
        gateway.stop()


@draw.over_processes
def test_proxies_that_come_at_once_and_late(mesh: Mesh, broker: LocalBroker, unique_prefix: str) -> None:
    """M9, M11, M12, M13: A hands copies to B, C, D and E. B and C reach the platform at once, and one of them delivers.
    A learns of it from C, not from the platform: when A has a network again, its record is retired. D meets A
    afterwards and drops its copy, so that its uplink delivers nothing. E meets nobody any more, and reaches the
    platform last, after the gateway has been killed: it finds the record, and drops its copy on the receipt that it
    gets with it. The platform has the message once."""
    topics = broker.topics(unique_prefix)
    gateway = Gateway(mesh.directory, broker.bootstrap, unique_prefix, **mesh_environment(mesh.platform()))
    gateway.start()

    async def run(judge: PresenceJudge) -> None:
        at_a, names = free_port(), ("b", "c", "d", "e")
        async with contextlib.AsyncExitStack() as stack:
            roads = {name: await stack.enter_async_context(Forwarder()) for name in names}
            uplinks = {name: await stack.enter_async_context(Forwarder()) for name in ("a", *names)}
            asks = UPLINK.replace("patience_s = 0.0", "patience_s = 300.0\nrecheck_s = 2.0")
            more = {name: asks.format(host=HOST, port=road.port) for name, road in uplinks.items()}
            a = mesh.member("a", more["a"], port=at_a, mesh="copies = 32\n")
            proxies = {
                name: mesh.member(name, more[name], peers=[roads[name].port], mesh="redial_most_s = 1.0\n")
                for name in names
            }
            with (mesh.identity("a") / "gateways.pem").open("ab") as known:
                known.write((mesh.directory / "platform" / "certificate.pem").read_bytes())
            await start(a, *proxies.values())
            sent = await asyncio.to_thread(a.ask, "send", to="late/1", content=in_json(b"late"))
            bundle = (await asyncio.to_thread(a.ask, "trace", id=sent))[0]["detail"].rpartition(" ")[2]
            for name, proxy in proxies.items():
                roads[name].move(at_a)
                await carries(proxy, 1)
                roads[name].move(None)
            for name in ("b", "c"):
                uplinks[name].move(gateway.http_port)
            for name in ("b", "c"):
                await carries(proxies[name], 0)
            roads["c"].move(at_a)
            await carries(a, 0)
            await traced(a, sent, "acknowledged")
            assert not judge.state(bundle).retired
            uplinks["a"].move(gateway.http_port)
            await eventually(lambda: judge.state(bundle).retired, "the record is retired", PATIENCE_S)
            assert judge.state(bundle).state == "delivered"
            roads["d"].move(at_a)
            await carries(proxies["d"], 0)
            await asyncio.to_thread(gateway.kill)
            await asyncio.to_thread(gateway.start)
            for name in ("d", "e"):
                uplinks[name].move(gateway.http_port)
            await carries(proxies["e"], 0)
            last = await asyncio.to_thread(proxies["d"].ask, "send", to="late/1", content=in_json(b"last"))
            await traced(proxies["d"], last, "acknowledged")
            assert (await asyncio.to_thread(ids_on_ingress, broker, topics.ingress)).count(bundle) == 1
            carried = {name: await brought(proxy) for name, proxy in proxies.items()}
            assert carried["b"] + carried["c"] == 1
            assert (carried["d"], carried["e"]) == (1, 0)  # D the last message
            await stop(a, *proxies.values())

    try:
        with PresenceJudge(broker, topics) as judge:
            asyncio.run(asyncio.wait_for(run(judge), 280))
    finally:
        gateway.stop()


async def brought(process: AgentProcess) -> int:
    """How many messages its uplink has brought to the platform."""
    return int((await asyncio.to_thread(process.status))["bearers"]["lan"]["delivered"])
