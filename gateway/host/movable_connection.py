"""A connection over TCP whose socket can go to another gateway of the machine: how its state is taken (R5).

Only connections over plain TCP move. The state of TLS and of QUIC is in their libraries; a relayed client's socket is
at another gateway.
"""

import os
import socket
from typing import Protocol, cast

from gateway.host.close_reasons import MOVED
from gateway.host.connection import Transport
from gateway.host.host_connection import HostConnection
from gateway.host.moved_records import ClientState
from gateway.shard.session_state import export as export_session
from mqtt.connection_state import NO_ALIASES


class MovableTransport(Transport, Protocol):
    """What carries the bytes of a connection that may move."""

    @property
    def is_plain(self) -> bool:
        """Whether the socket has the client's bytes as they are, and is open."""
        ...

    @property
    def unwritten(self) -> int:
        """Bytes that the system has not taken yet."""
        ...

    @property
    def fileno(self) -> int:
        """The descriptor of the socket. Raises OSError if there is none any more."""
        ...

    def release(self) -> None:
        """Another process has the socket: only this descriptor of it is closed."""
        ...


class MovableConnection(HostConnection):
    """A connection whose transport is a :class:`MovableTransport`."""

    @property
    def may_move(self) -> bool:
        """Whether its transport can go to another gateway."""
        return self._transport.refuse is None and self._carrier.is_plain

    @property
    def is_quiet(self) -> bool:
        """Whether no answer is due to the client, and all that was written is with the system."""
        if self.awaits_kafka or self._attached is None or self._attached.session.sending:
            return False
        self.flush()
        return not self._carrier.unwritten

    def export(self, now: float) -> ClientState | None:
        """The state of a connection that is quiet, and is not read any more; None if it cannot go on elsewhere
        exactly."""
        attached, transport, aliases = self._attached, self._transport, self._encoder.aliases
        if attached is None or self._is_over() or self._waiting or not self.is_quiet:
            return None
        of_session = export_session(attached.session)
        of_core = self._core.export(attached.session.client, now)
        if of_session is None or of_core is None:
            return None
        return ClientState(
            of_core,
            NO_ALIASES if aliases is None else aliases.state(),
            of_session,
            attached.session.rules.user,
            self._until,
            transport.peer,
            transport.uses_tls,
            transport.certificate,
        )

    def duplicate(self) -> socket.socket | None:
        """Another descriptor of the client's socket; None if there are no more descriptors."""
        try:
            return socket.socket(fileno=os.dup(self._carrier.fileno))
        except OSError:
            return None

    def moved_away(self) -> None:
        """It goes on at another gateway, which has its socket: here it is over, and the client notices nothing."""
        self._gone = True
        if self._rate_limit is not None:
            self._rate_limit.end()
        self._server.gone(self, MOVED)
        self._server.paused.discard(self)
        self._carrier.release()

    @property
    def _carrier(self) -> MovableTransport:
        return cast(MovableTransport, self._transport)
