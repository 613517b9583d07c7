"""What programs may send to the submission listener, by the byte (M2, M16)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.unit.edge.agent.agent_harness import HOST, settings
from tests.unit.edge.agent.test_agent import NOBODY, agent, complete


async def says(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: bytes) -> bytes:
    """The last line of the answer."""
    writer.write(line + b"\r\n")
    while (answer := await reader.readline())[3:4] == b"-":
        pass
    return answer


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
