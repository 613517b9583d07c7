"""How commands reach a gateway: its address, TLS, user and password."""

import os
import secrets
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from edge.errors import ConnectionLost, ConnectRefused, MqttClientError, Unreachable
from edge.link import Address, QuicTls
from jobs.cli.context import Shared
from jobs.errors import JobError
from jobs.stack.gateways import listeners_named
from jobs.stack.state import running_state
from mqtt.client_limits import ClientLimits
from mqtt.codes import ReasonCode
from mqtt.packets import Connect, Properties

if TYPE_CHECKING:
    from jobs.feeds.feed_api import FeedApi

TIMEOUT_S = 10.0
KEEP_ALIVE_S = 60
PASSWORD_VARIABLE = "WAYSTATION_PASSWORD"
LIMITS = ClientLimits(connect_timeout_s=TIMEOUT_S)

Qos = Annotated[int, typer.Option(min=0, max=2, help="0: at most once, 1: at least once, 2: exactly once.")]
ClientId = Annotated[str | None, typer.Option(help="Client id to connect with. Default: a random one.")]
UserProperties = Annotated[
    list[str] | None,
    typer.Option(
        "--property", metavar="NAME=VALUE", help="Send this user property, such as conversation=42. May be repeated."
    ),
]


class Access(NamedTuple):
    """What :mod:`jobs.cli.access_options` gives. `address` None: that of the running stack."""

    address: str | None
    user: str | None = None
    password_file: Path | None = None
    tls: bool = False
    cafile: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    server_name: str | None = None
    quic: bool = False

    def where(self, options: Shared) -> "InTurn":
        """The addresses of the gateway, or of all gateways of the running stack, the first one first: any of them
        serves any client. Raises StackError (no address and no stack), JobError (unusable options)."""
        wants_tls = self.tls or any((self.cafile, self.cert, self.key, self.server_name))
        found = [self.address] if self.address is not None else []
        if not found:
            state = running_state(options.data())
            wants_tls = wants_tls or not listeners_named(state, "mqtt")
            found = listeners_named(state, "quic" if self.quic else "mqtts" if wants_tls else "mqtt")
            if not found:
                kind = "over QUIC" if self.quic else "with TLS" if wants_tls else "without TLS"
                raise JobError(
                    f"the running gateway has no MQTT listener {kind}, or is still starting: check "
                    "`waystation status`, or give the address with --address"
                )
        context = self._tls_context() if wants_tls or self.quic else None  # for QUIC only to check the files
        return InTurn([self._address(*_host_and_port(text), context) for text in found])

    def _address(self, host: str, port: int, context: ssl.SSLContext | None) -> Address:
        if self.quic:
            return Address(host, port, server_hostname=self.server_name, quic=self._quic_tls())
        return Address(host, port, context, self.server_name)

    def feed_api(self, options: Shared) -> "FeedApi":
        """The gateway over HTTP; `address` is that of its HTTP listener. Raises as `where` does."""
        from jobs.feeds.feed_api import FeedApi

        wants_tls = self.tls or any((self.cafile, self.cert, self.key))
        text = self.address
        if text is None:
            listeners = running_state(options.data()).listeners
            wants_tls = wants_tls or "http" not in listeners
            text = listeners.get("https" if wants_tls else "http")
            if text is None:
                raise JobError(
                    "the running gateway has no such HTTP listener, or is still starting: check `waystation status`, "
                    "or give the address with --address"
                )
        host, port = _host_and_port(text)
        password = self._password()
        credentials = None if self.user is None or password is None else (self.user, password)
        host = f"[{host}]" if ":" in host else host
        scheme = "https" if wants_tls else "http"
        return FeedApi(f"{scheme}://{host}:{port}", credentials, self._tls_context() if wants_tls else None)

    def connect_packet(self, client_id: str | None, properties: Properties, *, clean_start: bool) -> Connect:
        """CONNECT as `client_id`, or under a generated one if None. Asks for the password if only the user is known."""
        return Connect(
            client_id or f"waystation-{secrets.token_hex(4)}",
            clean_start=clean_start,
            keep_alive=KEEP_ALIVE_S,
            username=self.user,
            password=self._password(),
            properties=properties,
        )

    def _password(self) -> bytes | None:
        if self.password_file is not None:
            if self.user is None:
                raise JobError("--password-file needs --user: give the user name as well")
            try:
                return self.password_file.read_bytes().splitlines()[0]
            except OSError as error:
                raise JobError(f"cannot read the password file {self.password_file}: {error.strerror}") from error
            except IndexError:
                raise JobError(
                    f"the password file {self.password_file} is empty: write the password into its first line"
                ) from None
        if self.user is None:
            return None
        known = os.environ.get(PASSWORD_VARIABLE)
        return (known or typer.prompt("Password", hide_input=True, err=True)).encode()

    def _quic_tls(self) -> QuicTls:
        ca_file, certificate, key = (None if file is None else str(file) for file in (self.cafile, self.cert, self.key))
        return QuicTls(ca_file, certificate, key)

    def _tls_context(self) -> ssl.SSLContext:
        if self.key is not None and self.cert is None:
            raise JobError("--key needs --cert: give the client certificate as well")
        try:
            context = ssl.create_default_context(cafile=self.cafile)
        except (OSError, ssl.SSLError) as error:
            raise JobError(f"cannot read certificate authorities from {self.cafile}: {_cause(error)}") from error
        if self.cert is not None:
            try:
                context.load_cert_chain(self.cert, self.key)
            except (OSError, ssl.SSLError) as error:
                raise JobError(
                    f"cannot use the client certificate {self.cert} with the key {self.key or self.cert}: "
                    f"{_cause(error)}"
                ) from error
        return context


class InTurn:
    """Gives the next address for each attempt to connect, at least one in all; after `connected` the same again."""

    def __init__(self, addresses: list[Address]) -> None:
        self._addresses = addresses
        self._tried = 0

    @property
    def addresses(self) -> list[Address]:
        """All of them."""
        return [*self._addresses]

    def __len__(self) -> int:
        return len(self._addresses)

    def __call__(self) -> Address:
        self._tried += 1
        return self._addresses[(self._tried - 1) % len(self)]

    def connected(self) -> None:
        """The last address is one of a gateway that serves; when its connection ends, it is tried first."""
        self._tried = (self._tried - 1) % len(self)

    @property
    def has_more(self) -> bool:
        """Whether some address was not tried yet."""
        return self._tried < len(self)


def user_properties(given: list[str] | None) -> list[tuple[str, str]]:
    """Names and values. Raises JobError."""
    pairs = []
    for text in given or ():
        name, mark, value = text.partition("=")
        if not name or not mark:
            raise JobError(f"{text!r} is not a user property: write NAME=VALUE")
        pairs.append((name, value))
    return pairs


def is_elsewhere_better(error: Exception) -> bool:
    """Whether another gateway may serve although this one does not: it is down, or says that it does not now."""
    if isinstance(error, ConnectRefused):
        return error.reason in (ReasonCode.SERVER_UNAVAILABLE, ReasonCode.SERVER_BUSY, ReasonCode.SERVER_SHUTTING_DOWN)
    return isinstance(error, Unreachable | ConnectionLost)


def _host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise JobError(f"{text!r} is not an address: write HOST:PORT, for example 127.0.0.1:1883")
    return host.strip("[]"), int(port)


def _cause(error: OSError) -> str:
    return error.strerror or str(error)


def explained(error: MqttClientError) -> JobError:
    """The error as a sentence for the user of the command."""
    hint = "; check `waystation status`" if isinstance(error, Unreachable) else ""
    return JobError(f"{error}{hint}")
