"""The caller of a request (R11): credentials, and the client id of an HTTP client in the home.

HTTP clients have client ids of their own, so that none can pose as an MQTT client or as another user's client:

| caller | client id |
|---|---|
| user `ann` | `http-ann`, with a name `http-ann:<name>` |
| no user, with a name | `http:<name>` |
| neither | `http:anonymous`; each stream gets a new one, `http:auto-…` |

A user's name is percent-encoded in it, except letters, digits and `-._~`.
"""

import base64
import re
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote
from uuid import uuid4

from multidict import CIMultiDictProxy

from gateway.host.authenticator import Authenticator, Credentials, NotAdmitted
from gateway.http.problems import Problem, bad_request, not_admitted
from gateway.shard.rules import ClientRules

NAME_PATTERN = r"^[A-Za-z0-9._~-]{1,128}$"
_NAME = re.compile(NAME_PATTERN[:-1])
ANONYMOUS = "http:anonymous"
_NAMES_TRIED = 64


class Caller(NamedTuple):
    """An admitted client. `is_known`: it has a name or a user, so that its client id stays the same."""

    client: str
    is_known: bool
    rules: ClientRules
    peer: str


class Origin(NamedTuple):
    """Where a request comes from: the client's `address:port`, and the common name in its certificate."""

    peer: str
    certificate: str | None = None


def one_header(headers: CIMultiDictProxy[str], name: str) -> str | None:
    """A header that may occur at most once; raises Problem 400."""
    values = headers.getall(name, [])
    if len(values) > 1:
        raise bad_request("repeated_header", f"the header {name} occurs {len(values)} times: send it once")
    return values[0] if values else None


def client_name(text: str | None) -> str:
    """The name that a client gives itself, "" if none; raises Problem 400."""
    if text is None:
        return ""
    if not _NAME.fullmatch(text):
        raise bad_request("client_identifier_not_valid", "a client name must have 1 to 128 letters, digits and - . _ ~")
    return text


def client_id(name: str, user: str, nameless: str = ANONYMOUS) -> str:
    """The client id in the home; see the module. `nameless` is used without name and user."""
    if user:
        owner = f"http-{quote(user, safe='')}"
        return f"{owner}:{name}" if name else owner
    return f"http:{name}" if name else nameless


def new_nameless(is_here: Callable[[str], bool]) -> str:
    """The client id of a stream whose client has neither name nor user: one whose home is at this gateway, says
    `is_here`. If none is found soon, this gateway has hardly a shard, and any will do."""
    name = ""
    for _ in range(_NAMES_TRIED):
        name = f"http:auto-{uuid4().hex}"
        if is_here(name):
            break
    return name


async def admit(
    authenticator: Authenticator,
    headers: CIMultiDictProxy[str],
    name: str,
    nameless: str,
    origin: Origin,
    refused: Callable[[Credentials, NotAdmitted], None],
) -> Caller:
    """Asks the authenticator; raises Problem 400, 401, 403, 429 or 503, and passes refused credentials to `refused`."""
    username, password = _credentials(one_header(headers, "Authorization"))
    client = client_id(name, username or "", nameless)
    credentials = Credentials(client, username, password, origin.certificate, origin.peer, "http")
    try:
        rules = await authenticator.admit(credentials)
        known = client_id(name, rules.user, nameless)
        if known != client:  # a token's user is known only now: get the rules of the client id it makes
            credentials = credentials._replace(client=known)
            rules = await authenticator.admit(credentials)
    except NotAdmitted as error:
        refused(credentials, error)
        raise not_admitted(error, has_credentials=password is not None) from error
    return Caller(known, bool(name or rules.user), rules, origin.peer)


def _credentials(header: str | None) -> tuple[str | None, bytes | None]:
    """User name and password (RFC 7617), or None and a token (RFC 6750)."""
    if header is None:
        return None, None
    scheme, _, rest = header.partition(" ")
    rest = rest.strip()
    if scheme.lower() == "bearer" and rest:
        return None, rest.encode(errors="surrogateescape")
    if scheme.lower() == "basic":
        try:
            username, colon, password = base64.b64decode(rest, validate=True).decode().partition(":")
        except ValueError:
            colon = ""
        if colon:
            return username, password.encode()
    raise Problem(
        401, "malformed_credentials", "Authorization must be Basic with user:password, or Bearer with a token"
    )
