"""The courier against servers that answer as none should: no mail counts as delivered, and nothing ends (M2, M16)."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.unit.edge.agent.agent_harness import HOST, Clock
from tests.unit.edge.agent.test_relay import TWO, Rig

FRIENDLY = {b"": b"220 x", b"EHLO": b"250 x", b"MAIL": b"250 x", b"RCPT": b"250 x", b"DATA": b"354 x", b".": b"250 x"}


def complete(run: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(run, 30))


@asynccontextmanager
async def scripted(answers: Mapping[bytes, bytes]) -> AsyncIterator[int]:
    """The port of a server that answers each line that begins so; no bytes: it closes the connection."""
    script = {**FRIENDLY, **answers}
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        writer.write(script[b""] + b"\r\n")
        is_content = False
        while line := await reader.readline():
            words = [word for word in script if word and line.startswith(word)]
            if is_content and line != b".\r\n":
                continue
            answer = next((script[word] for word in sorted(words, key=len, reverse=True)), b"221 x")
            if not answer:
                break
            is_content = answer.startswith(b"354")
            writer.write(answer + b"\r\n")
        writer.close()

    server = await asyncio.start_server(serve, HOST, 0)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for writer in writers:
            writer.close()
        await asyncio.sleep(0)


async def relayed(tmp_path: Path, answers: Mapping[bytes, bytes]) -> tuple[dict[str, int], list[str]]:
    """The status of the relay after one attempt for two recipients, and the replies that the sender was told."""
    async with scripted(answers) as port:
        rig = Rig(tmp_path / "relay", port, Clock())
        await rig.relay.take(TWO)
        await rig.steps()
        status = rig.store.status()
        rig.store.close()
        return status, [failure.reply for _, failures in rig.told for failure in failures]


@pytest.mark.parametrize("answer", [b"250 x", b"220 x", b"999 x"])
@pytest.mark.parametrize("command", [b"DATA", b"MAIL"])
def test_nothing_is_delivered_by_an_answer_that_is_out_of_place(tmp_path: Path, command: bytes, answer: bytes) -> None:
    """RFC 5321, 4.3.2: DATA needs 354. A server that was sent no content has no mail, whatever it said."""

    async def run() -> None:
        after = {b"RCPT": b"451 later"} if command == b"MAIL" else {}
        status, told = await relayed(tmp_path, {command: answer, **after})
        assert "delivered_in_all" not in status
        assert status["recipients_waiting"] == 2
        assert not told

    complete(run())


@pytest.mark.parametrize("step", [b"DATA", b"."])
@pytest.mark.parametrize("one", [b"RCPT", b"RCPT TO:<bob", b"MAIL"], ids=["all", "one", "the sender"])
def test_any_2xx_accepts_and_the_end_decides(tmp_path: Path, one: bytes, step: bytes) -> None:
    """RFC 5321, 4.2.1: the first digit counts. What becomes of a recipient is said after the content."""

    async def run() -> None:
        status, told = await relayed(tmp_path, {one: b"252 x", step: b"554 no"})
        assert "delivered_in_all" not in status
        assert told == ["554 no", "554 no"]

    complete(run())


def test_552_to_a_recipient_is_temporary(tmp_path: Path) -> None:
    """RFC 5321, 4.5.3.1.10: old servers say 552 for too many recipients of one mail; it counts as 452."""

    async def run() -> None:
        status, told = await relayed(tmp_path, {b"RCPT TO:<eve": b"552 too many recipients"})
        assert (status["delivered_in_all"], status["recipients_waiting"]) == (1, 1)
        assert not told

    complete(run())


@pytest.mark.parametrize("step", [b"MAIL", b"DATA", b"."])
def test_552_to_the_mail_is_permanent(tmp_path: Path, step: bytes) -> None:
    """The mail is too large, or there is no space for it: RFC 5321, 4.3.2."""

    async def run() -> None:
        _, told = await relayed(tmp_path, {step: b"552 too large"})
        assert told == ["552 too large"] * 2

    complete(run())


@pytest.mark.parametrize("command", [b"", b"MAIL", b"RCPT", b"DATA", b"."])
def test_an_answer_that_is_not_utf_8(tmp_path: Path, command: bytes) -> None:
    """Old servers answer in their own character set. The answer is stored, logged and reported to the sender."""

    async def run() -> None:
        status, told = await relayed(tmp_path, {command: b"554 5.1.1 Empf\xe4nger unbekannt"})
        if command:
            assert told == ["554 5.1.1 Empf\ufffdnger unbekannt"] * 2
        else:
            assert status["recipients_waiting"] == 2

    complete(run())
