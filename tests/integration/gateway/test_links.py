"""Links over real sockets and to real processes: when one is killed, and when a connection blips (Q6)."""

import asyncio
import os
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop

from gateway.cluster.life import Heard, Life, LifeEvent, LinkEnded, LinkHeard, Redial, RedialResult
from gateway.cluster.timings import LifeTimings
from gateway.host.member_tls import MemberTls
from gateway.links.dialled import Wanted
from gateway.links.frames import PING, PONG, opening
from gateway.links.links import Links, LinkTls
from jobs.runtime.certificates import make
from schemas.errors import SettingsError
from schemas.leases import Claimant
from schemas.members import GatewayAddress
from schemas.sections import OFF
from schemas.settings import process_settings

A, B = Claimant("a", 5), Claimant("b", 7)
PING_S = 0.05
PATIENCE_S = 30.0

PROCESS = """
import asyncio
from gateway.links.links import Links
from schemas.leases import Claimant

async def run():
    links = Links(Claimant("b", 7), "127.0.0.1", 0, 0.05, None, lambda event: None)
    print(await links.start(), flush=True)
    await asyncio.sleep(3600)

asyncio.run(run())
"""


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)


class Observer:
    """A gateway that has links, and asks for a redial as Life says."""

    def __init__(self, me: Claimant = A, tls: LinkTls | None = None, port: Any = OFF, host: str = "127.0.0.1") -> None:
        self.life = Life(me, LifeTimings())
        self.events: list[LifeEvent] = []
        self.links = Links(me, host, port, PING_S, tls, self.note)

    def knows(self, member: Claimant, seq: int = 0) -> None:
        self.life.step(Heard(member.name, member.boot, seq, "up"), asyncio.get_running_loop().time())

    def note(self, event: LifeEvent) -> None:
        if not self.events or repr(self.events[-1]) != repr(event):  # pongs come all the time
            self.events.append(event)
        for effect in self.life.step(event, asyncio.get_running_loop().time()):
            assert isinstance(effect, Redial)
            self.links.redial(effect.name)

    def verdict(self) -> str:
        return self.life.verdict(B, asyncio.get_running_loop().time())

    async def hears(self, event: LifeEvent) -> None:
        await until(lambda: str(event) in self.said)

    @property
    def said(self) -> list[str]:
        """The events as texts: as tuples, different ones may be equal."""
        return [str(event) for event in self.events]


@asynccontextmanager
async def observing(**options: Any) -> AsyncIterator[tuple[Observer, int]]:
    observer = Observer(**options)
    port = await observer.links.start()
    try:
        yield observer, port or 0
    finally:
        observer.links.stop()


def texts(*events: LifeEvent) -> list[str]:
    return [str(event) for event in events]


def at(port: int, member: Claimant = B) -> list[Wanted]:
    return [Wanted(member, GatewayAddress("127.0.0.1", port))]


@pytest.fixture(params=[asyncio.SelectorEventLoop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[None]], None]:
    """Runs on either loop: the gateway uses uvloop."""

    def run(scenario: Any) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(scenario)

    return run


Run = Callable[[Awaitable[None]], None]


@asynccontextmanager
async def process() -> AsyncIterator[tuple[subprocess.Popen[str], int]]:
    """Another gateway's process, as far as it has links, and the port of its listener."""
    child = subprocess.Popen([sys.executable, "-c", PROCESS], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        yield child, int(await asyncio.to_thread(child.stdout.readline))
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


@pytest.mark.parametrize("with_connections_first", [False, True])
def test_a_killed_process_is_dead_at_once(run: Run, with_connections_first: bool) -> None:
    """Q6: its link ends, and the next one is refused; whether or not another process dials at that moment."""

    async def scenario() -> None:
        async with process() as (child, port), observing() as (observer, _):
            observer.knows(B)
            observer.links.want(at(port))
            await observer.hears(LinkHeard(*B))
            others = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20 * with_connections_first)]
            assert observer.verdict() == "alive"
            os.kill(child.pid, signal.SIGKILL)
            await observer.hears(RedialResult("b", "refused", 7))
            assert observer.said == texts(LinkHeard(*B), LinkEnded(*B), RedialResult("b", "refused", 7))
            assert observer.verdict() == "dead"
            for _, writer in others:
                writer.close()

    run(scenario())


def test_a_stopped_process_is_not_reported(run: Run) -> None:
    """Its kernel still takes connections: only the records on `members` tell, by staying away."""

    async def scenario() -> None:
        async with process() as (child, port), observing() as (observer, _):
            observer.knows(B)
            observer.links.want(at(port))
            await observer.hears(LinkHeard(*B))
            os.kill(child.pid, signal.SIGSTOP)
            await observer.hears(LinkEnded(*B))  # after many pings
            await observer.hears(RedialResult("b", "timeout", 7))
            assert observer.verdict() == "alive"
            os.kill(child.pid, signal.SIGCONT)
            await until(lambda: isinstance(observer.events[-1], LinkHeard))
            assert RedialResult("b", "refused", 7) not in observer.events

    run(scenario())


class Wire:
    """A wire to a port that can be cut, and is whole again at once."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", self._to)
        self._writers += [writer, there[1]]
        self._tasks.add(asyncio.ensure_future(self._copy(reader, there[1])))
        await self._copy(there[0], writer)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1000):
                writer.write(data)
        except OSError:
            pass
        writer.close()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def stop(self) -> None:
        self._server.close()
        self.cut()


def test_a_link_that_blips_accuses_nobody(run: Run) -> None:
    """Q6; emqx#14248: a network that drops connections made members take over from one that lived."""

    async def scenario() -> None:
        async with observing(me=B, port=0) as (_, port), observing() as (observer, _):
            wire = Wire(port)
            observer.knows(B)
            observer.links.want(at(await wire.start()))
            await observer.hears(LinkHeard(*B))
            for _ in range(5):
                observer.events.clear()
                wire.cut()
                await observer.hears(RedialResult("b", "connected", 7))
                assert observer.said[:3] == texts(LinkEnded(*B), LinkHeard(*B), RedialResult("b", "connected", 7))
                assert observer.verdict() == "alive"
            wire.stop()

    run(scenario())


def test_each_has_its_own_link_and_both_notice(run: Run) -> None:
    async def scenario() -> None:
        async with observing(port=0) as (one, port), observing(me=B, port=0) as (other, other_port):
            one.knows(B)
            one.links.want(at(other_port))
            other.links.want(at(port, A))
            await one.hears(LinkHeard(*B))
            await other.hears(LinkHeard(*A))
            assert one.links.states() == {"b": "up"}
            other.links.stop()
            await one.hears(RedialResult("b", "refused", 7))

    run(scenario())


def test_a_successor_at_the_same_address_proves_nothing(run: Run) -> None:
    async def scenario() -> None:
        async with observing(me=B._replace(boot=8), port=0) as (_, port), observing() as (observer, _):
            observer.links.want(at(port))
            observer.links.redial("b")
            await observer.hears(RedialResult("b", "timeout", 7))
            observer.links.want(at(port, B._replace(boot=8)))
            await observer.hears(LinkHeard("b", 8))
            assert [each for each in observer.events if isinstance(each, LinkHeard)] == [LinkHeard("b", 8)]

    run(scenario())


def test_what_is_wanted_changes(run: Run) -> None:
    """A link that is not wanted any more is closed without a word; a redial is answered all the same."""

    async def scenario() -> None:
        async with observing(me=B, port=0) as (other, port), observing() as (observer, _):
            observer.links.want([*at(port), *at(1, A)])
            await observer.hears(LinkHeard(*B))
            assert observer.links.states() == {"b": "up"}, "none to itself"
            assert len(other.links._answering) == 1
            observer.links.want(())
            await until(lambda: not other.links._answering)
            assert observer.said == texts(LinkHeard(*B))
            observer.links.redial("b")
            assert observer.events[-1] == RedialResult("b", "timeout")

    run(scenario())


def test_strangers_at_the_listener_are_shut_out(run: Run) -> None:
    async def scenario() -> None:
        async with observing(me=B, port=0) as (other, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert await until_closed(reader) in (b"", opening(B))
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(opening(A) + PING)
            assert await reader.readexactly(len(opening(B)) + len(PONG)) == opening(B) + PONG
            await until(lambda: len(other.links._answering) == 1)
            writer.close()
            await until(lambda: not other.links._answering)

    run(scenario())


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


def test_links_to_other_machines_need_certificates(run: Run) -> None:
    async def scenario() -> None:
        with pytest.raises(SettingsError, match=r"gateway\.cluster\.links\.host"):
            await Observer(host="0.0.0.0", port=0).links.start()
        async with observing(host="0.0.0.0", port=OFF) as (observer, _):
            observer.links.want([Wanted(B, GatewayAddress("192.0.2.1", 7000))])
            observer.links.redial("b")
            await observer.hears(RedialResult("b", "timeout", 7))

    run(scenario())


def contexts(directory: Path, name: str) -> LinkTls:
    """As a gateway of this name has them."""
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    for context in (server, client):
        context.load_cert_chain(directory / f"{name}.crt", directory / f"{name}.key")
        context.load_verify_locations(directory / "ca.crt")
        context.verify_mode = ssl.CERT_REQUIRED
    return LinkTls(server, lambda: client)


def test_with_tls_only_members_under_their_names_have_links(run: Run, tmp_path: Path) -> None:
    make(tmp_path, ["localhost"], [], 2, lambda _: None, gateways=["a", "b"])
    a, b = contexts(tmp_path, "a"), contexts(tmp_path, "b")

    async def scenario() -> None:
        async with observing(me=B, port=0, tls=b, host="0.0.0.0") as (other, port), observing(tls=a) as (observer, _):
            observer.knows(B)
            observer.links.want(at(port))
            await observer.hears(LinkHeard(*B))
            other.links.stop()
            await observer.hears(RedialResult("b", "refused", 7))
        for mine, theirs in ((a, a), (b, b), (None, b), (a, None)):
            host = "127.0.0.1"
            async with observing(me=B, port=0, tls=theirs, host=host) as (_, port), observing(tls=mine) as (one, _):
                one.links.want(at(port))
                one.links.redial("b")
                await until(lambda: any(isinstance(event, RedialResult) for event in one.events))
                heard = [event for event in one.events if isinstance(event, LinkHeard)]
                refused = RedialResult("b", "refused", 7) in one.events
                assert (heard, refused) == ([], False) or (mine is theirs is b), (mine, theirs)

    run(scenario())


def member_tls(directory: Path, name: str) -> MemberTls:
    cluster = msgspec.structs.replace(
        process_settings({}).gateway.cluster,
        members_certificate=f"{directory}/{name}.crt",
        members_key=f"{directory}/{name}.key",
        members_ca=f"{directory}/ca.crt",
    )
    return MemberTls(msgspec.structs.replace(process_settings({}).gateway, name=name, cluster=cluster))


def test_new_connections_use_the_certificates_that_the_files_have_now(run: Run, tmp_path: Path) -> None:
    """R11: of another authority, even. Connections that are there stay."""
    present, next_ones = tmp_path / "present", tmp_path / "next"
    for directory in (present, next_ones):
        make(directory, ["localhost"], [], 2, lambda _: None, gateways=["a", "b"])

    async def scenario() -> None:
        a, b = member_tls(present, "a"), member_tls(present, "b")
        links = [LinkTls(tls.server.context, lambda tls=tls: tls.client) for tls in (a, b)]  # type: ignore[misc]
        async with observing(me=B, port=0, tls=links[1]) as (_, port), observing(tls=links[0]) as (observer, _):
            observer.knows(B)
            observer.links.want(at(port))
            await observer.hears(LinkHeard(*B))
            shutil.copytree(next_ones, present, dirs_exist_ok=True)
            for files in (*a.files, *b.files):
                await files.refresh(anyway=True)
            assert observer.links.states() == {"b": "up"}
            observer.links.want(())
            observer.events.clear()
            observer.links.want(at(port))
            await observer.hears(LinkHeard(*B))

    run(scenario())
