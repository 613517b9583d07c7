"""Channels that others open: each frame comes with its channel, and ends are noticed (R1, R5)."""

import asyncio
import socket
from pathlib import Path

import pytest

from gateway.errors import SocketsError
from gateway.sockets.channel import Channel
from gateway.sockets.channels import Channels
from gateway.sockets.directory import SocketDirectory


def test_others_open_channels_until_they_are_closed(tmp_path: Path) -> None:
    async def scenario() -> None:
        came: list[tuple[Channel, bytes, list[socket.socket]]] = []
        ended: list[Channel] = []
        with SocketDirectory(tmp_path / "sockets") as directory:
            channels = Channels(directory, "here", lambda *frame: came.append(frame), ended.append)
            gone = [asyncio.Event() for _ in range(3)]
            others = [Channel(directory.connect("here"), lambda *_: None, one.set) for one in gone]
            with socket.socket() as passed:
                for number, other in enumerate(others):
                    await other.send(b"%d" % number, [passed])
            while len(came) < 3:
                await asyncio.sleep(0)
            of = {frame: (channel, sockets) for channel, frame, sockets in came}
            others[0].close()  # it leaves by itself
            while not ended:
                await asyncio.sleep(0)
            assert ended == [of[b"0"][0]]
            channels.refuse(*of[b"1"])
            await gone[1].wait()
            assert of[b"1"][1][0].fileno() < 0, "what came with it is closed"
            assert of[b"2"][0].is_open
            channels.close()
            await gone[2].wait()
            with pytest.raises(SocketsError):
                directory.connect("here")
            for channel in others:
                channel.close()
            for _, _, sockets in came:
                for one in sockets:
                    one.close()
        assert len(ended) == 1

    asyncio.run(scenario())
