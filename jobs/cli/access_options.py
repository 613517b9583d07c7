"""The options by which commands reach a gateway, written once for all of them: `--address`, `--user`, `--tls` …"""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from jobs.cli.connecting import PASSWORD_VARIABLE, Access

Command = Callable[..., None]

_TLS = "TLS"
_Gateway = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="Address of the gateway. Default: the first gateway of the running stack that answers.",
    ),
]
_User = Annotated[
    str | None,
    typer.Option(help=f"User name. The password is read from --password-file, {PASSWORD_VARIABLE} or a prompt."),
]
_PasswordFile = Annotated[Path | None, typer.Option(help="File with the password in its first line.")]
_Tls = Annotated[
    bool, typer.Option("--tls", help="Use TLS. Trust the certificate authorities of the system.", rich_help_panel=_TLS)
]
_CaFile = Annotated[
    Path | None,
    typer.Option("--cafile", help="Use TLS. Trust only the authorities in this PEM file.", rich_help_panel=_TLS),
]
_CertFile = Annotated[
    Path | None, typer.Option("--cert", help="Use TLS. Present this client certificate (PEM).", rich_help_panel=_TLS)
]
_KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key", help="Private key of the client certificate. Default: in the same file.", rich_help_panel=_TLS
    ),
]
_ServerName = Annotated[
    str | None,
    typer.Option(help="Name in the gateway's certificate. Default: the host of the address.", rich_help_panel=_TLS),
]
_Quic = Annotated[
    bool, typer.Option("--quic", help="Connect over QUIC (UDP), which always uses TLS.", rich_help_panel=_TLS)
]
_HttpAddress = Annotated[
    str | None,
    typer.Option("--address", metavar="HOST:PORT", help="HTTP address of a gateway. Default: the running stack's."),
]
_HTTP: Mapping[str, Any] = {
    "address": _HttpAddress,
    "user": _User,
    "password_file": _PasswordFile,
    "tls": _Tls,
    "cafile": _CaFile,
    "cert": _CertFile,
    "key": _KeyFile,
}
_MQTT: Mapping[str, Any] = {**_HTTP, "address": _Gateway, "server_name": _ServerName, "quic": _Quic}


def over_mqtt(command: Command) -> Command:
    """The command, with options in the place of its parameter `access`."""
    return _with_options(command, _MQTT)


def over_http(command: Command) -> Command:
    """The same, for the HTTP listener of a gateway."""
    return _with_options(command, _HTTP)


def _with_options(command: Command, options: Mapping[str, Any]) -> Command:
    """Typer reads the signature, which has the options behind the command's own parameters."""
    own = [one for one in inspect.signature(command).parameters.values() if one.name != "access"]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=Access._field_defaults.get(name), annotation=of)
        for name, of in options.items()
    ]

    @wraps(command)
    def run(**given: Any) -> None:
        command(access=Access(**{name: given.pop(name) for name in options}), **given)

    run.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
    return run
