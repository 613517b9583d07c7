"""SMTP submission: stands in for the mail server of programs here (M16; RFC 5321, RFC 6409).

A mail is answered with 250 once it is on disk; from then on it is relayed, or its sender gets a report. The content
stays as it is: no header is added. Answers if it is not taken:

    421  too many connections          452  the store or the disk is full; too many recipients
    550  no route for the domain       552  the mail is too large
    553  an address that cannot be     554  the mail has gone round in circles
    500  a line is too long            530  authentication or TLS is required
"""

import asyncio
import logging
import re
import ssl
import warnings
from collections.abc import Callable
from typing import Any, Final

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword, TLSSetupException

from edge.agent.envelope import is_address
from edge.agent.errors import ListenerError
from edge.agent.listening import HANDSHAKE_S, Connections
from edge.agent.mailroom import Mailroom
from edge.agent.routes import Routes, domain_of
from edge.agent.settings import SubmissionSettings, server_tls
from edge.client.errors import DiskFull, MessageTooLarge, NotAccepted
from schemas.errors import WaystationError
from schemas.password_file import Passwords, verify
from schemas.settings_files import secret_if_set
from schemas.visible import visible

COMMANDS_MAX: Final = 100_000  # of one kind in a connection
RECEIVED_MAX: Final = 50  # header fields: a mail with more goes round in circles (RFC 5321, 6.3)
IDENT: Final = "Waystation agent"
_RECEIVED: Final = re.compile(rb"^received:", re.IGNORECASE | re.MULTILINE)
_HEADER_END: Final = re.compile(rb"\r?\n\r?\n")

_log: Final = logging.getLogger("waystation.agent")
logging.getLogger("mail.log").setLevel(logging.CRITICAL)  # aiosmtpd logs commands, with addresses


class _Session(SMTP):  # type: ignore[misc]
    """One connection. `ended` is called with it when it has ended. aiosmtpd keeps all of a line until CRLF, also of
    one that it will refuse; so the connection ends with a line that is longer than a mail may be."""

    def __init__(
        self, handler: "Submission", line_bytes: int, ended: "Callable[[_Session], None]", **options: Any
    ) -> None:
        self.line_length_limit = line_bytes  # before the reader is made
        self._unended_most = max(line_bytes, options["data_size_limit"])
        self._unended = 0  # bytes since the last CRLF
        self._ends_with_cr = False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about authentication without TLS, which settings allow on loopback only
            super().__init__(handler, **options)
        self._ended = ended

    @property
    def is_open(self) -> bool:
        return self.transport is not None

    def data_received(self, data: bytes) -> None:
        end = data.rfind(b"\r\n")
        if end >= 0:
            self._unended = len(data) - end - 2
        elif self._ends_with_cr and data.startswith(b"\n"):
            self._unended = len(data) - 1
        else:
            self._unended += len(data)
        self._ends_with_cr = data.endswith(b"\r")
        if self._unended <= self._unended_most:
            super().data_received(data)
        elif self.transport is not None and not self.transport.is_closing():
            self.transport.write(b"500 5.5.2 a line is too long\r\n")
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._ended(self)


class _TooMany(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"421 4.3.2 too many connections, try again later\r\n")
        transport.close()


class Submission:
    """The listener. `handle_…` and `auth_…` are called by aiosmtpd."""

    def __init__(self, settings: SubmissionSettings, mailroom: Mailroom, routes: Routes) -> None:
        """Raises SettingsError if a file that the settings name cannot be used."""
        self._settings, self._mailroom, self._routes = settings, mailroom, routes
        self._tls: ssl.SSLContext | None = server_tls("smtp.submission", settings.certificate_file, settings.key_file)
        self._begins_tls = settings.tls == "starttls"  # in a connection, by a command
        text = secret_if_set("smtp.submission.password_file", settings.password_file)
        self._passwords = None if text is None else Passwords.read(text, settings.password_file)
        self._server: asyncio.Server | None = None
        handshake_s = None if self._tls is None or self._begins_tls else min(HANDSHAKE_S, settings.timeout_s)
        self._sessions: Connections[_Session] = Connections(handshake_s)
        self.port = 0

    async def open(self) -> int:
        """Listens; returns the port. Raises ListenerError."""
        settings, loop = self._settings, asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                *(self._connected, settings.host, settings.port),
                ssl=None if self._begins_tls else self._tls,
                ssl_handshake_timeout=self._sessions.handshake_s,
            )
        except OSError as error:
            raise ListenerError(
                f"smtp.submission cannot listen on {settings.host}:{settings.port}: {error.strerror or error}; choose "
                "another port, or end the program that has it"
            ) from error
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self.port

    async def close(self) -> None:
        """Ends the listener and all connections. A mail that is not answered yet may have been accepted."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for session in self._sessions.all():
            if session.transport is not None:
                session.transport.close()

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._sessions)

    # -- called by aiosmtpd --------------------------------------------------------------------------------------------

    async def handle_MAIL(self, server: Any, session: Any, envelope: Any, address: str, options: list[str]) -> str:  # noqa: N802
        if address not in ("", "<>") and not is_address(address):
            return "553 5.1.7 the sender's address cannot be used"
        envelope.mail_from = address or "<>"
        envelope.mail_options.extend(options)
        return "250 2.1.0 OK"

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: list[str]) -> str:  # noqa: N802
        if not is_address(address):
            return "553 5.1.3 the address cannot be used"
        if self._routes.of(address) is None:
            return f"550 5.1.2 there is no route for the domain {visible(domain_of(address))}"
        if len(envelope.rcpt_tos) >= self._settings.recipients:
            return f"452 4.5.3 too many recipients: {self._settings.recipients} are allowed"
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        content: bytes = envelope.original_content
        if len(_RECEIVED.findall(_HEADER_END.split(content, maxsplit=1)[0])) > RECEIVED_MAX:
            return "554 5.4.6 the mail goes round in circles: it has too many Received fields"
        sender = "" if envelope.mail_from == "<>" else envelope.mail_from
        try:
            ids = await self._mailroom.send(sender, envelope.rcpt_tos, content, smtputf8=envelope.smtp_utf8)
        except MessageTooLarge as error:
            return f"552 5.3.4 {error}"
        except (NotAccepted, DiskFull) as error:
            return f"452 4.3.1 {error}"
        except WaystationError as error:
            _log.error("a mail was not accepted: %s", error)
            return "451 4.3.0 the agent cannot store mail at the moment"
        return f"250 2.0.0 accepted as {' '.join(ids[:4])}"

    async def handle_exception(self, error: Exception) -> str:
        if isinstance(error, TLSSetupException):  # a program that does not trust our certificate, for instance
            _log.info("TLS with a program that submits mail failed: %s", error.__cause__ or error)
            return "454 4.7.0 TLS has failed"
        _log.error("a mail session failed", exc_info=error)
        return "451 4.3.0 internal error"

    async def authenticate(self, user: str, password: bytes) -> bool:
        """Whether the password is the user's; takes as long for a user who does not exist."""
        if self._passwords is None:
            return False
        known = self._passwords.users.get(user)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, verify, known or self._passwords.decoy, password) and known is not None

    async def auth_PLAIN(self, server: Any, words: list[str]) -> Any:  # noqa: N802
        return await self._login(await server.auth_PLAIN(server, words))

    async def auth_LOGIN(self, server: Any, words: list[str]) -> Any:  # noqa: N802
        return await self._login(await server.auth_LOGIN(server, words))

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _login(self, found: Any) -> Any:
        """aiosmtpd has read the credentials, and its authenticator has passed them on."""
        if not isinstance(found, AuthResult) or not isinstance(found.auth_data, LoginPassword):
            return found
        user = found.auth_data.login.decode(errors="replace")
        if await self.authenticate(user, found.auth_data.password):
            return AuthResult(success=True, auth_data=user)
        return AuthResult(success=False, handled=False)

    def _connected(self) -> asyncio.Protocol:
        settings = self._settings
        if len(self._sessions) >= settings.connections:
            return _TooMany()
        session = _Session(
            self,
            settings.line_bytes,
            self._sessions.discard,
            data_size_limit=settings.message_bytes,
            enable_SMTPUTF8=True,
            hostname=settings.hostname or None,
            ident=IDENT,
            tls_context=self._tls if self._begins_tls else None,
            require_starttls=self._begins_tls and self._tls is not None,
            timeout=settings.timeout_s,
            auth_required=self._passwords is not None,
            auth_require_tls=self._begins_tls and self._tls is not None,  # a connection that has it needs no more
            authenticator=lambda *words: AuthResult(success=True, auth_data=words[-1]),
            auth_exclude_mechanism=None if self._passwords is not None else ("PLAIN", "LOGIN"),
            command_call_limit=COMMANDS_MAX,
            loop=asyncio.get_running_loop(),
        )
        self._sessions.add(session)
        return session
