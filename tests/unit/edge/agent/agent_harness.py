"""Agents under test, and a stock mail server that does as a test says."""

import asyncio
import smtplib
import ssl
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
from aiosmtpd.smtp import SMTP

from edge.agent.relay_store import RelayStore
from edge.agent.settings import AgentSettings
from edge.client.store_clock import DOWN_MOST_S
from schemas.validation import convert

HOST = "127.0.0.1"
LINE_BYTES = 1 << 20


class StockServer:
    """`async with StockServer() as server:`; keeps what it takes in `taken`: (sender, recipients, content).

    `tls`: connections begin with it. `rcpt` and `data` answer for it; `hangs` at that command, for ever."""

    def __init__(self, *, host: str = HOST, tls: ssl.SSLContext | None = None, **options: Any) -> None:
        self._host, self._tls = host, tls
        self.taken: list[tuple[str, list[str], bytes]] = []
        self.rcpt: Callable[[str], str] = lambda _: "250 OK"
        self.data: Callable[[], str] = lambda: "250 OK"
        self.hangs = ""
        self.connections = 0
        self._sessions: list[Any] = []
        self._options = {"enable_SMTPUTF8": True, "hostname": "stock"} | options

    async def __aenter__(self) -> "StockServer":
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connected, self._host, 0, ssl=self._tls)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None):
        self._server.close()
        for session in self._sessions:
            if session.transport is not None and not session.transport.is_closing():
                session.transport.abort()
        await asyncio.sleep(0)

    def _connected(self) -> asyncio.Protocol:
        self.connections += 1
        session = _Stock(self, **self._options, loop=asyncio.get_running_loop())
        self._sessions.append(session)
        return session

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: list[str]) -> str:
        await self._hang("RCPT")
        answer = self.rcpt(address)
        if answer.startswith("2"):
            envelope.rcpt_tos.append(address)
        return answer

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        answer = self.data()
        if answer.startswith("2"):
            sender = "" if envelope.mail_from == "<>" else envelope.mail_from
            self.taken.append((sender, envelope.rcpt_tos, envelope.original_content))
        await self._hang("DATA")
        return answer

    async def _hang(self, command: str) -> None:
        if self.hangs == command:
            await asyncio.get_running_loop().create_future()


class _Stock(SMTP):
    line_length_limit = LINE_BYTES


def settings(directory: Path, **tables: Any) -> AgentSettings:
    """`tables` as in the file; the store is in `directory`."""
    found = convert({"client_id": "a", "store": {"directory": str(directory)}, **tables}, AgentSettings)
    assert isinstance(found, AgentSettings), found
    return found


def relay_store(path: Path, clock: "Clock", **limits: int) -> RelayStore:
    return RelayStore(
        path,
        **({"messages": 100, "total_bytes": 1 << 20, "remembered": 100, "log_entries": 1_000} | limits),
        wall_s=clock.wall_s,
        running_s=clock.running_s,
        down_most_s=DOWN_MOST_S,
    )


class Clock:
    """A time that only the test advances."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def wall_s(self) -> float:
        return 1_800_000_000.0 + self.now_s

    def running_s(self) -> float:
        return self.now_s


async def inline(call: Callable[..., Any], *arguments: Any) -> Any:
    """In the place of a store's thread."""
    return call(*arguments)


async def submit(port: int, sender: str, recipients: list[str], content: bytes, **options: Any) -> Any:
    """Submits a mail as a program would, with the standard library; returns what `sendmail` does, or its error."""

    def run() -> Any:
        with smtplib.SMTP(HOST, port, timeout=20) as client:
            client.ehlo()
            try:
                return client.sendmail(sender, recipients, content, **options)
            except smtplib.SMTPException as error:
                return error

    return await asyncio.get_running_loop().run_in_executor(None, run)


def events(steps: list[Any]) -> list[str]:
    return [step.event for step in steps]


def replaced(value: Any, **fields: Any) -> Any:
    return msgspec.structs.replace(value, **fields)
