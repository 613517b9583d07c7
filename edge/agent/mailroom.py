"""Sends mail on its way: to the agents that relay for its recipients, or to the relay here (M1, M16).

Whoever hands a mail in gets an answer once it is on disk. Reports about mail that cannot be delivered take the same way
back (M21).
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from edge.agent.dsn import Failure, report
from edge.agent.envelope import FILE_TYPE, MAIL_TYPE, File, Mail
from edge.agent.routes import HERE, Routes
from edge.agent.sender import Sender
from edge.client.errors import MessageTooLarge, NotAccepted
from schemas.identity import inbox_of

_log: Final = logging.getLogger("waystation.agent")

Take = Callable[[Mail], Awaitable[bool]]


def new_id() -> str:
    """The id of a new message."""
    return secrets.token_hex(16)


class Mailroom:
    """`take`: the relay's, if there is one here. `host`: this agent's name in reports. `wall_s`: the time."""

    def __init__(
        self, sender: Sender, routes: Routes, *, take: Take | None, host: str, wall_s: Callable[[], float]
    ) -> None:
        self._sender, self._routes, self._take = sender, routes, take
        self._host, self._wall_s = host, wall_s

    async def send(self, sender: str, recipients: list[str], content: bytes, *, smtputf8: bool) -> list[str]:
        """Returns the ids of the mails, one for each agent, once all are on disk. Raises NotAccepted: then the sender
        must try again, and some of them may have been accepted."""
        groups = self._routes.grouped(recipients)
        mails = [
            (route, Mail(new_id(), sender, tuple(addresses), content, smtputf8))
            for route, addresses in groups.items()
            if route is not None
        ]
        results = await asyncio.gather(*(self._on(route, mail) for route, mail in mails), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [mail.id for _, mail in mails]

    async def send_file(self, topic: str, file: File) -> None:
        """Returns once the file is on disk. Raises NotAccepted."""
        await self._sender.send(topic, file.content, FILE_TYPE, file.properties())

    async def report(self, mail: Mail, failures: list[Failure]) -> str:
        """Tells the mail's sender; returns what was done. Raises NotAccepted if that must be tried again."""
        if not mail.sender:
            return "nobody: the sender is the null sender"
        route = self._routes.of(mail.sender)
        if route is None:
            return f"nobody: there is no route to the sender {mail.sender}"
        try:
            ids = await self._tell(route, mail, failures)
        except MessageTooLarge as error:
            _log.error("nobody is told that the mail %s failed: its report is too large: %s", mail.id, error)
            return f"nobody: the report is too large: {error}"
        return f"to {mail.sender}, as {', '.join(ids)}"

    async def _tell(self, route: str, mail: Mail, failures: list[Failure]) -> list[str]:
        """Sends the report; returns the ids of its parts. One that is too large goes without the mail's header, or else
        in parts. Raises NotAccepted; MessageTooLarge if that of one recipient is too large."""
        found = report(mail, failures, reporter=self._host, at=datetime.fromtimestamp(self._wall_s(), UTC))
        assert found is not None  # it has a sender
        try:
            await self._on(route, found)
        except MessageTooLarge:
            if mail.content:
                return await self._tell(route, replace(mail, content=b""), failures)
            if len(failures) == 1:
                raise
            half = len(failures) // 2
            parts = failures[:half], failures[half:]
            return [identifier for part in parts for identifier in await self._tell(route, mail, part)]
        return [found.id]

    async def _on(self, route: str, mail: Mail) -> None:
        if route == HERE:
            if self._take is None:
                raise NotAccepted("the relay is off")
            await self._take(mail)
            return
        await self._sender.send(inbox_of(route), mail.content, MAIL_TYPE, mail.properties())
