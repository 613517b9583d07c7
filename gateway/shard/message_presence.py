"""What is known of each message of the mesh, a live view of `message-presence-state` (M9, M11)."""

import asyncio
from collections import Counter
from typing import Any, NamedTuple

import structlog

from gateway.bus import Bus
from gateway.errors import BusError
from gateway.record import Record
from schemas.errors import RecordError
from schemas.events import MessagePresenceEvent, decode, encode
from schemas.identity import partition_of
from schemas.states import MessagePresenceState

_FORGET_EVERY_S = 60.0

log = structlog.get_logger(__name__)


class Place(NamedTuple):
    """Where an event stands on its partition, and when it was appended, ms since the epoch, broker's clock."""

    offset: int
    appended_ms: int


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
        self.in_flight_bytes = 0
        """Bytes of events that Kafka has neither stored nor refused yet."""

    def __len__(self) -> int:
        return len(self._states)

    def get(self, message_id: str, now: float) -> MessagePresenceState | None:
        """What is known now, seconds since the epoch; None if nothing, or nothing any more."""
        state = self._states.get(message_id)
        return None if state is None or state.kept_until_ms < now * 1000 else state

    def fold(self, record: Record, now: float = 0.0) -> None:
        """Takes one record of the topic, in the order of its partition; what need not be kept at `now`, seconds since
        the epoch, is passed over: it takes no place of others."""
        message_id, value = (record.key() or b"").decode(errors="replace"), record.value()
        self._states.pop(message_id, None)
        if value:
            try:
                state = decode(MessagePresenceState, value)
                if state.kept_until_ms >= now * 1000:
                    self._states[message_id] = state
            except RecordError as error:
                log.warning("cannot read message presence", message=message_id, reason=str(error))
            if len(self._states) > self._limit:
                del self._states[next(iter(self._states))]
                self._counts["message_presence_forgotten"] += 1
        for folded in self._waiting.pop(message_id, ()):
            if not folded.done():
                folded.set_result(None)

    async def tell(self, event: MessagePresenceEvent) -> Place:
        """Stores what an agent says; where it stands. Raises BusError if Kafka refuses."""
        return await self.begin(event)

    def begin(self, event: MessagePresenceEvent) -> asyncio.Future[Place]:
        """As `tell`, without waiting: events that are begun one after the other travel together."""
        stored: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
        value = encode(event)

        def done(error: Any, record: Any) -> None:
            self.in_flight_bytes -= len(value)
            if stored.done():  # nobody waits any more
                return
            if error is not None:
                stored.set_exception(BusError(f"Kafka refused the event: {error.str()}"))
            else:
                stored.set_result(Place(record.offset(), record.timestamp()[1]))

        partition = partition_of(event.id, self._partitions)
        self.in_flight_bytes += len(value)
        self._bus.produce(self._topic, partition, event.id.encode(), value, None, done)
        return stored

    async def judged(self, message_id: str, place: Place) -> MessagePresenceState:
        """The state of a message once a claim that stands at `place` has been judged."""
        while True:
            state = self._states.get(message_id)
            if state is not None and state.has_judged(*place):
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
