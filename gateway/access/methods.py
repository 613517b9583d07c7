"""Authentication: the interface of all methods, and the methods that need no file (R11)."""

from typing import NamedTuple, Protocol

from gateway.errors import NotAdmitted
from gateway.host.authenticator import Credentials
from gateway.shard.rules import FOR_EVER
from mqtt.codes import ReasonCode
from schemas.password_file import is_user_name


class Identity(NamedTuple):
    """The user that a client was identified as, "" for an anonymous one; valid `until`, in seconds since the epoch."""

    user: str
    until: float = FOR_EVER


class Method(Protocol):
    """One way to identify a client; `name` is its name in the settings."""

    name: str

    async def identify(self, credentials: Credentials) -> Identity | None:
        """Identifies the client; None if it shows no credentials of this kind. Raises NotAdmitted if they are wrong."""
        ...

    def close(self) -> None:
        """Stops the method's threads."""
        ...


def shows_nothing(credentials: Credentials) -> bool:
    """Whether the client gives neither user name nor password; empty ones do not count."""
    return not credentials.username and not credentials.password


class CertificateMethod:
    """The user is the common name of the verified client certificate."""

    name = "certificate"

    async def identify(self, credentials: Credentials) -> Identity | None:
        user = credentials.certificate
        if user is None:
            return None
        if not is_user_name(user):
            raise NotAdmitted(ReasonCode.NOT_AUTHORIZED, "the common name of the certificate is not a valid user name")
        return Identity(user)

    def close(self) -> None:
        pass


class AnonymousMethod:
    """A client without credentials is anonymous."""

    name = "anonymous"

    async def identify(self, credentials: Credentials) -> Identity | None:
        return Identity("") if shows_nothing(credentials) else None

    def close(self) -> None:
        pass


class EverybodyMethod:
    """Admits everyone and ignores credentials: used if no method is configured, on loopback."""

    name = "everybody"

    async def identify(self, credentials: Credentials) -> Identity | None:
        return Identity("")

    def close(self) -> None:
        pass
