"""The home's :class:`gateway.shard.link.Link` to one HTTP request: replies wait here until they are written (R6).

Guarantees: a reply at QoS 1 or 2 is acknowledged once it is written to the HTTP response, and not before. What is no
reply to this request, or one too many, or too large, is dropped at once: the ledger has the outcome `dropped`.
Not guaranteed: what is written may be lost with the connection. What is not acknowledged when the request is over ends
with the session.
"""

import asyncio
import hmac
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from gateway.host.host_server import HostServer
from gateway.http.attaching import acknowledge
from gateway.http.reply_format import properties_of
from gateway.shard.messages import Delivery, Message
from gateway.shard.platform_marks import is_receipt
from gateway.shard.shard_home import Attached
from mqtt.codes import ReasonCode
from schemas.undecodable import UNDECODABLE

OVER = "request_over"
"""Why the session of a request ends."""

_CHUNK_BYTES = 65_536
_MESSAGE_BYTES = 512
"""Of a waiting reply, besides its payload, topic and properties."""


class Reply(NamedTuple):
    """A reply that waits to be written."""

    message: Message
    delivery: Delivery


class TooLarge(NamedTuple):
    """A reply that was dropped: its message id, and the bytes of its payload and properties."""

    message_id: str
    size: int


class _Receipt(msgspec.Struct):
    """What is read of a receipt (:mod:`schemas.receipts`)."""

    recipients: int


class ReplyLink:
    """Takes up to `most` replies with this `correlation`, None for no limit; each of at most `reply_bytes` bytes of
    payload and properties. Deliveries pause while `server.limits.write_buffer_bytes` wait. Read-only: `ended`, why the
    gateway has ended the request, None while it has not; `receivers`, how many clients have got the request, None while
    others may get it."""

    def __init__(self, server: HostServer, correlation: bytes, reply_bytes: int, most: int | None) -> None:
        self._server = server
        self._hold = server.hold
        self._correlation = correlation
        self._reply_bytes = reply_bytes
        self._left = most
        self._waiting: deque[Reply | TooLarge] = deque()
        self._waiting_bytes = 0
        self._wake = asyncio.Event()
        self._attached: Attached | None = None
        self._is_open = False
        self._is_gone = False
        self._taken = 0
        self.ended: ReasonCode | None = None
        self.receivers: int | None = None

    # -- called by the home (Link) -------------------------------------------------------------------------------------

    @property
    def writable(self) -> bool:
        return self._is_open and self._waiting_bytes < self._server.limits.write_buffer_bytes

    def deliver(self, message: Message, delivery: Delivery) -> bool:
        if not self._is_open:
            return True  # the session ends, or has yet to be opened
        size, properties = len(message.payload) + len(message.properties), properties_of(message)
        if self._is_reply(properties) and is_receipt(properties):  # no client can send it
            self._drop(delivery, "reply_receipt")
            self._take_receipt(message)
            return False
        if self._left == 0 or not self._is_reply(properties):
            self._drop(delivery, "reply_dropped")
            return False
        if size > self._reply_bytes:
            self._drop(delivery, "reply_too_large")
            self._add(TooLarge(message.id, size))
            return False
        self._left = None if self._left is None else self._left - 1
        self._add(Reply(message, delivery))
        return True

    def release(self, packet_id: int, reason: ReasonCode = ReasonCode.SUCCESS) -> None:
        """A QoS 2 reply is acknowledged: completes the exchange at once, as PUBCOMP would."""
        self._server.soon(self._complete, packet_id)

    def answer(self, qos: int, packet_id: int, reason: ReasonCode) -> None:
        """Nothing to do: the request is published by itself."""

    def complete(self, packet_id: int, reason: ReasonCode) -> None:
        """Nothing to do: the request is published by itself."""

    def disconnect(self, reason: ReasonCode) -> None:
        if self._hold.is_on:
            self._waiting.clear()
        self.ended = self.ended or reason
        self._wake.set()

    # -- the request ---------------------------------------------------------------------------------------------------

    def attach(self, attached: Attached) -> None:
        """Opens the session, or ends it if the requester has left meanwhile."""
        self._attached = attached
        if self._is_gone:
            self._detach(attached)
            return
        self._is_open = True
        attached.home.resume(attached.session, self)

    async def take(self, until: float) -> list[Reply | TooLarge]:
        """Replies that have come, a chunk of them at most; [] at `until` (the loop's clock), or once nothing waits and
        the gateway has ended the request, or there are as many replies as receivers."""
        now = asyncio.get_running_loop().time
        while True:
            is_held = self._hold.is_on
            if self._waiting and not is_held:
                return self._take_chunk()
            if self.ended is not None or self.is_complete or now() >= until:
                return []
            self._wake.clear()
            if is_held:
                self._hold.after(self._wake.set)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._wake.wait()

    def acknowledge(self, replies: Sequence[Reply | TooLarge]) -> None:
        """They are written to the response."""
        if self._attached is None:
            return
        home, session = self._attached.home, self._attached.session
        deliveries = [reply.delivery for reply in replies if isinstance(reply, Reply)]
        self._server.counts["reply_written"] += len(deliveries)
        acknowledge(home, session, deliveries)

    def leave(self) -> None:
        """The request is over: its session ends, and later replies go to nobody."""
        self._is_gone, self._is_open = True, False
        self._waiting.clear()
        if self._attached is not None:
            self._detach(self._attached)

    def _detach(self, attached: Attached) -> None:
        attached.home.detach(attached.session, self, send_will=False, reason=OVER)

    @property
    def is_complete(self) -> bool:
        """Whether as many replies were taken as clients have got the request."""
        return self.receivers is not None and self._taken >= self.receivers

    def _take_receipt(self, message: Message) -> None:
        with suppress(*UNDECODABLE):
            self.receivers = msgspec.json.decode(message.payload, type=_Receipt).recipients
            self._wake.set()

    def _is_reply(self, properties: dict[str, Any]) -> bool:
        correlation = properties.get("correlation_data")
        return correlation is not None and hmac.compare_digest(correlation, self._correlation)

    def _drop(self, delivery: Delivery, count: str) -> None:
        """The session is done with it, soon: before whoever waits here goes on, who may end the session."""
        self._server.counts[count] += 1
        if delivery.qos and self._attached is not None:
            self._server.soon(self._attached.home.undeliverable, self._attached.session, delivery)

    def _add(self, reply: Reply | TooLarge) -> None:
        self._waiting.append(reply)
        self._waiting_bytes += _size(reply)
        self._wake.set()

    def _take_chunk(self) -> list[Reply | TooLarge]:
        was_writable, taken, size = self.writable, list[Reply | TooLarge](), 0
        while self._waiting and size < _CHUNK_BYTES:
            reply = self._waiting.popleft()
            size += _size(reply)
            taken.append(reply)
            self._taken += isinstance(reply, Reply)
        self._waiting_bytes -= size
        if self._attached is not None and not was_writable and self.writable:
            self._attached.home.writable(self._attached.session, self)
        return taken

    def _complete(self, packet_id: int) -> None:
        if self._attached is not None:
            self._attached.home.completed(self._attached.session, packet_id)
            self._attached.home.flush()


def _size(reply: Reply | TooLarge) -> int:
    """About as many bytes as a reply takes while it waits."""
    if isinstance(reply, TooLarge):
        return _MESSAGE_BYTES
    message = reply.message
    return len(message.payload) + len(message.properties) + len(message.topic) + _MESSAGE_BYTES
