"""The stand-in's file: sessions and queues, retained messages, and the spool of what goes on to others (M1, M2, M20).

:meth:`MqttStore.take` is the heart. In one transaction it records the packet id of a QoS 2 exchange, queues the message
for every subscriber here, keeps it if it is retained, and puts it into the spool. So whatever a kill interrupts, a
message is in all of these places, once, or in none; and then its sender has no answer yet.

Every method runs in a transaction (:mod:`.changes`), on the store's thread.
"""

import contextlib
import logging
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from edge.agent import way
from edge.agent.agent_file import AgentFile
from edge.agent.mqtt.message import EXPIRY, MqttMessage
from edge.agent.mqtt.retained import Retained
from edge.agent.mqtt.sessions import SQL, SessionLimits, Sessions, Subscriber, decode_properties, encode
from edge.agent.mqtt.usage import use, used
from edge.agent.way import Step
from edge.client.errors import StoreFull
from edge.client.store import new_incarnation
from edge.client.store_clock import StoreClock
from mqtt.packets import Publish, Subscription
from schemas.errors import WaystationError
from schemas.visible import visible

_log: Final = logging.getLogger("waystation.agent")
_APPLICATION_ID: Final = 0x57415951  # "WAYQ"
PART: Final = "mqtt"
SPOOL: Final = "spool"
EVERY: Final = (1 << 63) - 1
"""No number is larger."""


class StoreLimits(msgspec.Struct, frozen=True):
    """Of the spool, of retained messages, and of the ids by which repetitions are recognised."""

    messages: int
    total_bytes: int
    retained_messages: int
    retained_bytes: int
    remembered: int


class Spooled(msgspec.Struct, frozen=True):
    """A message that goes on: to `target`, over the lane that was asked for. `expires_s` by the store's clock. `number`
    counts in the file with the incarnation `spool`."""

    spool: int
    number: int
    target: str
    message: MqttMessage
    expires_s: float | None


class Exchange(msgspec.Struct, frozen=True):
    """A PUBLISH of QoS 2: the session and the packet id."""

    session: int
    packet_id: int


class Taken(msgspec.Struct, frozen=True):
    """What became of a message. `is_new`: False if it was a repetition. `queued`: client ids with more in their queue.
    `live`: messages of QoS 0, which are not stored, by client id."""

    is_new: bool
    queued: list[str]
    live: list[tuple[str, Publish]]


GIVEN_FACTOR: Final = 4
"""Retained messages that a transaction gives at QoS 0 are in memory: this many times what may be retained, at most."""
_GIVEN_HEAD: Final = 512  # bytes of memory for one, beside its content

NOT_NEW: Final = Taken(is_new=False, queued=[], live=[])


class MqttStore(AgentFile):
    """`window`: how many deliveries a session has in flight at most. `wall_s`, `running_s`, `down_most_s`: see
    :mod:`edge.client.store_clock`. Read-only: `incarnation`, a number that names the file; `last_spooled`, the highest
    number in the spool that it had given when it was opened. Raises StoreError."""

    incarnation: int
    last_spooled: int

    def __init__(
        self,
        path: Path,
        *,
        sessions: SessionLimits,
        limits: StoreLimits,
        window: int,
        log_entries: int,
        wall_s: Callable[[], float],
        running_s: Callable[[], float],
        down_most_s: float,
    ) -> None:
        super().__init__(path, _APPLICATION_ID, SQL["schema"], log_entries)
        self._complained: set[str] = set()
        self._dropped = 0  # of QoS 0
        self._limits, self._wall_s, self._running_s = limits, wall_s, running_s
        self.sessions = Sessions(self._db, sessions)
        self._retained = Retained(self._db, limits.retained_messages, limits.retained_bytes)
        with self.transaction() as db:
            (self.incarnation,) = db.execute(SQL["incarnation"]).fetchone()
            (self.last_spooled,) = db.execute(SQL["last_spooled"]).fetchone()
            clock_s, clock_wall_s = db.execute(SQL["clock"]).fetchone() or (0.0, 0.0)
            self._clock = StoreClock(clock_s, clock_wall_s, wall_s(), running_s(), down_most_s)
            self.sessions.restart(self.now_s, window)

    @property
    def now_s(self) -> float:
        """The store's clock."""
        return self._clock.at(self._running_s())

    @contextlib.contextmanager
    def transaction(self, kind: str = "IMMEDIATE") -> Iterator[sqlite3.Connection]:
        self._given_bytes = 0
        with super().transaction(kind) as db:
            yield db

    def save_clock(self) -> None:
        self._db.execute(SQL["set_clock"], (self.now_s, self._wall_s()))

    def forget_cached(self) -> None:
        """A change was undone."""
        self.sessions.forget_cached()

    @contextlib.contextmanager
    def part(self) -> Iterator[None]:
        """A part of a change: if it raises, it undoes itself."""
        self._db.execute("SAVEPOINT part")
        try:
            yield
        except WaystationError:
            self._db.execute("ROLLBACK TO part")
            self._db.execute("RELEASE part")
            self.forget_cached()
            raise
        self._db.execute("RELEASE part")

    # -- messages ------------------------------------------------------------------------------------------------------

    def take(
        self,
        message: MqttMessage,
        *,
        publisher: str | None = None,
        exchange: Exchange | None = None,
        recognise: bool = False,
        spool: tuple[tuple[str, str], ...] = (),
        is_local: bool = True,
        platform_topic: str = "",
    ) -> Taken:
        """Takes a message: for subscribers here if `is_local`, and for each (lane, target) of `spool`.

        `publisher`: the client here that has published it. `recognise`: its id was given by another agent, so a
        repetition is recognised by it. `platform_topic`: its topic on the platform, if it comes from there; it is
        retained only while a session here subscribes to it. Raises StoreFull: then nothing was taken. A retained
        message for which there is no space, or one for a session whose queue is full, is refused if a client here has
        published it. Nobody could tell others, and what they sent later would wait for ever behind it: their message
        is taken and not retained, and no older one stays in its place; sessions with a full queue do not get it.
        """
        if exchange is not None and not self.sessions.begins(exchange.session, exchange.packet_id):
            return NOT_NEW
        if recognise and not self._see(message.id):
            self._step(message.id, way.REPEATED)
            return NOT_NEW
        expires_s = None if message.lifetime_s is None else self.now_s + message.lifetime_s
        queued, live, full = self._deliver(message, publisher, expires_s) if is_local else ([], [], {})
        is_kept = is_local and message.retain and bool(not platform_topic or queued or live or full)
        problem = self._retained.keep(message, expires_s, platform_topic) if is_kept else ""
        if problem and publisher is not None:
            raise StoreFull(problem)
        for lane, target in spool:
            self._spool(lane, target, message, expires_s)
        where = ", ".join(
            [*(target or lane for lane, target in spool), way.counted(len(queued) + len(live), "subscriber") + " here"]
        )
        event = way.RECEIVED if publisher is None else way.ACCEPTED
        self._step(message.id, event, f"{message.topic}, {len(message.payload)} bytes, for {where}")
        if problem:
            self._step(message.id, way.NOT_RETAINED, problem)
            self._complain(f"messages from others are passed on and not retained: {problem}", way.NOT_RETAINED)
        for client_id, full_queue in full.items():
            self._step(message.id, way.DROPPED, f"for {client_id}: {full_queue}")
            self._complain(f"messages from others are dropped for {visible(client_id)}: {full_queue}", way.DROPPED)
        return Taken(is_new=True, queued=queued, live=live)

    def subscribe(self, number: int, client_id: str, wanted: Subscription, identifier: int) -> Taken | None:
        """Subscribes a session, and gives it the retained messages (3.3.1.3). None: it has too many subscriptions.
        Raises StoreFull: they do not fit into its queue."""
        is_new = self.sessions.subscribe(number, wanted, identifier)
        if is_new is None:
            return None
        queued, live = [], []
        if wanted.retain_handling == 0 or (wanted.retain_handling == 1 and is_new):
            one = Subscriber(number, client_id, wanted.qos, True, [identifier] if identifier else [])
            for message, expires_s in self._retained.matching(wanted.filter, self.now_s):
                if min(message.qos, one.qos):
                    numbered = self.sessions.add_message(message, expires_s)
                    self._queue(one, numbered, message)
                    queued.append(client_id)
                elif self._may_give(message):
                    live.append((client_id, self._live(message, one, expires_s)))
                else:
                    self._dropped += 1
        return Taken(is_new=is_new, queued=queued[:1], live=live)

    def spooled(self, lane: str, after: int, count: int) -> list[Spooled]:
        """What goes on over a lane, with a number above `after`, in order."""
        rows = self._db.execute(SQL["spooled"], (lane, after, count)).fetchall()
        return [_spooled(self.incarnation, row, self.now_s) for row in rows]

    def waiting(self, lane: str, number: int) -> tuple[int, int]:
        """How many messages, with how many bytes, go on over a lane, up to the number."""
        messages, size = self._db.execute(SQL["waiting"], (lane, number)).fetchone()
        return int(messages), int(size)

    def forwarded(self, lane: str, number: int, steps: list[tuple[str, str, str]]) -> None:
        """All up to the number have gone on. `steps`: (id, event, detail) for the log."""
        messages, size = self.waiting(lane, number)
        self._db.execute(SQL["forwarded"], (lane, number))
        use(self._db, SPOOL, -messages, -size)
        at_s = self._wall_s()
        self.log.add(self._db, [Step(identifier, at_s, lane, event, detail) for identifier, event, detail in steps])

    def renew(self) -> None:
        """The file is an earlier copy: it gets another incarnation, because it gives numbers that were given before."""
        incarnation = new_incarnation()
        self._db.execute(SQL["renew"], (incarnation,))
        self.incarnation = incarnation

    def position(self, source: str, incarnation: int) -> int:
        """Up to which number the messages of a source have been taken; `incarnation`: of its file."""
        row = self._db.execute(SQL["position"], (source, incarnation)).fetchone()
        return int(row[0]) if row is not None else 0

    def set_position(self, source: str, incarnation: int, number: int) -> None:
        """See :meth:`position`; in the transaction that takes the message."""
        self._db.execute(SQL["set_position"], (source, incarnation, number))

    def expire(self) -> list[tuple[str, int]]:
        """Removes what is over; returns the sessions that have ended: (client id, messages that waited)."""
        now_s = self.now_s
        gone = [(client_id, self.sessions.remove(number)) for number, client_id in self.sessions.ended(now_s)]
        for number, identifier in self.sessions.overdue(now_s):
            self.sessions.finish(number)
            self._step(identifier, way.EXPIRED)
        self._retained.expire(now_s)
        return gone

    def refused(self, identifier: str, reason: str) -> None:
        """The log gets what was not taken."""
        self._step(identifier, way.REFUSED, reason)

    def finish_expired(self, delivery: int) -> None:
        """A delivery's message has expired before it was sent."""
        identifier = self.sessions.finish(delivery)
        if identifier is not None:
            self._step(identifier, way.EXPIRED)

    def newest(self, count: int) -> list[Step]:
        return self.log.newest(self._db, count)

    def steps_of(self, identifier: str) -> list[Step]:
        return self.log.of_message(self._db, identifier)

    def status(self) -> dict[str, Any]:
        """Counts, for people."""
        spool, spool_bytes = used(self._db, SPOOL)
        sessions, waiting, subscriptions = self._db.execute(SQL["status"]).fetchone()
        return {
            "spool": spool,
            "spool_bytes": spool_bytes,
            "sessions": sessions,
            "subscriptions": subscriptions,
            "waiting_for_clients": waiting,
            "retained": len(self._retained),
            "dropped_at_qos_0": self._dropped,
            "dropped_at_full_queues": self.log.counts[PART, way.DROPPED],
        }

    # -- filters elsewhere ---------------------------------------------------------------------------------------------

    def far_filters(self, place: str) -> set[str]:
        """Filters to which the agent may be subscribed on the platform, or at the broker, as they are there."""
        return {topic_filter for (topic_filter,) in self._db.execute(SQL["far_filters"], (place,))}

    def set_far_filter(self, place: str, topic_filter: str, *, is_subscribed: bool) -> None:
        """See :meth:`far_filters`."""
        self._db.execute(SQL["add_far_filter" if is_subscribed else "remove_far_filter"], (place, topic_filter))

    def unsubscribed(self, place: str, topic_filter: str) -> None:
        """The filter has ended there, and with it the retained copies of what only it asked for."""
        self.set_far_filter(place, topic_filter, is_subscribed=False)
        self._retained.end_copies(topic_filter, self.far_filters(place))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _make(self, *, is_new: bool) -> None:
        super()._make(is_new=is_new)
        if "platform_topic" not in [row[1] for row in self._db.execute("PRAGMA table_info(retained)")]:
            self._db.execute(SQL["add_platform_topic"])  # a file of an earlier version
        self._db.execute(SQL["identify"], (new_incarnation(),))

    def _deliver(
        self, message: MqttMessage, publisher: str | None, expires_s: float | None
    ) -> tuple[list[str], list[tuple[str, Publish]], dict[str, str]]:
        """Client ids with more in their queue, messages to send now, and, for others than clients here, why the queue
        of a client id is full. Raises StoreFull."""
        queued: list[str] = []
        live: list[tuple[str, Publish]] = []
        full: dict[str, str] = {}
        numbered: int | None = None
        for one in self.sessions.subscribers(message.topic, publisher):
            if not min(message.qos, one.qos):
                live.append((one.client_id, self._live(message, one, expires_s)))
                continue
            if numbered is None:
                numbered = self.sessions.add_message(message, expires_s)
            try:
                self._queue(one, numbered, message)
            except StoreFull as error:
                if publisher is not None:
                    raise
                full[one.client_id] = str(error)
            else:
                queued.append(one.client_id)
        if full and not queued:
            self._db.execute(SQL["remove_message"], (numbered,))
        return queued, live, full

    def _queue(self, one: Subscriber, numbered: int, message: MqttMessage) -> None:
        retain = message.retain and one.as_published
        qos = min(message.qos, one.qos)
        self.sessions.queue(one.session, numbered, message.size, qos, retain=retain, identifiers=one.identifiers)

    def _live(self, message: MqttMessage, one: Subscriber, expires_s: float | None) -> Publish:
        properties = dict(message.properties)
        if expires_s is not None:
            properties[EXPIRY] = max(0, int(expires_s - self.now_s))
        if one.identifiers:
            properties["subscription_identifier"] = one.identifiers
        return Publish(message.topic, message.payload, 0, message.retain and one.as_published, properties=properties)

    def _complain(self, problem: str, event: str) -> None:
        """Once for each event: there may be many, and the log of ways has each."""
        if event not in self._complained:
            _log.warning("%s", problem)
        self._complained.add(event)

    def _may_give(self, message: MqttMessage) -> bool:
        self._given_bytes += message.size + _GIVEN_HEAD
        return self._given_bytes <= GIVEN_FACTOR * self._limits.retained_bytes

    def _spool(self, lane: str, target: str, message: MqttMessage, expires_s: float | None) -> None:
        messages, size = used(self._db, SPOOL)
        if messages >= self._limits.messages or size + message.size > self._limits.total_bytes:
            raise StoreFull(f"the store is full: {messages:,} messages with {size:,} bytes wait to go on")
        properties = encode(message.properties)
        self._db.execute(
            SQL["add_spooled"],
            (
                *(lane, target, message.id, message.topic, message.payload, message.qos, message.retain),
                *(properties, expires_s, message.size),
            ),
        )
        use(self._db, SPOOL, 1, message.size)

    def _see(self, identifier: str) -> bool:
        """Remembers an id; False if it was known."""
        if self._db.execute(SQL["is_seen"], (identifier,)).fetchone()[0]:
            return False
        self._db.execute(SQL["see"], (identifier,))
        self._db.execute(SQL["bound_seen"], (self._limits.remembered,))
        return True

    def _step(self, identifier: str, event: str, detail: str = "") -> None:
        self.log.add(self._db, [Step(identifier, self._wall_s(), PART, event, detail)])


def _spooled(spool: int, row: tuple[Any, ...], now_s: float) -> Spooled:
    number, target, identifier, topic, payload, qos, retain, properties, expires_s = row
    left_s = None if expires_s is None else max(0, int(expires_s - now_s))
    message = MqttMessage(identifier, topic, payload, qos, bool(retain), decode_properties(properties), left_s)
    return Spooled(spool, number, target, message, expires_s)
