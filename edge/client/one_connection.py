"""What bearers without an MQTT connection have in common: one connection at a time, and how the last one ended."""

from typing import Final

from edge.answers import Changes
from edge.client.bearer_client import BearerHooks
from mqtt.client_events import Closed, EndedBy
from mqtt.codes import ReasonCode

NO_CONNECTION: Final = Closed(ReasonCode.UNSPECIFIED_ERROR, "there is no connection", EndedBy.TRANSPORT)


class OneConnection:
    """A part of :class:`edge.client.bearer_client.BearerClient`. Subclasses call `_opened` and `_lost`, and give up in
    `_release` what belongs to a connection."""

    def __init__(self, hooks: BearerHooks) -> None:
        self._hooks, self._changes = hooks, Changes()
        self._closed: Closed | None = NO_CONNECTION

    @property
    def is_connected(self) -> bool:
        return self._closed is None

    async def wait_closed(self) -> Closed:
        await self._changes.until(lambda: self._closed is not None)
        assert self._closed is not None
        return self._closed

    def abort(self) -> None:
        self._lost(Closed(ReasonCode.UNSPECIFIED_ERROR, "the client has broken the connection", EndedBy.CLIENT))

    def _opened(self) -> None:
        """The other side has accepted a connection."""
        self._closed = None

    def _lost(self, closed: Closed) -> None:
        """The connection has ended; what is said of it a second time changes nothing."""
        if self._closed is not None:
            return
        self._closed = closed
        self._release()
        self._hooks.on_closed()
        self._changes.wake()

    def _release(self) -> None:
        """Gives up what belongs to the connection that has ended."""
