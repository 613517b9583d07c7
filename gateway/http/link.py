"""The home's :class:`gateway.home.link.Link` to one event stream: what it delivers waits here to be written."""

import asyncio
from collections import deque
from typing import NamedTuple, Protocol

from gateway.home.home import LOST_CONNECTING, Attached
from gateway.home.messages import Entry, Message
from gateway.host.ends import STREAM_CLOSED, STREAM_STALLED
from gateway.host.server import HostServer
from gateway.http.events import EventId, comment, end_event, message_event
from gateway.http.window import StreamWindow
from mqtt.codes import ReasonCode

_CHUNK_BYTES = 65_536


class Out(Protocol):
    """Where events are written to; raises ConnectionError once the client has gone."""

    async def write(self, data: bytes) -> None: ...


class Pace(NamedTuple):
    """Seconds; `until` by the loop's clock, None for no end."""

    heartbeat_s: float
    write_timeout_s: float
    until: float | None


class _Waiting(NamedTuple):
    message: Message
    qos: int
    retain: bool
    event_id: EventId | None


class StreamLink:
    """Delivers to one stream, once it is open. With `acknowledges` an event is acknowledged when it is written: it may
    be lost with the connection. Otherwise its client acknowledges, and the stream waits at `most` open events."""

    def __init__(self, server: HostServer, high_mark: int, most: int, acknowledges: bool) -> None:
        self._home = server.home
        self._clock = server.clock
        self._high_mark = high_mark
        self._most = most
        self._acknowledges = acknowledges
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._wake = asyncio.Event()
        self._attached: Attached | None = None
        self._window = StreamWindow()
        self._is_open = False
        self._is_gone = False
        self._ended: ReasonCode | None = None
        self._reason = STREAM_CLOSED

    # -- the home calls (Link) -----------------------------------------------------------------------------------------

    @property
    def writable(self) -> bool:
        return self._is_open and self._waiting_bytes < self._high_mark

    def deliver(self, message: Message, entry: Entry) -> bool:
        if not self._is_open:
            return True  # taken for sending on an earlier stream: `open` has it sent again
        event_id = self._window.sent(entry) if entry.qos else None
        self._waiting.append(_Waiting(message, entry.qos, entry.retain, event_id))
        self._waiting_bytes += len(message.payload)
        self._wake.set()
        return True

    def release(self, packet_id: int, reason: ReasonCode = ReasonCode.SUCCESS) -> None:
        """Whoever acknowledges an event of QoS 2 has it for good: PUBCOMP follows at once."""
        if self._attached is not None:
            asyncio.get_running_loop().call_soon(self._complete, packet_id)

    def answer(self, qos: int, packet_id: int, reason: ReasonCode) -> None:
        """A stream does not publish."""

    def complete(self, packet_id: int, reason: ReasonCode) -> None:
        """A stream does not publish."""

    def disconnect(self, reason: ReasonCode) -> None:
        self._ended = reason
        self._wake.set()

    # -- the stream ----------------------------------------------------------------------------------------------------

    def attach(self, attached: Attached) -> None:
        """The session is this link's; if the client has gone meanwhile, no longer."""
        self._attached = attached
        if self._is_gone:
            self._home.detach(attached.session, self, send_will=False, reason=LOST_CONNECTING)

    def open(self, window: StreamWindow) -> None:
        """Deliveries begin: what was sent by an earlier stream comes again."""
        assert self._attached is not None
        self._window = window
        window.clear()
        self._is_open = True
        self._home.resume(self._attached.session, self)

    async def write_to(self, out: Out, pace: Pace) -> None:
        """Writes events until the gateway ends the stream or its time is over."""
        now = asyncio.get_running_loop().time
        try:
            while True:
                if self._waiting:
                    await self._write_some(out, pace)
                elif self._ended is not None:
                    await _write(out, end_event(self._ended.name.lower()), pace)
                    return
                elif pace.until is not None and now() >= pace.until:
                    return
                else:
                    left_s = pace.heartbeat_s if pace.until is None else pace.until - now()
                    await self._wait(out, pace, min(pace.heartbeat_s, left_s))
        except TimeoutError:
            self._reason = STREAM_STALLED
            raise

    def leave(self, *, is_refused: bool) -> str:
        """The stream is over, or was refused: then a session that was made for it ends. Says why."""
        self._is_gone, self._is_open = True, False
        reason = self._reason if self._ended is None else self._ended.name.lower()
        if self._attached is not None:
            self._home.detach(
                self._attached.session,
                self,
                send_will=reason != STREAM_CLOSED,
                reason=reason,
                expiry_s=0 if is_refused and not self._attached.present else None,
            )
        return reason

    async def _write_some(self, out: Out, pace: Pace) -> None:
        chunk, was_writable, last = bytearray(), self.writable, None
        now = self._clock()
        while self._waiting and len(chunk) < _CHUNK_BYTES:
            message, qos, retain, event_id = self._waiting.popleft()
            self._waiting_bytes -= len(message.payload)
            chunk += message_event(message, qos, retain, event_id, now)
            last = event_id or last
        await _write(out, bytes(chunk), pace)
        if self._attached is None:
            return
        if self._acknowledges and last is not None:
            self._window.acknowledge(self._home, self._attached.session, last.number)
        if not was_writable and self.writable:
            self._home.writable(self._attached.session, self)

    async def _wait(self, out: Out, pace: Pace, seconds: float) -> None:
        """For something to write; a comment if there is nothing."""
        self._wake.clear()
        try:
            await asyncio.wait_for(self._wake.wait(), seconds)
        except TimeoutError:
            is_full = len(self._window) >= self._most
            text = f"{len(self._window)} events are not acknowledged: waiting" if is_full else "nothing new"
            await _write(out, comment(text), pace)

    def _complete(self, packet_id: int) -> None:
        if self._attached is not None:
            self._home.completed(self._attached.session, packet_id)
            self._home.flush()


async def _write(out: Out, data: bytes, pace: Pace) -> None:
    """Raises TimeoutError if the client takes nothing for too long, ConnectionError if it has gone."""
    async with asyncio.timeout(pace.write_timeout_s):
        await out.write(data)
