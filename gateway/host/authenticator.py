"""Admission: every CONNECT and every HTTP request asks the authenticator, whatever the bearer (R11)."""

from typing import Final, NamedTuple, Protocol

from gateway.errors import NotAdmitted as NotAdmitted
from gateway.shard.rules import EVERYTHING, ClientRules

MESH_BEARER: Final = "mesh"
"""Of an originator of bundles, whose signature the gateway has verified: `client` is authenticated by its certificate,
and is the user's name too. Only :mod:`gateway.mesh.admission` says so; no connection can."""


class Proven(NamedTuple):
    """Whom another gateway of this machine has authenticated a client as, and until when that holds, seconds since the
    epoch."""

    user: str
    until: float


class Credentials(NamedTuple):
    """A client's credentials. `certificate` is the common name in the subject of a verified client certificate; `peer`
    is `address:port`; `bearer` is `mqtt`, `ws`, `http` or :data:`MESH_BEARER`; `proven` is set for a connection that
    goes on here, and which did not begin here (R5)."""

    client: str
    username: str | None
    password: bytes | None
    certificate: str | None
    peer: str
    bearer: str
    proven: Proven | None = None


class Authenticator(Protocol):
    """The authenticator: decides which clients are admitted and what they may do."""

    async def admit(self, credentials: Credentials) -> ClientRules:
        """Returns the rules of the client; raises NotAdmitted."""
        ...


class OpenAuthenticator:
    """Admits every client and allows everything."""

    async def admit(self, credentials: Credentials) -> ClientRules:
        return EVERYTHING
