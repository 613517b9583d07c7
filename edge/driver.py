"""Drives one network connection: moves bytes between a link and the protocol core, and runs the core's timers."""

import asyncio
from collections.abc import Callable

from edge.link import Link
from mqtt.client_connection import ClientConnection
from mqtt.client_events import EndedBy, Event


class Driver:
    """Receives from a :class:`edge.link.Link`; calls `handle` with the core's events. `handle` may call the driver."""

    connection: ClientConnection

    def __init__(self, handle: Callable[[list[Event]], None]) -> None:
        self._handle = handle
        self._loop = asyncio.get_running_loop()
        self._link: Link | None = None
        self._early: bytes | None = b""  # bytes from the server before `begin`; None afterwards
        self._timer: asyncio.TimerHandle | None = None
        self._is_flush_due = False
        self._is_reading_paused = False
        self._writable: asyncio.Future[None] | None = None

    @property
    def now(self) -> float:
        """The current time of the core, in seconds."""
        return self._loop.time()

    def begin(self, link: Link, connection: ClientConnection) -> None:
        """Starts `connection`, which has a CONNECT to send, over `link`."""
        self._link, self.connection = link, connection
        self.flush()
        self.set_timer()
        early, self._early = self._early, None
        if early:
            self.data_received(early)
        if link.ended.done():
            self.link_lost(None)

    # -- output and time -----------------------------------------------------------------------------------------------

    def flush_soon(self) -> None:
        """Writes at the end of this loop iteration, so that several packets go out together."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Writes what the core has to send; closes the link if the connection has ended."""
        self._is_flush_due = False
        data, link = self.connection.outgoing(), self._link
        if link is None:
            return
        if data:
            link.write(data)
        if self.connection.closed is not None:
            self._end()
            # After our DISCONNECT the server may still have to read messages; otherwise nobody reads any more.
            link.close(lingers=self.connection.closed.by is EndedBy.CLIENT)

    def set_timer(self) -> None:
        """Schedules a call at the core's deadline; the core may have postponed it by then."""
        if self._timer is not None:
            self._timer.cancel()
        deadline = self.connection.deadline()
        self._timer = None if deadline is None else self._loop.call_at(deadline, self._tick)

    async def drain(self) -> None:
        """Returns once the network accepts more data, or the connection has ended."""
        while self._writable is not None:
            await asyncio.shield(self._writable)

    def pause_reading(self, is_paused: bool) -> None:
        """Pauses or resumes reading from the server."""
        if self._link is not None and is_paused is not self._is_reading_paused:
            self._is_reading_paused = is_paused
            (self._link.pause_reading if is_paused else self._link.resume_reading)()

    async def move(self) -> None:
        """Goes on over a new socket if the bearer can."""
        if self._link is not None:
            await self._link.move()

    def abort(self) -> None:
        """Breaks the connection at once."""
        link = self._link
        self.link_lost(None)
        if link is not None:
            link.abort()

    async def ended(self) -> None:
        """Returns once the link is closed."""
        link = self._link
        self.flush()
        if link is not None:
            await asyncio.shield(link.ended)

    # -- edge.link.Receiver --------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._early is not None:
            self._early += data
            return
        events = self.connection.receive(data, self._loop.time())
        if events:
            self._handle(events)
        self.flush()

    def link_lost(self, error: Exception | None) -> None:
        if self._link is not None:
            self._end()
            self._handle(self.connection.eof())

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

    # -- inside --------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._handle(self.connection.tick(self._loop.time()))
        self.flush()
        self.set_timer()

    def _end(self) -> None:
        self._link = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.resume_writing()
