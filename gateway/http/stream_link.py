"""The home's :class:`gateway.shard.link.Link` to one event stream: deliveries wait here to be written."""

import asyncio
from collections import deque
from typing import NamedTuple, Protocol

from gateway.host.close_reasons import STREAM_CLOSED, STREAM_STALLED
from gateway.host.host_server import HostServer
from gateway.http.event_window import StreamWindow
from gateway.http.stream_events import EventId, comment, end_event, message_event
from gateway.shard.arrivals import LOST_CONNECTING
from gateway.shard.messages import Delivery, Message
from gateway.shard.shard_home import Attached
from mqtt.codes import ReasonCode

_CHUNK_BYTES = 65_536
_MESSAGE_BYTES = 512
"""Of a waiting message, besides its payload, topic and properties."""


class Out(Protocol):
    """Where events are written; raises ConnectionError once the client has left."""

    async def write(self, data: bytes) -> None: ...


class Pace(NamedTuple):
    """Times in seconds; `until` by the loop's clock, None for no end."""

    heartbeat_s: float
    write_timeout_s: float
    until: float | None


class _Waiting(NamedTuple):
    message: Message
    qos: int
    retain: bool
    event_id: EventId | None


class StreamLink:
    """Delivers to one stream, once it is open. With `acknowledges`, an event is acknowledged when it is written, so it
    may be lost with the connection. Otherwise the client acknowledges, and the stream pauses at `most` unacknowledged
    events."""

    def __init__(self, server: HostServer, high_mark: int, most: int, acknowledges: bool) -> None:
        self._clock = server.clock
        self._hold = server.hold
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

    # -- called by the home (Link) -------------------------------------------------------------------------------------

    @property
    def writable(self) -> bool:
        return self._is_open and self._waiting_bytes < self._high_mark

    def deliver(self, message: Message, delivery: Delivery) -> bool:
        if not self._is_open:
            return True  # in flight since an earlier stream: `open` has it sent again
        event_id = self._window.sent(delivery) if delivery.qos else None
        self._waiting.append(_Waiting(message, delivery.qos, delivery.retain, event_id))
        self._waiting_bytes += _size(message)
        self._wake.set()
        return True

    def release(self, packet_id: int, reason: ReasonCode = ReasonCode.SUCCESS) -> None:
        """The client has acknowledged a QoS 2 event: completes the exchange at once, as PUBCOMP would."""
        if self._attached is not None:
            asyncio.get_running_loop().call_soon(self._complete, packet_id)

    def answer(self, qos: int, packet_id: int, reason: ReasonCode) -> None:
        """Nothing to do: a stream does not publish."""

    def complete(self, packet_id: int, reason: ReasonCode) -> None:
        """Nothing to do: a stream does not publish."""

    def disconnect(self, reason: ReasonCode) -> None:
        if self._hold.is_on:
            self._waiting.clear()
        self._ended = reason
        self._wake.set()

    # -- the stream ----------------------------------------------------------------------------------------------------

    def attach(self, attached: Attached) -> None:
        """Takes over the session; if the client has left meanwhile, detaches it again."""
        self._attached = attached
        if self._is_gone:
            attached.home.detach(attached.session, self, send_will=False, reason=LOST_CONNECTING)

    def open(self, window: StreamWindow) -> None:
        """Starts deliveries, first those that an earlier stream sent and nobody acknowledged."""
        assert self._attached is not None
        self._window = window
        window.clear()
        self._is_open = True
        self._attached.home.resume(self._attached.session, self)

    async def write_to(self, out: Out, pace: Pace) -> None:
        """Writes events until the gateway ends the stream or its time limit is reached."""
        now = asyncio.get_running_loop().time
        try:
            while True:
                is_held, is_over = self._hold.is_on, pace.until is not None and now() >= pace.until
                if is_held:
                    self._hold.after(self._wake.set)
                if is_over:
                    self._is_open = False  # it takes nothing more: what waits is written
                if self._waiting and not is_held:
                    await self._write_some(out, pace)
                elif self._ended is not None:
                    await _write(out, end_event(self._ended.name.lower()), pace)
                    return
                elif is_over:
                    return
                else:
                    left_s = pace.heartbeat_s if pace.until is None else pace.until - now()
                    await self._wait(out, pace, min(pace.heartbeat_s, left_s))
        except TimeoutError:
            self._reason = STREAM_STALLED
            raise

    def leave(self, *, is_refused: bool) -> str:
        """Ends the stream; returns the reason. If the stream was refused, a session created for it ends too."""
        self._is_gone, self._is_open = True, False
        reason = self._reason if self._ended is None else self._ended.name.lower()
        if self._attached is not None:
            self._attached.home.detach(
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
            self._waiting_bytes -= _size(message)
            chunk += message_event(message, qos, retain, event_id, now)
            last = event_id or last
        await _write(out, bytes(chunk), pace)
        if self._attached is None:
            return
        if self._acknowledges and last is not None:
            self._window.acknowledge(self._attached.home, self._attached.session, last.number)
        if not was_writable and self.writable:
            self._attached.home.writable(self._attached.session, self)

    async def _wait(self, out: Out, pace: Pace, seconds: float) -> None:
        """Waits for something to write; writes a comment if nothing comes."""
        self._wake.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            is_full = len(self._window) >= self._most
            text = f"waiting: {len(self._window)} events are not acknowledged" if is_full else "nothing new"
            await _write(out, comment(text), pace)

    def _complete(self, packet_id: int) -> None:
        if self._attached is not None:
            self._attached.home.completed(self._attached.session, packet_id)
            self._attached.home.flush()


async def _write(out: Out, data: bytes, pace: Pace) -> None:
    """Raises TimeoutError if the client does not read for too long, ConnectionError if it has left."""
    async with asyncio.timeout(pace.write_timeout_s):
        await out.write(data)


def _size(message: Message) -> int:
    """About as many bytes as a message takes while it waits."""
    return len(message.payload) + len(message.topic) + len(message.properties) + _MESSAGE_BYTES
