"""Each format from each kind of source, put together from a settings file as an adapter does it (S2)."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from edge.feeds.adapter import source_choice
from edge.feeds.adapter.source_choice import make_source
from edge.feeds.formats.moldudp64 import build_downstream
from edge.feeds.source import SourceMessage
from tests.unit.edge.feeds.adapter.adapter_data import KeptIntake, composer, written_settings
from tests.unit.edge.feeds.adapter.sources.test_file_source import until
from tests.unit.edge.feeds.source_data import BY_NAME, CASES

HOST = "127.0.0.1"
MAPPING = '\nmapping={stream="sensor",number="seq",time="at",time_unit="ms"}'
SETTINGS = {
    "mode-s": 'format="mode-s"\nname="radar"',
    "numbered": 'format="mode-s"\nname="radar"\nsequencer="tower"',
    "nmea0183": 'format="nmea0183"\nname="bridge"',
    "nmea2000": 'format="nmea2000"\nname="boat"',
    "csv": f'format="csv"\nname="plant"{MAPPING}\ncsv={{columns=["seq","sensor","at","value"]}}',
    "json": f'format="json"\nname="plant"{MAPPING}',
    "miniseed": 'format="miniseed"\nname="quakes"',
}
"""Of each case of `source_data`, what its parser is made of."""

Send = Callable[[KeptIntake, tuple[bytes, ...]], Awaitable[None]]


def free_port(kind: socket.SocketKind) -> int:
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.bind((HOST, 0))
        port: int = sock.getsockname()[1]
        return port


async def read(directory: Path, source: str, send: Send, frames: tuple[bytes, ...], count: int) -> KeptIntake:
    """What a source brings, while `send` sends it the frames."""
    intake = KeptIntake()
    running = asyncio.create_task(make_source(written_settings(directory, source), intake, None).run())
    sending = asyncio.ensure_future(send(intake, frames))
    try:
        await until(lambda: len(intake.payloads) >= count or running.done())
        if running.done():
            running.result()
    finally:
        for task in (running, sending):
            task.cancel()
        await asyncio.wait([running, sending])
    return intake


async def to_datagrams(port: int, frames: tuple[bytes, ...], intake: KeptIntake) -> None:
    await until(lambda: "up" in intake.states)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for frame in frames:
            sock.sendto(frame, (HOST, port))


def transport(kind: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Send]:
    """The address of a source, and who sends to it."""
    port = free_port(socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)

    async def file(_: KeptIntake, frames: tuple[bytes, ...]) -> None:
        with (directory / "source").open("ab") as growing:
            for frame in frames:
                growing.write(frame)
                growing.flush()
                await asyncio.sleep(0)

    async def pipe(_: KeptIntake, frames: tuple[bytes, ...]) -> None:
        os.write(writing, b"".join(frames))
        os.close(writing)

    async def tcp(_: KeptIntake, frames: tuple[bytes, ...]) -> None:
        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"".join(frames))
            await writer.drain()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)
            writer.close()

        async with await asyncio.start_server(serve, HOST, port) as server:
            await server.serve_forever()

    async def tcp_listen(intake: KeptIntake, frames: tuple[bytes, ...]) -> None:
        await until(lambda: "source_lost" in intake.states)
        _, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"".join(frames))
        await writer.drain()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        writer.close()

    async def udp(intake: KeptIntake, frames: tuple[bytes, ...]) -> None:
        await to_datagrams(port, frames, intake)

    if kind == "pipe":
        reading, writing = os.pipe()
        monkeypatch.setattr(source_choice, "STANDARD_INPUT", reading)
    (directory / "source").touch()
    return {
        "file": (f"file:{directory / 'source'}", file),
        "pipe": ("-", pipe),
        "tcp": (f"tcp://{HOST}:{port}", tcp),
        "tcp-listen": (f"tcp-listen://{HOST}:{port}", tcp_listen),
        "udp": (f"udp://{HOST}:{port}", udp),
    }[kind]


@pytest.mark.parametrize("kind", ["file", "pipe", "tcp", "tcp-listen", "udp"])
@pytest.mark.parametrize("name", SETTINGS)
def test_the_same_messages_come_whatever_brings_them(
    name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S2: streams, numbers, times and payloads are those of the format's parser, and each is stamped."""
    expected = BY_NAME[name].parser().feed(b"".join(BY_NAME[name].frames))
    where, send = transport(kind, tmp_path, monkeypatch)
    more = "\nfollow=true" if kind == "file" else ""
    source = f'{SETTINGS[name]}\nfrom="{where}"{more}'
    found = asyncio.run(read(tmp_path, source, send, BY_NAME[name].frames, len(expected)))
    if kind == "pipe":
        os.close(source_choice.STANDARD_INPUT)
    assert found.malformed == []
    assert found.found == expected
    made, _ = composer()
    written = [one for piece in found.pieces for one in made.take(piece.found, piece.read_us)]
    messages = [one for one in expected if isinstance(one, SourceMessage)]
    assert [(one.stream, one.payload) for one in written] == [(one.stream, one.payload) for one in messages]  # type: ignore[union-attr]
    assert [one.message_sequence for one in written] == list(range(1, len(written) + 1))
    assert all(one.sequence == of.number for one, of in zip(written, messages, strict=True) if of.number is not None)


def test_moldudp64_comes_over_udp(tmp_path: Path) -> None:
    """S2: datagrams that come twice are taken once."""
    port = free_port(socket.SOCK_DGRAM)
    packets = tuple(build_downstream("DAY1", number, [b"%d" % number]) for number in (1, 2, 2, 1, 3, 3))

    async def send(intake: KeptIntake, frames: tuple[bytes, ...]) -> None:
        await to_datagrams(port, frames, intake)

    source = f'format="moldudp64"\nname="market"\nfrom="udp://{HOST}:{port}"'
    assert asyncio.run(read(tmp_path, source, send, packets, 3)).payloads == [b"1", b"2", b"3"]


def test_every_format_is_here() -> None:
    assert SETTINGS.keys() == {case.name for case in CASES}
