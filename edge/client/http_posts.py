"""Sends messages over HTTP: several requests at a time, those to one topic one after the other (R8, Q1, G13).

A message's key is its incarnation and its sequence, so it is the same in every attempt of every process: the
gateway stores the message once, however often its answer is lost. Requests on several connections overtake each other;
therefore a topic's next message is sent when the one before has ended, unless the application wants no order.

A message that the gateway does not accept *now* (429, 503) is sent again after the pause it asks for, until its
lifetime has ended. A request that fails otherwise is sent once more, because a server may close an idle connection at
that moment; if that fails too, the connection has ended.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from edge.answers import Changes
from edge.client.http_answers import Answer, Refused, Stored, TryAgain, judge_published, publish_request
from edge.client.limits import Limits
from edge.client.options import EXPIRY
from edge.client.outbox import Outbox
from edge.client.sending_window import SendingWindow
from edge.client.store import StoredMessage
from edge.errors import AnswerFault
from edge.reconnect import FullJitter
from mqtt.client_events import Published
from mqtt.packets import Publish
from schemas.identity import derived_message_id

Post = Callable[[str, list[tuple[str, str]], bytes], Awaitable[Answer]]


class _Waiting(msgspec.Struct, eq=False):
    """A message in its queue: its topic's, or one of its own if no order is kept. `attempts` that failed on the present
    connection, and `refusals` by which it is to wait."""

    packet_id: int
    sequence: int
    queue: str
    attempts: int = 0
    refusals: int = 0


class HttpPosts:
    """`on_published` is called when a message has ended, `on_lost` once when the connection cannot go on."""

    def __init__(
        self,
        outbox: Outbox,
        limits: Limits,
        window: SendingWindow,
        backoff: FullJitter,
        in_order: bool,
        on_published: Callable[[Published], None],
        on_lost: Callable[[Exception], None],
    ) -> None:
        self._outbox, self._limits, self._backoff = outbox, limits, backoff
        self._in_order = in_order
        self._on_published, self._on_lost = on_published, on_lost
        self._window = window
        self._waiting: dict[int, _Waiting] = {}
        self._queues: dict[str, deque[_Waiting]] = {}
        self._ready: deque[_Waiting] = deque()  # the first of their queues
        self._changes = Changes()
        self._workers: list[asyncio.Task[None]] = []
        self._timers: dict[int, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._window)

    def has_capacity(self, payload_bytes: int) -> bool:
        """See :meth:`SendingWindow.has_capacity`."""
        return self._window.has_capacity(payload_bytes)

    def restore(self, messages: Iterable[StoredMessage]) -> None:
        """Messages that an earlier process may have sent, in order."""
        for message in messages:
            self._window.restore([message])
            self._enqueue(message.packet_id, message)

    def add(self, message: StoredMessage) -> int:
        """Takes a new message; its packet id. Raises QueueFullError."""
        packet_id = self._window.add(message)
        self._enqueue(packet_id, message)
        return packet_id

    def may_be_sent(self, packet_id: int) -> bool:
        """Whether a request with it may have been written."""
        return self._window.may_be_sent(packet_id)

    def remove(self, packet_id: int) -> None:
        """Forgets a message; the next one of its queue is ready."""
        self._window.remove(packet_id)
        waiting = self._waiting.pop(packet_id)
        if (timer := self._timers.pop(packet_id, None)) is not None:
            timer.cancel()
        queue = self._queues[waiting.queue]
        was_first = queue[0] is waiting
        queue.remove(waiting)
        if not queue:
            del self._queues[waiting.queue]
        elif was_first:
            self._make_ready(queue[0])

    def start(self, client_id: str, post: Post) -> None:
        """A connection has begun: sends the first message of each queue, the oldest first. `client_id`: by which the
        gateway knows this client."""
        self._ready = deque(sorted((queue[0] for queue in self._queues.values()), key=lambda one: one.sequence))
        for waiting in self._waiting.values():
            waiting.attempts = 0
        self._workers = [asyncio.create_task(self._work(client_id, post)) for _ in range(self._limits.http_connections)]

    def stop(self) -> None:
        """The connection has ended."""
        workers, self._workers = self._workers, []
        for worker in workers:
            if worker is not asyncio.current_task():
                worker.cancel()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._ready.clear()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _enqueue(self, packet_id: int, message: StoredMessage) -> None:
        name = message.topic if self._in_order else f"{packet_id}"
        waiting = self._waiting[packet_id] = _Waiting(packet_id, message.sequence, name)
        queue = self._queues.setdefault(name, deque())
        queue.append(waiting)
        if len(queue) == 1:
            self._make_ready(waiting)

    def _make_ready(self, waiting: _Waiting) -> None:
        if self._workers:
            self._ready.append(waiting)
            self._changes.wake()

    async def _work(self, client_id: str, post: Post) -> None:
        try:
            while True:
                await self._changes.until(lambda: bool(self._ready))
                waiting = self._ready.popleft()
                await self._outbox.durable()  # its packet id is on disk before it is sent
                if self._waiting.get(waiting.packet_id) is waiting:
                    await self._send(waiting, client_id, post)
        except Exception as error:
            if self._workers:
                self._on_lost(error)

    async def _send(self, waiting: _Waiting, client_id: str, post: Post) -> None:
        message, now_s = self._window.sent(waiting.packet_id), self._outbox.now_s
        packet = Publish(message.topic, b"", message.qos, message.retain, properties=message.properties)
        remaining_s = message.expires_s - now_s if EXPIRY in (message.properties or {}) else None
        key = f"{message.incarnation:016x}-{message.sequence}"
        target, fields = publish_request(packet, key, remaining_s)
        waiting.attempts += 1
        try:
            answer = await post(target, fields, message.payload)
            outcome = judge_published(answer, derived_message_id(client_id, key))
        except AnswerFault:
            if waiting.attempts > 1:
                raise
            self._make_ready(waiting)
            return
        waiting.attempts = 0
        if isinstance(outcome, TryAgain):
            if not outcome.is_stored_nowhere or message.expires_s > self._outbox.now_s:
                self._try_again(waiting, outcome)
                return
            outcome = Refused(outcome.reason, f"until its lifetime ended: {outcome.text}")
        self.remove(waiting.packet_id)
        if isinstance(outcome, Stored):
            self._on_published(Published(waiting.packet_id))
        else:
            self._on_published(Published(waiting.packet_id, outcome.reason, {"reason_string": outcome.text}))

    def _try_again(self, waiting: _Waiting, outcome: TryAgain) -> None:
        delay_s = self._backoff.delay_s(waiting.refusals) + (outcome.after_s or 0.0)
        waiting.refusals += 1

        def again() -> None:
            del self._timers[waiting.packet_id]
            self._make_ready(waiting)

        self._timers[waiting.packet_id] = asyncio.get_running_loop().call_later(delay_s, again)
