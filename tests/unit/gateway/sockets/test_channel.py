"""Frames with sockets come whole, in order and once, or the channel ends (R1, R5)."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from gateway.errors import SocketsError
from gateway.sockets.channel import FRAME_BYTES, FRAME_SOCKETS, Channel
from gateway.sockets.directory import SocketDirectory


class End:
    """One end, and what came to it."""

    def __init__(self, connection: socket.socket) -> None:
        self.frames: list[bytes] = []
        self.sockets: list[socket.socket] = []
        self.ended = asyncio.Event()
        self.channel = Channel(connection, self._take, self.ended.set)

    def _take(self, frame: bytes, sockets: list[socket.socket]) -> None:
        self.frames.append(frame)
        self.sockets += sockets

    async def has(self, count: int) -> None:
        while len(self.frames) < count:
            await asyncio.sleep(0)

    def close(self) -> None:
        self.channel.close()
        for one in self.sockets:
            one.close()


def pair() -> tuple[End, End]:
    first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return End(first), End(second)


def test_frames_come_whole_and_in_order() -> None:
    async def scenario() -> None:
        here, there = pair()
        frames = [bytes([n % 251]) * (1 + n * 977 % FRAME_BYTES) for n in range(200)]
        frames.append(b"x" * FRAME_BYTES)
        await asyncio.gather(*(here.channel.send(frame) for frame in frames))
        await there.has(len(frames))
        assert there.frames == frames
        here.close()
        await there.ended.wait()
        assert not there.channel.is_open

    asyncio.run(scenario())


def test_sockets_work_at_the_other_end_with_what_was_unread() -> None:
    """R5: what a client has sent and nobody has read goes with its socket."""

    async def scenario() -> None:
        here, there = pair()
        clients, served = zip(*(socket.socketpair() for _ in range(FRAME_SOCKETS)), strict=True)
        for number, client in enumerate(clients):
            client.send(b"%d" % number)
        await here.channel.send(b"all", served)
        for one in served:
            one.close()
        await there.has(1)
        assert [one.recv(10) for one in there.sockets] == [b"%d" % number for number in range(FRAME_SOCKETS)]
        assert not any(os.get_inheritable(one.fileno()) for one in there.sockets)
        for one in (*clients, here, there):
            one.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(("size", "sockets"), [(FRAME_BYTES + 1, 0), (1, FRAME_SOCKETS + 1), (0, 0)])
def test_what_is_no_frame_is_refused_and_the_channel_goes_on(size: int, sockets: int) -> None:
    async def scenario() -> None:
        here, there = pair()
        with socket.socket() as one, pytest.raises(SocketsError, match="at most 64 sockets"):
            await here.channel.send(bytes(size), [one] * sockets)
        await here.channel.send(b"next")
        await there.has(1)
        here.close()
        there.close()

    asyncio.run(scenario())


def test_who_sends_learns_that_the_other_end_has_gone() -> None:
    async def scenario() -> None:
        here, there = pair()
        there.close()
        await here.ended.wait()
        with pytest.raises(SocketsError, match="has gone"):
            await here.channel.send(b"late")

    asyncio.run(scenario())


def test_who_waits_learns_it_too() -> None:
    async def scenario() -> None:
        here, there = pair()
        asyncio.get_running_loop().remove_reader(there.channel._socket.fileno())
        sends = [asyncio.ensure_future(here.channel.send(bytes(FRAME_BYTES))) for _ in range(100)]
        await asyncio.sleep(0)
        there.close()
        results = await asyncio.gather(*sends, return_exceptions=True)
        assert any(isinstance(one, SocketsError) for one in results)
        assert all(one is None or isinstance(one, SocketsError) for one in results)

    asyncio.run(scenario())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_what_a_process_had_sent_before_it_ended_comes(run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    """Also if it had not read all that it had got, which is an error at this end."""

    async def scenario() -> None:
        first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        here = End(first)
        await here.channel.send(b"unread")
        second.send(b"one")
        second.send(b"two")
        second.close()
        with contextlib.suppress(SocketsError):
            await here.channel.send(b"late")
        await here.ended.wait()
        assert here.frames == [b"one", b"two"]
        assert not here.channel.is_open

    run(scenario())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_channel_is_abandoned_with_what_had_come_and_nothing_later(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    """So whoever gives up on the other end knows for certain what that end has said."""

    async def scenario() -> None:
        here, there = pair()
        await there.channel.send(b"one")
        await there.channel.send(b"two")
        here.channel.abandon()
        with pytest.raises(SocketsError):
            await there.channel.send(b"late")
        await here.ended.wait()
        assert here.frames == [b"one", b"two"]
        with pytest.raises(SocketsError):
            await here.channel.send(b"more")
        await there.ended.wait()

    run(scenario())


def test_processes_meet_by_a_name_in_a_directory(tmp_path: Path) -> None:
    """A path of any length, a name of any characters; the newest process that has a name is reached."""

    async def scenario() -> None:
        deep = tmp_path / ("d" * 120)
        with SocketDirectory(deep) as directory, SocketDirectory(deep) as other:
            came: list[tuple[str, socket.socket]] = []
            first = directory.listen("a/ü", lambda one: came.append(("first", one)))
            again = other.listen("a/ü", lambda one: came.append(("again", one)))
            made = directory.connect("a/ü")
            first.close()  # the name is the other's by now
            more = directory.connect("a/ü")
            while len(came) < 2:
                await asyncio.sleep(0)
            assert [name for name, _ in came] == ["again", "again"]
            again.close()
            with pytest.raises(SocketsError, match="no process of this machine"):
                directory.connect("a/ü")
            assert list(deep.iterdir()) == []
            for one in (made, more, *(one for _, one in came)):
                one.close()

    asyncio.run(scenario())


def test_a_directory_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with pytest.raises(SocketsError, match="nobody else may write"):
        SocketDirectory(open_to_all)
    (tmp_path / "file").write_text("")
    with pytest.raises(SocketsError, match="cannot be used"):
        SocketDirectory(tmp_path / "file")
