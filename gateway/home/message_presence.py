"""What is known of each message of the mesh, a live view of `message-presence-state` (M9, M11)."""

import asyncio
from collections import Counter
from typing import Any

import structlog

from gateway.bus import Bus, Record
from gateway.errors import BusError
from schemas.errors import RecordError
from schemas.events import MessagePresenceEvent, decode, encode
from schemas.identity import partition_of
from schemas.states import MessagePresenceState

_FORGET_EVERY_S = 60.0

log = structlog.get_logger(__name__)


class MessagePresence:
    """The states of up to `limit` messages that are still to be kept; of more than that, those that changed longest ago
    are forgotten, and counted. Who asks for these is told that nothing is known; the ledger's tables know."""

    def __init__(self, bus: Bus, topic: str, partitions: int, limit: int, counts: Counter[str]) -> None:
        self._bus = bus
        self._topic = topic
        self._partitions = partitions
        self._limit = limit
        self._counts = counts
        self._states: dict[str, MessagePresenceState] = {}
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._look_again = 0.0

    def __len__(self) -> int:
        return len(self._states)

    def get(self, message_id: str, now: float) -> MessagePresenceState | None:
        """What is known now, seconds since the epoch; None if nothing, or nothing any more."""
        state = self._states.get(message_id)
        return None if state is None or state.kept_until_ms < now * 1000 else state

    def fold(self, record: Record) -> None:
        """Takes one record of the topic, in the order of its partition."""
        message_id, value = (record.key() or b"").decode(errors="replace"), record.value()
        self._states.pop(message_id, None)
        if value:
            try:
                self._states[message_id] = decode(MessagePresenceState, value)
            except RecordError as error:
                log.warning("message presence unreadable", message=message_id, reason=str(error))
            if len(self._states) > self._limit:
                del self._states[next(iter(self._states))]
                self._counts["message_presence_forgotten"] += 1
        for folded in self._waiting.pop(message_id, ()):
            if not folded.done():
                folded.set_result(None)

    async def tell(self, event: MessagePresenceEvent) -> int:
        """Stores what an agent says; its offset among the events of the message. Raises BusError if Kafka refuses."""
        stored: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def done(error: Any, record: Any) -> None:
            if stored.done():  # nobody waits any more
                return
            if error is not None:
                stored.set_exception(BusError(f"Kafka refuses the event: {error.str()}"))
            else:
                stored.set_result(record.offset())

        partition = partition_of(event.id, self._partitions)
        self._bus.produce(self._topic, partition, event.id.encode(), encode(event), None, done)
        return await stored

    async def judged(self, message_id: str, offset: int) -> MessagePresenceState:
        """The state of a message once a claim at `offset` of its events has been judged."""
        while True:
            state = self._states.get(message_id)
            if state is not None and state.judged >= offset:
                return state
            folded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waiting = self._waiting.setdefault(message_id, [])
            waiting.append(folded)
            try:
                await folded
            except asyncio.CancelledError:
                waiting.remove(folded)
                if not waiting:
                    self._waiting.pop(message_id, None)
                raise

    def forget(self, now: float) -> None:
        """Forgets what need not be kept any more; looks for that once a minute."""
        if now >= self._look_again:
            self._look_again = now + _FORGET_EVERY_S
            over = [name for name, state in self._states.items() if state.kept_until_ms < now * 1000]
            for name in over:
                del self._states[name]
