"""Who may use what operators use over HTTP: callers that show the token or, if none is configured, programs on this
machine. Gateways (admin API, console) and the ledger (journeys) decide by it.

A local program must be told from two others. A browser may be misused by a foreign page: the name in `Host` shows it,
because such a page reaches a loopback address only under a name of its own, or may not read the answer. A remote caller
may come through a local proxy: the headers that proxies add show it.
"""

import base64
import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from schemas.errors import SettingsError
from schemas.this_machine import is_this_machine, names_this_machine

TOKEN_CHARACTERS = 16
_PROXIED = ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via")


class TokenError(SettingsError):
    """The file with a token cannot be read, or the token is too short."""


class Guarded(NamedTuple):
    """`what` is protected, such as "the admin API"; `setting` names the file with its token; `machine` is whose machine
    may use it without a token."""

    what: str
    setting: str
    machine: str


ADMIN_API = Guarded("the admin API", "gateway.admin_token_file", "the gateway's machine")
JOURNEYS = Guarded("the ledger's search for journeys", "ledger.token_file", "the ledger's machine")


class Refusal(NamedTuple):
    """An HTTP status and a sentence that says what to do."""

    status: int
    sentence: str


def read_token(setting: str, path: str) -> bytes:
    """The token in the file that `setting` names, without surrounding white space. Raises TokenError."""
    try:
        token = Path(path).read_bytes().strip()
    except OSError as error:
        raise TokenError(f"{setting} = {path!r} cannot be read: {error.strerror}") from error
    if len(token) < TOKEN_CHARACTERS:
        raise TokenError(
            f"{setting} = {path!r} has {len(token)} characters: a token needs at least {TOKEN_CHARACTERS}; create it "
            "with `openssl rand -hex 32`"
        )
    return token


def refusal(
    guarded: Guarded, token: bytes | None, headers: Mapping[str, str], peer: str, *, takes_basic: bool = False
) -> Refusal | None:
    """Why a request from the IP address `peer` is refused, or None if it is allowed. `token` is None if none is
    configured; with `takes_basic` it may be the password of a Basic header."""
    if token is not None:
        if hmac.compare_digest(_shown(headers.get("Authorization", ""), takes_basic), token):
            return None
        return Refusal(401, f"{guarded.what} requires the token in {guarded.setting}: `Authorization: Bearer …`")
    if (
        is_this_machine(peer)
        and names_this_machine(headers.get("Host", ""))
        and not any(name in headers for name in _PROXIED)
    ):
        return None
    return Refusal(403, f"without {guarded.setting} only programs on {guarded.machine} may use {guarded.what}")


def as_bearer(header: str) -> str:
    """An operator's header Authorization as other gateways take it, whose admin API takes no Basic credentials."""
    token = _shown(header, takes_basic=True)
    return bearer(token) if token else ""


def bearer(token: bytes) -> str:
    """The header Authorization that shows a token."""
    return f"Bearer {token.decode(errors='surrogateescape')}"


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
