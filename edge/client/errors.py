"""Errors of the client library. The text of each says what happened and what to do, and is meant for people.

WaystationError
└── ClientError
    ├── NotAccepted            a message was refused here, before it was stored
    │   ├── StoreFull          the outbox has no capacity for it
    │   ├── MessageTooLarge    it is larger than the limit for one message
    │   └── LifetimeNotAllowed it has expired already, or would be kept for longer than the limit
    ├── Expired                the message's lifetime ended before the gateway had it
    ├── StoreError             the file of the outbox cannot be used
    │   ├── StoreInUse         another process has it open
    │   ├── StoreForeign       it is not an outbox, or that of another client or a newer version
    │   ├── StoreDamaged       its content is damaged
    │   ├── DiskFull           there is no space for a commit; the client tries again
    │   └── StoreFailed        it can no longer be written
    ├── NotReachable           every connect point was tried; lists each attempt and its reason (G3)
    ├── NoReply                a request was not answered in time
    │   └── NotReceived            nobody has got the request
    ├── TooManyRequests        too many requests wait for a reply
    ├── NotSupported           the bearer cannot do that
    ├── MissingPackage         the bearer needs a package that is not installed
    └── ClientClosed           the client is not open

The errors of :mod:`edge.errors` appear too: PublishRefused, SubscribeRefused, ConnectRefused, ConnectionLost.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.errors import WaystationError


class ClientError(WaystationError):
    """Base of the client library's errors."""


class NotAccepted(ClientError):
    """The message was refused before it was stored: nothing will be sent."""


class StoreFull(NotAccepted):
    """The outbox has no capacity for the message. Publish again once messages are acknowledged."""


class MessageTooLarge(NotAccepted):
    """The message is larger than the limit for one message."""


class LifetimeNotAllowed(NotAccepted):
    """The lifetime is not above 0, or longer than messages are kept."""


class Expired(ClientError):
    """The message's lifetime ended before it was sent. The gateway has not had it."""


class StoreError(ClientError):
    """The outbox's file cannot be used."""


class StoreInUse(StoreError):
    """Another process, or another client in this one, has the file open."""


class StoreForeign(StoreError):
    """The file is no outbox, belongs to another client id, or was written by a newer version."""


class StoreDamaged(StoreError):
    """The file's content is damaged."""


class DiskFull(StoreError):
    """The disk has no space for a commit. Nothing of the commit is in the file, which is otherwise as it was."""


class StoreFailed(StoreError):
    """The file could not be written: the client has stopped, and what was accepted is in the file."""


class NoReply(ClientError):
    """No reply arrived in time. The receiver may have had the request."""


class NotReceived(NoReply):
    """Nobody has got the request, so no reply will come: nobody wanted it, or could get it."""


class TooManyRequests(ClientError):
    """Too many requests wait for a reply: nothing was sent."""


class NotSupported(ClientError):
    """The bearer cannot do that: nothing was done."""


class MissingPackage(ClientError):
    """The bearer needs a package that is not installed; the text names it."""


class ClientClosed(ClientError):
    """The client is not open yet, or no longer."""


@dataclass(frozen=True)
class Attempt:
    """One attempt that failed: `target` is an access point's URL or a connect point."""

    target: str
    reason: str

    def __str__(self) -> str:
        return f"{self.target}: {self.reason}"


class NotReachable(ClientError):
    """Every access point and every connect point was tried; `attempts` has them all, in order (G3)."""

    def __init__(self, attempts: Sequence[Attempt]) -> None:
        lines = "".join(f"\n  {attempt}" for attempt in attempts)
        super().__init__(f"no gateway could be reached; {len(attempts)} attempts failed:{lines}")
        self.attempts = tuple(attempts)
