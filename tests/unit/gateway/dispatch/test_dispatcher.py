"""Each client comes with all its bytes to one gateway, whichever gateways end, stand still or are not there (R1)."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from gateway.dispatch import process
from gateway.dispatch.frames import Frame, decode_frame, encode_frame, gateway_name
from gateway.errors import SocketsError
from gateway.sockets.channel import Channel
from tests.unit.gateway.dispatch.machine import HOST, connect_of, machine, until
from tests.unit.gateway.dispatch.test_connect import V1_HEADER, V2_HEADER

TWO = {"a": 0, "b": 1000}
Run = Callable[[Coroutine[Any, Any, None]], None]


class Silent:
    """A gateway that confirms nothing by itself. `batches`: the numbers of what it was given."""

    def __init__(self, connection: socket.socket) -> None:
        self.channel = Channel(connection, self._came, lambda: None)
        self.batches: list[int] = []
        self.sockets: list[socket.socket] = []

    def _came(self, data: bytes, sockets: list[socket.socket]) -> None:
        self.batches.append(decode_frame(data).number)
        self.sockets += sockets

    async def confirm(self) -> None:
        await self.channel.send(encode_frame(Frame("taken", self.batches[-1])))

    def die(self) -> None:
        self.channel.close()
        for one in self.sockets:
            one.close()


class SilentGateway:
    """It listens as the gateway `name`."""

    def __init__(self, directory: Any, name: str) -> None:
        self.lives: list[Silent] = []
        self._listening = directory.listen(gateway_name(name), lambda one: self.lives.append(Silent(one)))

    async def given(self, batches: int = 1) -> Silent:
        await until(lambda: self.lives and len(self.lives[-1].batches) >= batches)
        return self.lives[-1]

    def close(self) -> None:
        self._listening.close()
        for life in self.lives:
            life.die()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_client_comes_to_its_home_with_all_its_bytes(run: Run, tmp_path: Path) -> None:
    """However they came; nobody has read any of them before."""

    async def scenario() -> None:
        async with machine(tmp_path, {"of-b": "b", "of-a": "a"}, TWO) as here:
            here.gateway("a"), here.gateway("b")
            for client in ("of-a", "of-b"):
                for version in (4, 5):
                    data = connect_of(client, version) + b"\x30\x03\0\1t"
                    expected = client[-1].encode() + b":"
                    assert await (await here.client(data)).readexactly(len(data) + 2) == expected + data
                    reader = await here.client(*(data[n : n + 1] for n in range(len(data))))
                    got = b""
                    while len(got.replace(expected, b"")) < len(data):
                        got += await reader.read(100)
                    assert got.replace(expected, b"") == data
            assert here.counts["taken"] == 8
            await until(lambda: not here.dispatcher.open)

    run(scenario())


def test_who_has_no_home_here_comes_to_the_least_loaded_gateway(tmp_path: Path) -> None:
    """Nobody has its shard, a gateway of another machine has it, it has no identifier, or it does not speak MQTT."""

    async def scenario() -> None:
        async with machine(tmp_path, {"far": "elsewhere"}, TWO | {"elsewhere": 0}) as here:
            here.gateway("a"), here.gateway("b")
            here.standbys["far"] = ("b",)
            for data in (connect_of("unknown"), connect_of("far"), connect_of(""), b"GET / HTTP/1.1\r\n\r\n"):
                reader = await here.client(data)
                assert await reader.readexactly(2) == b"a:"

    asyncio.run(scenario())


def test_a_slow_client_is_not_waited_for_without_end(tmp_path: Path) -> None:
    """A gateway gets it then, which has time limits of its own; and sees each byte that comes later."""

    async def scenario() -> None:
        async with machine(tmp_path, {"slow": "b"}, TWO, connect_timeout_s=0.05) as here:
            gateway, data = here.gateway("a"), connect_of("slow")
            reader = await here.client(data[:5])
            assert await reader.readexactly(7) == b"a:" + data[:5]
            here.last_client.write(data[5:6])
            assert await reader.readexactly(3) == b"a:" + data[5:6]
            assert len(gateway.clients) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("half", [b"", connect_of("x")[:7]], ids=["nothing", "half of CONNECT"])
def test_a_client_that_leaves_costs_nothing_more(tmp_path: Path, half: bytes) -> None:
    async def scenario() -> None:
        async with machine(tmp_path, {}, TWO) as here:
            here.gateway("a")
            reader = await here.client(half)
            here.last_client.write_eof()
            assert await reader.read() == (b"a:" + half if half else b"")
            await until(lambda: not here.dispatcher.open)
            assert here.counts["left"] == (0 if half else 1)

    asyncio.run(scenario())


@pytest.mark.parametrize("header", [V1_HEADER, V2_HEADER], ids=["version 1", "version 2"])
def test_behind_a_proxy_the_header_comes_first(tmp_path: Path, header: bytes) -> None:
    async def scenario() -> None:
        async with machine(tmp_path, {"x": "b"}, TWO, is_proxied=True) as here:
            here.gateway("a"), here.gateway("b")
            data = header + connect_of("x")
            assert await (await here.client(data)).readexactly(len(data) + 2) == b"b:" + data

    asyncio.run(scenario())


def test_a_gateway_that_dies_before_it_confirms_loses_nobody(tmp_path: Path) -> None:
    """R1: the socket goes to another one, with all its bytes."""

    async def scenario() -> None:
        async with machine(tmp_path, {"x": "b"}, TWO) as here:
            here.gateway("a")
            silent, data = SilentGateway(here.directory, "b"), connect_of("x")
            reader = await here.client(data)
            await silent.given()
            silent.close()
            assert await reader.readexactly(len(data) + 2) == b"a:" + data
            assert here.counts["returned"] == 1
            assert here.counts["taken"] == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_gateway_that_dies_after_it_confirmed_has_read_from_its_clients(run: Run, tmp_path: Path) -> None:
    """Nobody else may get them: the connection ends. That it had more to read does not hide what it had said."""

    async def scenario() -> None:
        async with machine(tmp_path, {"x": "b", "y": "b"}, TWO) as here:
            here.gateway("a")
            silent = SilentGateway(here.directory, "b")
            confirmed = await here.client(connect_of("x"))
            life = await silent.given()
            asyncio.get_running_loop().remove_reader(life.channel._socket.fileno())
            returned = await here.client(connect_of("y"))
            way = here.dispatcher.processes._open["b"]
            await until(lambda: len(way._sent) == 2 and way._sending is None)
            await life.confirm()
            silent.close()
            assert await returned.readexactly(2) == b"a:"
            with pytest.raises(ConnectionError):
                await confirmed.readexactly(1)
            assert (here.counts["taken"], here.counts["returned"]) == (2, 1)

    run(scenario())


def test_a_gateway_that_stands_still_gets_its_clients_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R1: when it wakes up it cannot confirm any more, and so reads nothing: only one gateway ever does."""
    monkeypatch.setattr(process, "CONFIRM_S", 0.05)

    async def scenario() -> None:
        async with machine(tmp_path, {"x": "b"}, TWO) as here:
            here.gateway("a")
            silent, data = SilentGateway(here.directory, "b"), connect_of("x")
            reader = await here.client(data)
            life = await silent.given()
            assert await reader.readexactly(len(data) + 2) == b"a:" + data
            with pytest.raises(SocketsError):
                await life.confirm()
            silent.close()

    asyncio.run(scenario())


def test_a_confirmation_that_came_in_time_counts_even_if_it_is_read_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dispatcher stood still itself: it reads what was said before it takes anything away."""
    monkeypatch.setattr(process, "CONFIRM_S", 0.2)

    async def scenario() -> None:
        async with machine(tmp_path, {"x": "b"}, TWO) as here:
            other, silent = here.gateway("a"), SilentGateway(here.directory, "b")
            await here.client(connect_of("x"))
            life = await silent.given()
            way = here.dispatcher.processes._open["b"]
            asyncio.get_running_loop().remove_reader(way._channel._socket.fileno())
            await life.confirm()
            await until(lambda: here.counts["taken"])
            assert here.counts["returned"] == 0
            assert not other.clients
            silent.close()

    asyncio.run(scenario())


def test_a_gateway_that_drains_takes_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with machine(tmp_path, {"x": "b"}, TWO) as here:
            here.gateway("a")
            draining = here.gateway("b")
            kept = await here.client(connect_of("x"))
            assert await kept.readexactly(2) == b"b:"
            draining.drain()
            assert await (await here.client(connect_of("x"))).readexactly(2) == b"a:"
            here.gateway("b")  # it has come back
            await until(lambda: here.dispatcher.processes.reach("b"))
            assert await (await here.client(connect_of("x"))).readexactly(2) == b"b:"

    asyncio.run(scenario())


def test_clients_of_a_lost_gateway_come_to_its_standby(tmp_path: Path) -> None:
    """It is about to own their shard."""

    async def scenario() -> None:
        async with machine(tmp_path, {"x": "b"}, TWO | {"c": 2000}) as here:
            here.gateway("a"), here.gateway("c")
            here.standbys["x"] = ("c", "a")
            lost = here.gateway("b")
            assert await (await here.client(connect_of("x"))).readexactly(2) == b"b:"
            lost.close()
            assert await (await here.client(connect_of("x"))).readexactly(2) == b"c:"

    asyncio.run(scenario())


def test_without_a_gateway_the_connection_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with machine(tmp_path, {"x": "b"}, TWO) as here:
            reader = await here.client(connect_of("x"))
            with pytest.raises(ConnectionError):
                await reader.readexactly(1)
            assert here.counts["nobody"] == 1

    asyncio.run(scenario())


def test_no_more_connections_are_looked_at_than_allowed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with machine(tmp_path, {}, TWO, connections=3) as here:
            here.gateway("a")
            waiting = [await here.client() for _ in range(3)]
            await until(lambda: here.dispatcher.open == 3)
            assert await (await here.client()).read() == b""
            assert here.counts["full"] == 1
            here.last_client.close()
            here._clients[0].write(connect_of("x"))
            assert await waiting[0].readexactly(2) == b"a:"
            await until(lambda: here.dispatcher.open == 2)
            assert await (await here.client(connect_of("y"))).readexactly(2) == b"a:"

    asyncio.run(scenario())


def test_many_at_once_are_each_served_once(tmp_path: Path) -> None:
    """R1: while gateways come and go."""

    async def scenario() -> None:
        names = [f"client-{number}" for number in range(400)]
        async with machine(tmp_path, {name: "ab"[n % 2] for n, name in enumerate(names)}, TWO) as here:
            here.gateway("a")
            leaving = here.gateway("b")
            asyncio.get_running_loop().call_later(0.05, leaving.drain)
            readers = [await here.client(connect_of(name)) for name in names]
            for name, reader in zip(names, readers, strict=True):
                data = connect_of(name)
                assert (await reader.readexactly(len(data) + 2))[2:] == data
            assert here.counts["taken"] == len(names)

    asyncio.run(scenario())


def test_what_is_no_confirmation_ends_the_channel(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with machine(tmp_path, {"x": "b"}, TWO) as here:
            here.gateway("a")
            silent = SilentGateway(here.directory, "b")
            reader = await here.client(connect_of("x"))
            life = await silent.given()
            await life.channel.send(b"\xff" * 100)
            assert await reader.readexactly(2) == b"a:"
            silent.close()

    asyncio.run(scenario())


def test_a_gateway_ends_a_channel_that_sends_what_it_does_not_know(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with machine(tmp_path, {}, TWO) as here:
            gateway = here.gateway("a")
            for data in (b"x", b"\x09" * 10, encode_frame(Frame("ask"))):
                ended = asyncio.Event()
                channel = Channel(here.directory.connect(gateway_name("a")), lambda *_: None, ended.set)
                with socket.create_connection((HOST, here.port)) as one:
                    await channel.send(data, [one])
                    await ended.wait()
            assert not gateway.clients

    asyncio.run(scenario())
