"""The connections of a listener: as many as it may have, those that still begin TLS among them (M2)."""

import asyncio
from typing import Final, Generic, Protocol, TypeVar

HANDSHAKE_S: Final = 10.0
_SLACK_S: Final = 1.0


class Open(Protocol):
    """A protocol of asyncio."""

    @property
    def is_open(self) -> bool:
        """Whether it has a transport."""
        ...


C = TypeVar("C", bound=Open)


class Connections(Generic[C]):
    """A connection counts from when it was accepted until `discard`. If it begins with TLS, and the handshake fails,
    asyncio tells its protocol nothing: such a one counts until its handshake would have been too slow, `handshake_s`
    after it was accepted. None: connections do not begin with TLS."""

    def __init__(self, handshake_s: float | None) -> None:
        self.handshake_s = handshake_s
        self._found: set[C] = set()
        self.discard = self._found.discard

    def __len__(self) -> int:
        return len(self._found)

    def add(self, connection: C) -> None:
        self._found.add(connection)
        if self.handshake_s is not None:
            asyncio.get_running_loop().call_later(self.handshake_s + _SLACK_S, self._check, connection)

    def all(self) -> list[C]:
        return list(self._found)

    def _check(self, connection: C) -> None:
        if not connection.is_open:
            self.discard(connection)
