"""Feeds the bearer from the outbox: a window of messages in memory, the others stay on disk (M2).

A message that is published while nothing else waits goes to the bearer at once: its row and its packet id are
committed together. Otherwise it waits on disk, and windows are loaded in order of sequence, so order is kept. The
bearer is filled up whenever it is half empty: one commit assigns packet ids to many messages, and the bearer sends
them, as fast as the gateway acknowledges, without waiting for the disk.

A message with a packet id that may have been sent never expires: its outcome is the gateway's answer. Others expire,
also those at the bearer that no connection has sent yet.
"""

import asyncio
import weakref
from collections import deque
from collections.abc import Callable
from typing import Final

from edge.client.bearer_client import BearerClient
from edge.client.errors import Expired
from edge.client.in_flight import InFlight
from edge.client.limits import Limits
from edge.client.message import Message, MessageState
from edge.client.options import remaining_properties
from edge.client.outbox import Outbox
from edge.client.store import EXPIRED_MAX, StoredMessage
from edge.errors import MqttClientError, PublishRefused
from mqtt.client_events import Published
from mqtt.codes import ReasonCode
from mqtt.errors import ProtocolError, QueueFullError, ServerLimitError

_FAILURE: Final = ReasonCode.UNSPECIFIED_ERROR

OnFailed = Callable[[Message, Exception], None]


class Sending:
    """`on_failed` is called for each message that is refused or expires, also for those of earlier processes. What
    it raises goes to the loop's exception handler."""

    def __init__(self, outbox: Outbox, bearer: BearerClient, limits: Limits, on_failed: OnFailed | None) -> None:
        self._outbox, self._bearer, self._limits = outbox, bearer, limits
        self._on_failed = on_failed
        self._loaded: deque[StoredMessage] = deque()
        self._loaded_bytes = 0
        self._position = 0  # sequence of the last message that was loaded or sent
        self._loading: asyncio.Task[None] | None = None
        self._reading = asyncio.Lock()
        self._messages: weakref.WeakValueDictionary[int, Message] = weakref.WeakValueDictionary()
        self._drained: set[asyncio.Future[None]] = set()

    # -- the application's part ----------------------------------------------------------------------------------------

    def offer(self, stored: StoredMessage) -> Message:
        """A new message; it is sent at once if nothing waits before it."""
        message = self._messages[stored.sequence] = Message(stored.sequence, stored.topic, stored.qos)
        if self._bearer.is_connected:
            is_next = self._outbox.waiting == 1 and not self._loaded
            if is_next and self._has_capacity(stored) and self._send(stored):
                self._position = stored.sequence
            else:
                self.pump()
        return message

    async def drained(self) -> None:
        """Returns once every message has ended."""
        while self._outbox.messages:
            change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._drained.add(change)
            try:
                await change
            finally:
                self._drained.discard(change)

    def refused(self, sequences: set[int]) -> None:
        """The disk has no space for these messages. Those that are at the bearer are taken out of it; their bytes were
        held back, and with the connection they are gone."""
        in_flight = self._bearer.in_flight.by_id
        packet_ids = [packet_id for packet_id, message in in_flight.items() if message.sequence in sequences]
        if packet_ids:
            self._bearer.abort()
        for packet_id in packet_ids:
            self._bearer.remove(packet_id)
            del in_flight[packet_id]
        self._look_if_drained()

    def fail(self, error: Exception) -> None:
        """No message will be sent any more: whoever waits gets `error`."""
        for message in list(self._messages.values()):
            if message.state is MessageState.ACCEPTED:
                message.ended(MessageState.ACCEPTED, error)
        for change in self._drained:
            if not change.done():
                change.set_exception(error)

    async def stop(self) -> None:
        """Loads nothing more."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait([self._loading])

    # -- the connection's part -----------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Fills the bearer up if it is half empty."""
        if not self._bearer.is_connected or not self._outbox.waiting:
            return
        held = self._bearer.held
        if self._loaded and held <= self._limits.window_messages // 2:
            while self._loaded and self._has_capacity(self._loaded[0]) and self._bearer.is_connected:
                if not self._send(self._loaded[0]):
                    break
                self._loaded_bytes -= self._loaded.popleft().size
        if self._outbox.waiting > len(self._loaded) and self._is_half_empty() and self._loading is None:
            self._loading = asyncio.create_task(self._load())
            self._loading.add_done_callback(self._load_ended)

    def published(self, event: Published) -> None:
        """The exchange of a message has ended."""
        message = self._bearer.in_flight.ended(event)
        if message is not None:
            refused = event.reason_code >= _FAILURE
            error = PublishRefused(event.reason_code, event.properties) if refused else None
            self._ended(message, MessageState.REFUSED if refused else MessageState.ACKNOWLEDGED, error)
        self.pump()

    def disconnected(self) -> None:
        """The connection has ended: what was loaded waits on disk."""
        if self._loaded:
            self._position = self._loaded[0].sequence - 1
            self._loaded.clear()
            self._loaded_bytes = 0

    # -- expiry --------------------------------------------------------------------------------------------------------

    async def expire(self) -> None:
        """Ends the messages whose lifetime is over; see the module for which."""
        now_s, bearer = self._outbox.now_s, self._bearer
        if not bearer.is_connected:
            for packet_id, message in list(bearer.in_flight.by_id.items()):
                if message.expires_s <= now_s and not bearer.may_be_sent(packet_id):
                    bearer.remove(packet_id)
                    bearer.in_flight.forget(packet_id)
                    self._expired(message)
        async with self._reading:
            while due := await self._outbox.expired():
                # One that is loaded expires when it is its turn.
                unloaded = [row for row in due if row.sequence > self._position]
                for row in unloaded:
                    self._outbox.remove(row.sequence, row.size, waiting=True, urgent=True)
                    self._expired(InFlight(row.sequence, row.topic, row.qos, row.size, now_s))
                if len(due) < EXPIRED_MAX or not unloaded:
                    break
            await self._outbox.find_next_expiry()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _has_capacity(self, stored: StoredMessage) -> bool:
        return self._bearer.has_capacity(len(stored.payload))

    def _is_half_empty(self) -> bool:
        """Whether half of a window may be loaded, in messages and in bytes: large messages fill it early."""
        limits = self._limits
        return len(self._loaded) <= limits.window_messages // 2 and self._loaded_bytes <= limits.window_bytes // 2

    async def _load(self) -> None:
        """The next window. Reads what is committed, so a message is never loaded before it is durable."""
        async with self._reading:
            after = self._position
            found = await self._outbox.load(after, self._limits.window_messages, self._limits.window_bytes)
            if self._position == after and self._bearer.is_connected and found:
                self._loaded.extend(found)
                self._loaded_bytes += sum(message.size for message in found)
                self._position = found[-1].sequence

    def _load_ended(self, task: asyncio.Task[None]) -> None:
        self._loading = None
        if not task.cancelled() and task.exception() is None:
            self.pump()

    def _send(self, stored: StoredMessage) -> bool:
        """Hands a message to the bearer, or ends it; False if it cannot be sent now."""
        now_s = self._outbox.now_s
        message = InFlight(stored.sequence, stored.topic, stored.qos, stored.size, stored.expires_s)
        if stored.expires_s <= now_s:
            self._outbox.remove(stored.sequence, stored.size, waiting=True)
            self._expired(message)
            return True
        properties = remaining_properties(stored.properties, stored.expires_s - now_s)
        try:
            packet_id = self._bearer.send(stored, properties)
        except (QueueFullError, MqttClientError):
            return False
        except ProtocolError as error:
            self._outbox.remove(stored.sequence, stored.size, waiting=True)
            reason = error.reason if isinstance(error, ServerLimitError) else _FAILURE
            self._ended(message, MessageState.REFUSED, PublishRefused(reason, {"reason_string": str(error)}))
            return True
        if packet_id:
            self._bearer.in_flight.assigned(packet_id, message)
        else:  # QoS 0: it is off the disk before it is sent, so it is never sent twice
            self._outbox.remove(stored.sequence, stored.size, waiting=True, urgent=True)
            self._ended(message, MessageState.ACKNOWLEDGED, None)
        return True

    def _expired(self, message: InFlight) -> None:
        self._ended(message, MessageState.EXPIRED, Expired(f"the message to {message.topic!r} was not sent in time"))

    def _ended(self, row: InFlight, state: MessageState, error: Exception | None) -> None:
        message = self._messages.pop(row.sequence, None)
        if error is not None and self._on_failed is not None:
            message = message or Message(row.sequence, row.topic, row.qos)
            message.ended(state, error)
            try:
                self._on_failed(message, error)
            except Exception as fault:  # the application's: the bearer has more to report, and goes on
                context = {"message": f"on_failed has raised an error for {message}", "exception": fault}
                asyncio.get_running_loop().call_exception_handler(context)
        elif message is not None:
            message.ended(state, error)
        self._look_if_drained()

    def _look_if_drained(self) -> None:
        if not self._outbox.messages:
            for change in self._drained:
                if not change.done():
                    change.set_result(None)
