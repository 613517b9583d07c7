"""Who may come in: each CONNECT, and each HTTP request, asks the gate, whatever the bearer (R11)."""

from typing import NamedTuple, Protocol

from gateway.errors import NotAdmitted as NotAdmitted
from gateway.home.rules import EVERYTHING, ClientRules


class Credentials(NamedTuple):
    """What a client shows. `certificate` is the subject's common name of a verified client certificate; `peer` is
    `address:port`; `bearer` is `mqtt`, `ws` or `http`."""

    client: str
    username: str | None
    password: bytes | None
    certificate: str | None
    peer: str
    bearer: str


class Gate(Protocol):
    """Decides who may come in and what they may do."""

    async def admit(self, credentials: Credentials) -> ClientRules:
        """The rules of the client; raises NotAdmitted."""
        ...


class OpenGate:
    """Lets everybody in, to do everything."""

    async def admit(self, credentials: Credentials) -> ClientRules:
        return EVERYTHING
