"""Who may use the admin API and the console: callers that show the token or, if none is configured, programs on this
machine.

A local program must be told from two others. A browser may be misused by a foreign page: the name in `Host` shows it,
because such a page reaches a loopback address only under a name of its own, or may not read the answer. A remote caller
may come through a local proxy: the headers that proxies add show it.
"""

import asyncio
import base64
import hmac
import ipaddress
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import structlog
from aiohttp import web

from gateway.errors import GatewayError

TOKEN_CHARACTERS = 16
_PROXIED = ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via")

log = structlog.get_logger(__name__)


class TokenError(GatewayError):
    """The file with the admin token cannot be read, or the token is too short."""


class Refusal(NamedTuple):
    """An HTTP status and a sentence that says what to do."""

    status: int
    sentence: str


class AdminAccess:
    """Checks requests. `token_file` is "" if no token is required. Raises TokenError if the file holds no token."""

    def __init__(self, token_file: str, counts: Counter[str]) -> None:
        self._token_file = token_file
        self._counts = counts
        self._said_at = float("-inf")
        if token_file:
            read_token(token_file)

    @property
    def requires_token(self) -> bool:
        """Whether whoever is let in has shown the token."""
        return bool(self._token_file)

    def check(self, request: web.Request, *, takes_basic: bool = False) -> Refusal | None:
        """Why a request is refused, or None if it is allowed. With `takes_basic` the token may be the password of a
        Basic header, which a browser asks its user for; its first request has none, and is not counted."""
        try:
            token = read_token(self._token_file) if self._token_file else None
        except TokenError as error:
            log.error("the admin API refuses all requests", reason=str(error))
            return Refusal(503, "the gateway cannot read the token of the admin API; its log says why")
        refused = refusal(token, request.headers, request.remote or "", takes_basic=takes_basic)
        is_question = takes_basic and token is not None and "Authorization" not in request.headers
        if refused is not None and not is_question:
            self._note(request, refused.status)
        return refused

    def _note(self, request: web.Request, status: int) -> None:
        """Counts every refusal; logs at most one per second."""
        self._counts["admin_refused"] += 1
        now = asyncio.get_running_loop().time()
        if now - self._said_at >= 1:
            self._said_at = now
            log.warning("admin request refused", peer=request.remote, status=status)


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


def refusal(token: bytes | None, headers: Mapping[str, str], peer: str, *, takes_basic: bool = False) -> Refusal | None:
    """Why a request from the IP address `peer` is refused, or None if it is allowed."""
    if token is not None:
        if hmac.compare_digest(_shown(headers.get("Authorization", ""), takes_basic), token):
            return None
        return Refusal(401, "the admin API requires the token in gateway.admin_token_file: `Authorization: Bearer …`")
    if (
        is_loopback(peer)
        and is_loopback(_host_name(headers.get("Host", "")))
        and not any(name in headers for name in _PROXIED)
    ):
        return None
    return Refusal(403, "without gateway.admin_token_file only programs on the gateway's machine may use the admin API")


def as_bearer(header: str) -> str:
    """An operator's header Authorization as other gateways take it, whose admin API takes no Basic credentials."""
    token = _shown(header, takes_basic=True)
    return f"Bearer {token.decode(errors='surrogateescape')}" if token else ""


def _shown(header: str, takes_basic: bool) -> bytes:
    """The token in a header: a Bearer's, or the password of a Basic one with any user name. Empty if there is none."""
    kind, _, shown = header.partition(" ")
    if kind.lower() == "bearer":
        return shown.strip().encode(errors="surrogateescape")
    if takes_basic and kind.lower() == "basic":
        try:
            return base64.b64decode(shown.strip(), validate=True).partition(b":")[2]
        except ValueError:
            return b""
    return b""


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
