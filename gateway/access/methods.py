"""How a client says who it is: what all methods have in common, and the two that need no file (R11)."""

from typing import NamedTuple, Protocol

from gateway.errors import NotAdmitted
from gateway.home.rules import FOR_EVER
from gateway.host.gate import Credentials
from mqtt.codes import ReasonCode
from schemas.password_file import is_user_name


class Identity(NamedTuple):
    """Whom a client was found to be, "" for nobody in particular; `until` in seconds since the epoch."""

    user: str
    until: float = FOR_EVER


class Method(Protocol):
    """One way to tell who a client is; `name` is that of the setting."""

    name: str

    async def identify(self, credentials: Credentials) -> Identity | None:
        """Who the client is; None if it shows nothing of this kind. Raises NotAdmitted if what it shows is wrong."""
        ...

    def close(self) -> None:
        """Ends what works for it."""
        ...


def shows_nothing(credentials: Credentials) -> bool:
    """Whether the client gives neither user name nor password; empty ones are none."""
    return not credentials.username and not credentials.password


class CertificateMethod:
    """The common name of the verified client certificate is the user."""

    name = "certificate"

    async def identify(self, credentials: Credentials) -> Identity | None:
        user = credentials.certificate
        if user is None:
            return None
        if not is_user_name(user):
            raise NotAdmitted(ReasonCode.NOT_AUTHORIZED, "the common name of its certificate is no user name")
        return Identity(user)

    def close(self) -> None:
        pass


class AnonymousMethod:
    """Whoever shows nothing is nobody in particular."""

    name = "anonymous"

    async def identify(self, credentials: Credentials) -> Identity | None:
        return Identity("") if shows_nothing(credentials) else None

    def close(self) -> None:
        pass


class EverybodyMethod:
    """Without any method configured, on loopback: whatever is shown is not looked at."""

    name = "everybody"

    async def identify(self, credentials: Credentials) -> Identity | None:
        return Identity("")

    def close(self) -> None:
        pass
