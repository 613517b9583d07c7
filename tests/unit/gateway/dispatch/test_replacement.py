"""A dispatcher takes the place of another, and no connection is refused at any moment (R1, R5)."""

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.dispatch.frames import DISPATCHER, Frame, encode_frame
from gateway.dispatch.listening import open_listening, port_of
from gateway.dispatch.replacement import Replaceable, find_predecessor
from gateway.errors import SocketsError
from gateway.sockets.channel import Channel
from gateway.sockets.directory import SocketDirectory
from schemas.errors import SettingsError
from tests.unit.gateway.dispatch.machine import HOST


class Running:
    """A dispatcher as far as its successor sees it."""

    def __init__(self, directory: SocketDirectory, listening: Sequence[socket.socket]) -> None:
        self.listening = listening
        self.replaced = asyncio.Event()
        self.offer = Replaceable(directory, lambda: self.listening, self.replaced.set)

    def end(self) -> None:
        self.offer.close()
        for one in self.listening:
            one.close()


def is_accepted(port: int, listening: Sequence[socket.socket]) -> bool:
    """Whether a client that comes is accepted by whoever has `listening`."""
    with socket.create_connection((HOST, port), timeout=5):
        listening[0].setblocking(True)
        taken, _ = listening[0].accept()
        taken.close()
        return True


def test_the_successor_gets_the_listening_sockets(tmp_path: Path) -> None:
    """Who connects in between waits in their queue, and is accepted by the successor."""

    async def scenario() -> None:
        with SocketDirectory(tmp_path) as directory, SocketDirectory(tmp_path) as another:
            running = Running(directory, open_listening(HOST, 0))
            port = port_of(running.listening)
            found = await find_predecessor(another)
            assert found is not None
            assert port_of(found.listening) == port
            successor = Running(another, found.listening)
            assert not running.replaced.is_set(), "it goes on until the successor accepts"
            with socket.create_connection((HOST, port), timeout=5):
                await found.accepting()
                await running.replaced.wait()
                running.end()
                found.listening[0].setblocking(True)
                found.listening[0].accept()[0].close()
            assert is_accepted(port, found.listening)
            third = await find_predecessor(directory)
            assert third is not None, "the name is the successor's"
            for one in third.listening:
                one.close()
            successor.end()

    asyncio.run(scenario())


def test_without_a_running_dispatcher_there_is_nobody_to_replace(tmp_path: Path) -> None:
    """Also if one was killed, which leaves its name behind."""

    async def scenario() -> None:
        with SocketDirectory(tmp_path) as directory:
            assert await find_predecessor(directory) is None
            directory.bind(DISPATCHER).close()
            assert await find_predecessor(directory) is None

    asyncio.run(scenario())


def test_a_successor_that_dies_changes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        with SocketDirectory(tmp_path) as directory:
            running = Running(directory, open_listening(HOST, 0))
            found = await find_predecessor(directory)
            assert found is not None
            found._channel.close()
            for one in found.listening:
                one.close()
            while running.offer._successor is not None:
                await asyncio.sleep(0)
            assert not running.replaced.is_set()
            assert is_accepted(port_of(running.listening), running.listening)
            again = await find_predecessor(directory)
            assert again is not None
            for one in again.listening:
                one.close()
            running.end()

    asyncio.run(scenario())


def test_one_successor_at_a_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        with SocketDirectory(tmp_path) as directory:
            running = Running(directory, open_listening(HOST, 0))
            found = await find_predecessor(directory)
            assert found is not None
            with pytest.raises(SocketsError, match="being replaced"):
                await find_predecessor(directory)
            await found.accepting()
            await running.replaced.wait()
            for one in found.listening:
                one.close()
            running.end()

    asyncio.run(scenario())


def test_a_dispatcher_that_stands_still_is_not_replaced(tmp_path: Path) -> None:
    async def scenario() -> None:
        with SocketDirectory(tmp_path) as directory:
            stopped = directory.bind(DISPATCHER)
            with pytest.raises(SocketsError, match="stands still"):
                await find_predecessor(directory, timeout_s=0.05)
            stopped.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("data", [b"?", encode_frame(Frame("accepting")), encode_frame(Frame("hand", 1))])
def test_who_says_anything_else_is_not_heard(tmp_path: Path, data: bytes) -> None:
    async def scenario() -> None:
        with SocketDirectory(tmp_path) as directory:
            running = Running(directory, open_listening(HOST, 0))
            ended = asyncio.Event()
            channel = Channel(directory.connect(DISPATCHER), lambda *_: None, ended.set)
            await channel.send(data, running.listening)
            await ended.wait()
            assert not running.replaced.is_set()
            running.end()

    asyncio.run(scenario())


def test_it_listens_on_every_address_of_a_name() -> None:
    listening = open_listening("localhost", 0)
    assert {one.getsockname()[1] for one in listening} == {port_of(listening)}
    for one in listening:
        one.close()


def test_an_address_that_cannot_be_used_names_its_setting() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError) as refused:
            open_listening(HOST, port)
    assert str(refused.value) == (
        f"cannot listen on {HOST}, gateway.dispatcher.port = {port}: Address already in use; "
        "stop the program that uses it, or choose another port"
    )
    with pytest.raises(SettingsError, match=r"gateway\.dispatcher\.port = 1: .*; write an address of this machine"):
        open_listening("192.0.2.1", 1)
