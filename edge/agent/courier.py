"""Gives one mail to an SMTP server (RFC 5321), and says what became of each recipient.

The content is sent as it is, with dot-stuffing; a bare CR or LF, which SMTP does not allow (2.3.8), becomes CRLF. Every
step has a time-out, and nothing that a server does raises an error.
"""

import asyncio
import contextlib
import re
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import aiosmtplib
from aiosmtplib import SMTPException, SMTPResponseException

from edge.agent.envelope import Mail
from edge.agent.relay_decisions import Attempt, Reply
from edge.agent.settings import RelaySettings, client_tls
from schemas.settings_files import secret_if_set

NO_UTF8: Final = Reply(553, "5.6.7 the server does not take internationalised addresses (SMTPUTF8)")
NO_8BIT: Final = Reply(554, "5.6.3 the server takes no 8-bit content (8BITMIME)")
QUIT_TIMEOUT_S: Final = 5.0
FINAL_DOT: Final = b".\r\n"
_BLOCK_BYTES: Final = 65_536
_TEXT_MAX: Final = 1_000
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_DOT: Final = re.compile(rb"(?m)^\.")

OnSending = Callable[[list[str]], Awaitable[None]]


class Courier(Protocol):
    """`sending` is awaited with the recipients that the server accepts, before the final dot is sent."""

    async def deliver(self, mail: Mail, recipients: list[str], sending: OnSending) -> Attempt: ...


@dataclass(frozen=True)
class SmtpCourier:
    """A new connection for each mail."""

    settings: RelaySettings
    password: str | None
    tls: Any

    @classmethod
    def of(cls, settings: RelaySettings) -> "SmtpCourier":
        """Raises SettingsError."""
        password = secret_if_set("smtp.relay.password_file", settings.password_file)
        return cls(settings, password, client_tls("smtp.relay", settings.ca_file))

    async def deliver(self, mail: Mail, recipients: list[str], sending: OnSending) -> Attempt:
        settings = self.settings
        client = aiosmtplib.SMTP(
            hostname=settings.host,
            port=settings.port,
            local_hostname=settings.hostname or None,
            timeout=settings.connect_timeout_s,
            use_tls=settings.tls == "tls",
            start_tls=settings.tls == "starttls",
            tls_context=self.tls,
            username=settings.username or None,
            password=self.password,
        )
        try:
            await client.connect()
        except SMTPResponseException as error:
            return Attempt(problem=_text(f"{error.code} {error.message}"), is_unreachable=True)
        except (SMTPException, OSError, ValueError) as error:
            return Attempt(problem=_text(str(error) or type(error).__name__), is_unreachable=True)
        try:
            attempt = await self._converse(client, mail, recipients, sending)
            if not attempt.problem:
                with contextlib.suppress(SMTPException, OSError):
                    await client.quit(timeout=QUIT_TIMEOUT_S)
            return attempt
        finally:
            client.close()

    async def _converse(self, client: Any, mail: Mail, recipients: list[str], sending: OnSending) -> Attempt:
        replies: dict[str, Reply] = {}
        taken: list[str] = []
        try:
            await _greet(client)
            options, refusal = _options(client, mail)
            if refusal is not None:
                return Attempt(dict.fromkeys(recipients, refusal))
            answer = await self._command(client, f"MAIL FROM:<{mail.sender}>", *options)
            if not _is_success(answer):
                return Attempt(dict.fromkeys(recipients, answer))
            for address in recipients:
                replies[address] = replace(await self._command(client, f"RCPT TO:<{address}>"), to_rcpt=True)
            taken = [address for address, reply in replies.items() if _is_success(reply)]
            if not taken:
                return Attempt(replies)
            answer = await self._command(client, "DATA")
            if _is_success(answer):  # to nothing that it was sent
                return Attempt(_refused(replies), problem=_text(f"the server has answered DATA with {answer}"))
            if answer.code != 354:
                return Attempt({**replies, **dict.fromkeys(taken, answer)})
        except (SMTPException, OSError, ValueError) as error:
            return Attempt(_refused(replies), problem=_problem(error))
        # Before the final dot the server has accepted nothing (RFC 5321, 4.1.1.4), so a loss leaves no doubt.
        try:
            await self._send(client.protocol, stuffed(mail.content))
        except (SMTPException, OSError, AttributeError) as error:  # AttributeError: the connection is gone already
            return Attempt(_refused(replies), problem=_problem(error))
        await sending(taken)
        try:
            client.protocol.write(FINAL_DOT)
        except (SMTPException, OSError, AttributeError) as error:
            return Attempt(_refused(replies), problem=_problem(error))
        try:
            end = await client.protocol.read_response(timeout=self.settings.data_timeout_s)
        except (SMTPException, OSError, AttributeError) as error:
            return Attempt(_refused(replies), taken, problem=_problem(error))
        return Attempt({**replies, **dict.fromkeys(taken, Reply(end.code, _text(end.message)))})

    async def _send(self, protocol: Any, content: bytes) -> None:
        """Returns once it is on the network, but for what the operating system keeps of it: two blocks at most, where
        that can be limited. Over TLS two more may be left."""
        protocol.transport.set_write_buffer_limits(high=1, low=0)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            connection = protocol.transport.get_extra_info("socket")
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _BLOCK_BYTES)
        for start in range(0, len(content), _BLOCK_BYTES):
            protocol.write(content[start : start + _BLOCK_BYTES])
            async with asyncio.timeout(self.settings.command_timeout_s):
                await protocol._drain_helper()  # what StreamWriter.drain calls

    async def _command(self, client: Any, *words: str) -> Reply:
        answer = await client.execute_command(
            *(word.encode() for word in words), timeout=self.settings.command_timeout_s
        )
        return Reply(answer.code, _text(answer.message))


def stuffed(content: bytes) -> bytes:
    """What is sent between the answer to DATA and the final dot: the content in lines that end with CRLF, those that
    begin with a dot with one more (RFC 5321, 4.5.2)."""
    lines = _LINE_END.sub(b"\r\n", content)
    if lines and not lines.endswith(b"\r\n"):
        lines += b"\r\n"
    return _DOT.sub(b"..", lines)


async def _greet(client: Any) -> None:
    if not client.is_ehlo_or_helo_needed:
        return
    try:
        await client.ehlo()
    except aiosmtplib.SMTPHeloError:
        await client.helo()


def _is_success(reply: Reply) -> bool:
    """The first digit decides (RFC 5321, 4.2.1)."""
    return 200 <= reply.code < 300


def _refused(replies: dict[str, Reply]) -> dict[str, Reply]:
    return {address: reply for address, reply in replies.items() if reply.is_permanent}


def _options(client: Any, mail: Mail) -> tuple[list[str], Reply | None]:
    """The parameters of MAIL, or why the server cannot take the mail."""
    options = [f"SIZE={len(mail.content)}"] if client.supports_extension("size") else []
    addresses = (mail.sender, *mail.recipients)
    if mail.smtputf8 or not all(address.isascii() for address in addresses):
        if not client.supports_extension("smtputf8"):
            return [], NO_UTF8
        options.append("SMTPUTF8")
    if not mail.content.isascii():
        if not client.supports_extension("8bitmime"):
            return [], NO_8BIT
        options.append("BODY=8BITMIME")
    return options, None


def _problem(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "the server has not answered in time"
    return _text(str(error) or type(error).__name__)


def _text(text: str) -> str:
    """What a server has said, on one line. Bytes that are not UTF-8, which the library keeps as surrogates, are
    replaced: no file and no mail takes surrogates."""
    known = text[:_TEXT_MAX].encode(errors="surrogateescape").decode(errors="replace")
    return " ".join(known.split())
