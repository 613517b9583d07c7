"""Logs clients that were refused: at most one line per second, however many there are (R11)."""

from collections.abc import Callable

import structlog

from gateway.errors import NotAdmitted
from gateway.host.authenticator import Credentials

_INTERVAL_S = 1.0
_SHOWN = 128

log = structlog.get_logger(__name__)


class RefusalLog:
    """`now` gives monotonic seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._next = float("-inf")
        self._left_out = 0

    def refused(self, credentials: Credentials, error: NotAdmitted) -> None:
        """Logs the refused client, and how many more were refused since the last line."""
        if self._now() < self._next:
            self._left_out += 1
            return
        self._next = self._now() + _INTERVAL_S
        left_out, self._left_out = self._left_out, 0
        log.warning(
            "client not admitted",
            client=credentials.client[:_SHOWN],
            user=(credentials.username or "")[:_SHOWN],
            peer=credentials.peer,
            bearer=credentials.bearer,
            reason=str(error),
            others_since=left_out,
        )
