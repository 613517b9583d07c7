"""Who may use the admin API: callers that show the token or, if none is configured, programs on this machine.

A local program must be told from two others. A browser may be misused by a foreign page: the name in `Host` shows it,
because such a page reaches a loopback address only under a name of its own, or may not read the answer. A remote caller
may come through a local proxy: the headers that proxies add show it.
"""

import hmac
import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from gateway.errors import GatewayError

TOKEN_CHARACTERS = 16
_PROXIED = ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via")


class TokenError(GatewayError):
    """The file with the admin token cannot be read, or the token is too short."""


class Refusal(NamedTuple):
    """An HTTP status and a sentence that says what to do."""

    status: int
    sentence: str


def read_token(path: str) -> bytes:
    """The token in a file, without surrounding white space. Raises TokenError."""
    try:
        token = Path(path).read_bytes().strip()
    except OSError as error:
        raise TokenError(f"gateway.admin_token_file = {path!r} cannot be read: {error.strerror}") from error
    if len(token) < TOKEN_CHARACTERS:
        raise TokenError(
            f"gateway.admin_token_file = {path!r} has {len(token)} characters: a token needs at least "
            f"{TOKEN_CHARACTERS}; create it with `openssl rand -hex 32`"
        )
    return token


def refusal(token: bytes | None, headers: Mapping[str, str], peer: str) -> Refusal | None:
    """Why a request from the IP address `peer` is refused, or None if it is allowed."""
    if token is not None:
        kind, _, shown = headers.get("Authorization", "").partition(" ")
        if kind.lower() == "bearer" and hmac.compare_digest(shown.strip().encode(errors="surrogateescape"), token):
            return None
        return Refusal(401, "the admin API requires the token in gateway.admin_token_file: `Authorization: Bearer …`")
    if (
        is_loopback(peer)
        and is_loopback(_host_name(headers.get("Host", "")))
        and not any(name in headers for name in _PROXIED)
    ):
        return None
    return Refusal(403, "without gateway.admin_token_file only programs on the gateway's machine may use the admin API")


def _host_name(header: str) -> str:
    """`Host` without its port."""
    return header[: header.find("]") + 1] if header.startswith("[") else header.partition(":")[0]


def is_loopback(address: str) -> bool:
    """Whether an IP address, or the name `localhost`, means this machine."""
    if address == "localhost":
        return True
    try:
        ip = ipaddress.ip_address(address.strip("[]").partition("%")[0])
    except ValueError:
        return False
    return ip.is_loopback or (ip.version == 6 and ip.ipv4_mapped is not None and ip.ipv4_mapped.is_loopback)
