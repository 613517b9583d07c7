"""The courier against servers that answer as none should: no mail counts as delivered, and nothing ends (M2, M16)."""

import asyncio
import socket
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from edge.agent.envelope import Mail
from tests.unit.edge.agent.agent_harness import HOST, Clock, StockServer
from tests.unit.edge.agent.test_relay import TWO, Rig

LARGE = Mail("0" * 31 + "3", "ann@a.example", ("bob@b.example",), b"Subject: x\r\n\r\n" + b"hello, Bob\r\n" * 80_000)
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


@asynccontextmanager
async def that_reads_little(*, then_closes: bool) -> AsyncIterator[tuple[int, asyncio.Event]]:
    """The port of a server that takes some of a mail's content and no more, and whether it has begun."""
    has_begun, may_end = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 x\r\n")
        while not (line := await reader.readline()).startswith(b"DATA"):
            assert line
            writer.write(b"250 x\r\n")
        writer.write(b"354 x\r\n")
        await reader.readline()
        has_begun.set()
        if not then_closes:
            await may_end.wait()
        writer.transport.abort()

    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)  # so the operating system takes little, too
    listening.bind((HOST, 0))
    server = await asyncio.start_server(serve, sock=listening, limit=1_024)
    try:
        yield int(listening.getsockname()[1]), has_begun
    finally:
        may_end.set()
        server.close()
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


@pytest.mark.parametrize("end", ["the server closes", "the server hangs", "the agent is killed"])
def test_a_mail_whose_content_was_cut_short_is_not_doubtful(tmp_path: Path, end: str) -> None:
    """RFC 5321, 4.1.1.4: before the final dot the server has accepted nothing, so nothing can come twice."""

    async def run() -> None:
        async with that_reads_little(then_closes=end == "the server closes") as (port, has_begun):
            clock = Clock()
            rig = Rig(tmp_path / "relay", port, clock, command_timeout_s=0.05 if end == "the server hangs" else 20.0)
            await rig.relay.take(LARGE)
            steps = asyncio.ensure_future(rig.steps())
            await has_begun.wait()
            if end == "the agent is killed":
                steps.cancel()
            await asyncio.wait([steps])
            rig.store.close()
            async with StockServer() as server:
                rig = Rig(tmp_path / "relay", server.port, clock, doubtful="hold")
                clock.now_s += 60
                await rig.relay.recover()
                await rig.steps()
                assert [content for _, _, content in server.taken] == [LARGE.content]
                assert "doubtful_in_all" not in rig.store.status()
                rig.store.close()

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
