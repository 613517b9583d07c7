"""Admission: every CONNECT and every HTTP request asks the authenticator, whatever the bearer (R11)."""

from typing import NamedTuple, Protocol

from gateway.errors import NotAdmitted as NotAdmitted
from gateway.shard.rules import EVERYTHING, ClientRules


class Credentials(NamedTuple):
    """A client's credentials. `certificate` is the common name in the subject of a verified client certificate; `peer`
    is `address:port`; `bearer` is `mqtt`, `ws` or `http`."""

    client: str
    username: str | None
    password: bytes | None
    certificate: str | None
    peer: str
    bearer: str


class Authenticator(Protocol):
    """The authenticator: decides which clients are admitted and what they may do."""

    async def admit(self, credentials: Credentials) -> ClientRules:
        """Returns the rules of the client; raises NotAdmitted."""
        ...


class OpenAuthenticator:
    """Admits every client and allows everything."""

    async def admit(self, credentials: Credentials) -> ClientRules:
        return EVERYTHING
