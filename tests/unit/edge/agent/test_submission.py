"""What programs may send to the submission listener, by the byte (M2, M16)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from edge.agent.agent import Agent
from edge.agent.submission import Submission
from tests.faithful_client import eventually
from tests.unit.edge.agent.agent_harness import HOST, settings
from tests.unit.edge.agent.test_agent import NOBODY, agent, complete, device

LINE_BYTES = 2_000


async def says(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: bytes) -> bytes:
    """The last line of the answer."""
    writer.write(line + b"\r\n")
    while (answer := await reader.readline())[3:4] == b"-":
        pass
    return answer


@asynccontextmanager
async def data_begun(path: Path) -> AsyncIterator[tuple[Agent, asyncio.StreamReader, asyncio.StreamWriter]]:
    """An agent and a connection on which it waits for the mail's content."""
    found = device(path / "a", NOBODY, message_bytes=LINE_BYTES, line_bytes=1_001)
    async with agent(found) as one:
        reader, writer = await asyncio.open_connection(HOST, one.submission_port)
        await reader.readline()
        for line in (b"EHLO x", b"MAIL FROM:<a@a.example>", b"RCPT TO:<b@b.example>", b"DATA"):
            assert (await says(reader, writer, line))[:1] in b"23"
        yield one, reader, writer
        writer.close()


@pytest.mark.parametrize("command", [b"MAIL FROM:<", b"RCPT TO:<"])
@pytest.mark.parametrize("is_here", [False, True], ids=["far", "here"])
def test_an_address_that_is_not_utf_8_is_refused(tmp_path: Path, command: bytes, is_here: bool) -> None:
    """RFC 6531, 3.3: no address is made of other bytes, and nothing could keep it. 553 is final."""

    async def run() -> None:
        smtp: dict[str, Any] = {"submission": {"enabled": True, "port": 0, "hostname": "agent"}}
        if is_here:
            smtp["relay"] = {"enabled": True, "port": 1, "domains": ["b.example"]}
        else:
            smtp["routes"] = {"b.example": "far"}
        found = settings(tmp_path / "a", platform={"connect_points": [NOBODY]}, smtp=smtp)
        async with agent(found) as one:
            reader, writer = await asyncio.open_connection(HOST, one.submission_port)
            await reader.readline()
            assert (await says(reader, writer, b"EHLO x")).startswith(b"250 ")
            if command.startswith(b"RCPT"):
                assert (await says(reader, writer, b"MAIL FROM:<a@a.example>")).startswith(b"250 ")
            assert (await says(reader, writer, command + b"\xe4nn@b.example>")).startswith(b"553 ")
            writer.close()

    complete(run())


@pytest.mark.parametrize("piece", [b"x", b"\n", b"\r\r"], ids=["bytes", "LF", "CR"])
def test_a_line_without_an_end_fills_no_memory(tmp_path: Path, piece: bytes) -> None:
    """M2: the library keeps all of a line until CRLF."""

    async def run() -> None:
        async with data_begun(tmp_path) as (one, reader, writer):
            writer.write(b"S: x\r\n\r\n" + piece * (2 * LINE_BYTES))
            assert (await reader.readline()).startswith(b"500 ")
            assert not await reader.read()
            writer.close()
            assert isinstance(one._submission, Submission)
            await eventually(lambda: one.submission_port and one._submission.connections == 0, "it has ended")

    complete(run())


@pytest.mark.parametrize("size", [LINE_BYTES - 200, 2_500])
def test_lines_that_end_are_no_line_without_an_end(tmp_path: Path, size: int) -> None:
    """Whatever the pieces in which they come; a mail that is too large has its own answer, and the connection stays."""

    async def run() -> None:
        async with data_begun(tmp_path) as (one, reader, writer):
            lines = b"S: x\r\n\r\n" + (b"x" * 98 + b"\r\n") * (size // 100)
            sessions = one._submission._sessions.all()  # type: ignore[union-attr]
            for at in range(0, len(lines), 33):
                for session in sessions:
                    session.data_received(lines[at : at + 33])
            answer = await says(reader, writer, b".")
            assert answer.startswith(b"250 " if size < LINE_BYTES else b"552 "), answer
            assert (await says(reader, writer, b"NOOP")).startswith(b"250 ")

    complete(run())
