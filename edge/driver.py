"""Drives one network connection: moves bytes between a link and the protocol core, and runs the core's timers.

With a `journal` it writes nothing that depends on a change which is not durable yet (:mod:`mqtt.client_session`): it
calls the journal for each block of bytes, and holds the block, and all after it, until the journal's future is done.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from edge.link import Link, text_of
from edge.tcp_progress import Progress
from edge.unread_answers import UnreadAnswers
from mqtt.client_connection import ClientConnection
from mqtt.client_events import EndedBy, Event

Journal: TypeAlias = Callable[[], asyncio.Future[None] | None]
"""Records how the session has changed since the last call. None: nothing has to be waited for; else a future that is
done once the changes are durable, or that fails: then the bytes are not written and the connection is broken."""


class Driver:
    """Receives from a :class:`edge.link.Link`; calls `handle` with the core's events. `handle` may call the driver.
    `on_writable` is called with False when much is written that the network has not accepted, and then with True when
    it accepts more."""

    connection: ClientConnection

    def __init__(
        self,
        handle: Callable[[list[Event]], None],
        journal: Journal | None = None,
        on_writable: Callable[[bool], None] | None = None,
    ) -> None:
        self._handle, self._journal, self._on_writable = handle, journal, on_writable
        self._held: deque[tuple[bytes, asyncio.Future[None] | None]] = deque()
        self._held_bytes = 0
        self._unread = UnreadAnswers()
        self._loop = asyncio.get_running_loop()
        self._link: Link | None = None
        self._early: bytes | None = b""  # bytes from the server before `begin`; None afterwards
        self._timer: asyncio.TimerHandle | None = None
        self._is_flush_due = False
        self._is_reading_paused = False
        self._writable: asyncio.Future[None] | None = None
        self._progress = Progress(0, 0)  # of the link, at the last tick

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
        durable = self._journal() if self._journal is not None else None  # also of what is accepted after the end
        if link is None:
            return
        if durable is not None or self._held:
            self._held.append((data, durable))
            self._held_bytes += len(data)
            if durable is not None:
                durable.add_done_callback(self._release)
        else:
            self._write(link, data)
        if self._held or self._writable is not None:
            self._check_unread(link)

    def _release(self, _: asyncio.Future[None]) -> None:
        """Writes what was held for changes that are durable now."""
        while self._held and (link := self._link) is not None:
            data, durable = self._held[0]
            if durable is not None and not durable.done():
                return
            if durable is not None and (durable.cancelled() or durable.exception() is not None):
                self.abort()
                return
            self._held.popleft()
            self._held_bytes -= len(data)
            self._write(link, data)

    def _write(self, link: Link, data: bytes) -> None:
        if data:
            link.write(data)
        if self.connection.closed is not None and not self._held:
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
            self._handle(self.connection.eof("" if error is None else text_of(error)))

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()
        if self._on_writable is not None:
            self._on_writable(False)

    def resume_writing(self) -> None:
        self._wake_writers()
        if self._on_writable is not None and self._link is not None:
            self._on_writable(True)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        now = self._loop.time()
        if self._has_progressed():
            self.connection.receive(b"", now)  # as good as an answer
        self._handle(self.connection.tick(now))
        self.flush()
        self.set_timer()

    def _has_progressed(self) -> bool:
        """Whether the server has taken some of what waited for it at the last tick: it lives, although it cannot answer
        yet a ping that stands behind a large message."""
        if self._link is None:
            return False
        before, self._progress = self._progress, self._link.progress
        return self._progress.has_gone_on_since(before)

    def _check_unread(self, link: Link) -> None:
        """Ends the connection if the server asks for more and more answers and reads none."""
        written, waiting = link.written + self._held_bytes, link.unsent + self._held_bytes
        events = self.connection.unread(self._unread.count(written, self.connection.answered, waiting))
        if events:
            self._handle(events)
            self.abort()  # a DISCONNECT would not be read either

    def _end(self) -> None:
        self._link = None
        self._held.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake_writers()

    def _wake_writers(self) -> None:
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None
