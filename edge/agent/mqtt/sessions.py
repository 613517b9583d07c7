"""Sessions of MQTT clients on disk: subscriptions, queues, and packet ids in both directions (M2, MQTT 5.0, 4.1).

Every session is on disk, also one that ends with its connection: so a message is never only in memory. A delivery of
QoS 1 or 2 gets its packet id in the transaction that queues it, so the same packet id is used however often it is sent.
All methods run in a transaction of the store's file (:mod:`.changes`).
"""

import logging
import sqlite3
from pathlib import Path
from typing import Any, Final

import msgspec

from edge.agent.errors import SessionRefused
from edge.agent.mqtt.message import MqttMessage
from edge.client.errors import StoreFull
from mqtt.codes import ReasonCode
from mqtt.limits import PACKET_ID_MAX
from mqtt.packets import Properties, Subscription
from mqtt.topics import matches
from schemas.sql import named_blocks
from schemas.visible import visible

SQL: Final = named_blocks(Path(__file__).with_name("store.sql").read_text(encoding="utf-8"))
CACHE_MAX: Final = 4_096  # topics whose subscribers are remembered

encode: Final = msgspec.msgpack.encode
_log: Final = logging.getLogger("waystation.agent")


class SessionLimits(msgspec.Struct, frozen=True):
    """`queue_messages`, `queue_bytes` of one session; `subscriptions` of one; `sessions` in all."""

    sessions: int
    subscriptions: int
    queue_messages: int
    queue_bytes: int


class Attached(msgspec.Struct, frozen=True):
    """A session that a client has. `is_present`: there was one. `lost`: messages that ended with one before it."""

    number: int
    is_present: bool
    lost: int = 0


class Delivery(msgspec.Struct, frozen=True):
    """A message queued for a session. `is_repeated`: it may have been sent. `is_released`: PUBREC has come."""

    number: int
    packet_id: int
    qos: int
    retain: bool
    is_released: bool
    is_repeated: bool
    identifiers: list[int]
    id: str
    topic: str
    payload: bytes
    properties: Properties
    expires_s: float | None


class Subscriber(msgspec.Struct, frozen=True):
    """One session that a message is for: the highest QoS of its subscriptions that match, and their identifiers."""

    session: int
    client_id: str
    qos: int
    as_published: bool
    identifiers: list[int]


class Sessions:
    """`db`: the connection of the store's file."""

    def __init__(self, db: sqlite3.Connection, limits: SessionLimits) -> None:
        self._db, self._limits = db, limits
        self._subscriptions: list[tuple[Any, ...]] | None = None
        self._cache: dict[str, list[tuple[Any, ...]]] = {}

    def forget_cached(self) -> None:
        """A change was undone, or subscriptions have changed."""
        self._subscriptions = None
        self._cache.clear()

    # -- life ----------------------------------------------------------------------------------------------------------

    def restart(self, now_s: float, window: int) -> None:
        """The process has begun: nobody is connected. What was in a window may have been sent before."""
        for number, client_id, expiry_s in self._db.execute(SQL["interrupted"]).fetchall():
            if not expiry_s:
                log_ended(client_id, self.remove(number))
                continue
            (sent,) = self._db.execute(SQL["may_have_been_sent"], (number, window)).fetchone()
            self._db.execute(SQL["leave_session"], (expiry_s, now_s + expiry_s, sent or 0, number))

    def attach(self, client_id: str, user: str, expiry_s: int, *, is_clean: bool) -> Attached:
        """A client has connected. Raises SessionRefused: the session is another user's, or there are too many."""
        row = self._db.execute(SQL["session"], (client_id,)).fetchone()
        if row is not None and row[1] != user:
            raise SessionRefused(ReasonCode.NOT_AUTHORIZED, "the session with this client id is another user's")
        if row is not None and not is_clean:
            self._db.execute(SQL["resume_session"], (expiry_s, row[0]))
            return Attached(row[0], is_present=True)
        lost = 0
        if row is not None:
            lost = self.remove(row[0])
        elif self._db.execute(SQL["count_sessions"]).fetchone()[0] >= self._limits.sessions:
            raise SessionRefused(ReasonCode.QUOTA_EXCEEDED, f"there are {self._limits.sessions} sessions already")
        cursor = self._db.execute(SQL["add_session"], (client_id, user, expiry_s))
        assert cursor.lastrowid is not None
        return Attached(cursor.lastrowid, is_present=False, lost=lost)

    def leave(self, number: int, expiry_s: int, now_s: float, sent: int) -> int:
        """The client's connection has ended; `sent`: the newest delivery that may have been sent. Returns how many
        messages ended with the session, if it has ended."""
        if not expiry_s:
            return self.remove(number)
        self._db.execute(SQL["leave_session"], (expiry_s, now_s + expiry_s, sent, number))
        return 0

    def remove(self, number: int) -> int:
        """Ends a session; returns how many messages waited for it."""
        waiting = [delivery for (delivery,) in self._db.execute(SQL["session_deliveries"], (number,)).fetchall()]
        for delivery in waiting:
            self.finish(delivery)
        for statement in ("remove_subscriptions", "remove_inbound", "remove_session"):
            self._db.execute(SQL[statement], (number,))
        self.forget_cached()
        return len(waiting)

    def ended(self, now_s: float) -> list[tuple[int, str]]:
        """Sessions whose expiry is over: (number, client id)."""
        return self._db.execute(SQL["ended_sessions"], (now_s,)).fetchall()

    # -- subscriptions -------------------------------------------------------------------------------------------------

    def subscribe(self, number: int, wanted: Subscription, identifier: int) -> bool | None:
        """Whether the subscription is new; None: the session has too many."""
        (is_there,) = self._db.execute(SQL["has_subscription"], (number, wanted.filter)).fetchone()
        if not is_there and self._count(number) >= self._limits.subscriptions:
            return None
        row = (number, wanted.filter, wanted.qos, wanted.no_local, wanted.retain_as_published, identifier)
        self._db.execute(SQL["subscribe"], row)
        self.forget_cached()
        return not is_there

    def unsubscribe(self, number: int, topic_filter: str) -> bool:
        """Whether there was such a subscription."""
        self.forget_cached()
        return self._db.execute(SQL["unsubscribe"], (number, topic_filter)).rowcount > 0

    def filters(self) -> set[str]:
        """Of all sessions."""
        return {topic_filter for (topic_filter,) in self._db.execute(SQL["filters"])}

    def subscribers(self, topic: str, publisher: str | None) -> list[Subscriber]:
        """Who gets a message to the topic; `publisher`: the client that has published it here."""
        found: dict[int, Subscriber] = {}
        for session, client_id, qos, no_local, as_published, identifier in self._matching(topic):
            if no_local and client_id == publisher:
                continue
            one = found.get(session)
            identifiers = ([] if one is None else one.identifiers) + ([identifier] if identifier else [])
            found[session] = Subscriber(
                session,
                client_id,
                qos if one is None else max(qos, one.qos),
                bool(as_published) or (one is not None and one.as_published),
                identifiers,
            )
        return list(found.values())

    # -- queues --------------------------------------------------------------------------------------------------------

    def add_message(self, message: MqttMessage, expires_s: float | None) -> int:
        """The number of a message to queue for sessions."""
        row = (message.id, message.topic, message.payload, encode(message.properties), expires_s, message.size)
        cursor = self._db.execute(SQL["add_message"], row)
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def queue(self, session: int, number: int, size: int, qos: int, *, retain: bool, identifiers: list[int]) -> None:
        """Queues a message. Raises StoreFull."""
        messages, used, packet_id = self._db.execute(SQL["queue"], (session,)).fetchone()
        if messages >= self._limits.queue_messages or used + size > self._limits.queue_bytes:
            raise StoreFull(f"a subscriber's queue is full: {messages:,} messages with {used:,} bytes wait for it")
        while True:
            packet_id = packet_id % PACKET_ID_MAX + 1
            if not self._db.execute(SQL["has_packet_id"], (session, packet_id)).fetchone()[0]:
                break
        self._db.execute(SQL["set_queue"], (1, size, packet_id, session))
        self._db.execute(SQL["add_delivery"], (session, number, packet_id, qos, retain, encode(identifiers)))

    def deliveries(self, session: int, after: int, count: int) -> list[Delivery]:
        """Those with a number above `after`, in order."""
        row = self._db.execute(SQL["sent"], (session,)).fetchone()
        sent = row[0] if row is not None else 0
        return [_delivery(row, sent) for row in self._db.execute(SQL["deliveries"], (session, after, count))]

    def release(self, delivery: int) -> None:
        """PUBREC has come."""
        self._db.execute(SQL["release"], (delivery,))

    def finish(self, delivery: int) -> str | None:
        """A delivery has ended; the message's id, or None if it had ended before."""
        row = self._db.execute(SQL["delivery"], (delivery,)).fetchone()
        if row is None:
            return None
        session, message, size, identifier = row
        self._db.execute(SQL["remove_delivery"], (delivery,))
        self._db.execute(SQL["remove_message"], (message,))
        self._db.execute(SQL["unqueue"], (size, session))
        return str(identifier)

    def overdue(self, now_s: float) -> list[tuple[int, str]]:
        """Deliveries to clients that are away whose message has expired: (number, message id)."""
        return self._db.execute(SQL["overdue"], (now_s,)).fetchall()

    # -- what clients publish at QoS 2 ---------------------------------------------------------------------------------

    def begins(self, session: int, packet_id: int) -> bool:
        """Whether the packet id begins an exchange; False: its message was taken before (4.3.3)."""
        if self._db.execute(SQL["has_inbound"], (session, packet_id)).fetchone()[0]:
            return False
        self._db.execute(SQL["add_inbound"], (session, packet_id))
        return True

    def ends(self, session: int, packet_id: int) -> bool:
        """PUBREL has come; False if there was no exchange."""
        return self._db.execute(SQL["end_inbound"], (session, packet_id)).rowcount > 0

    # -- inside --------------------------------------------------------------------------------------------------------

    def _count(self, number: int) -> int:
        return int(self._db.execute(SQL["count_subscriptions"], (number,)).fetchone()[0])

    def _matching(self, topic: str) -> list[tuple[Any, ...]]:
        found = self._cache.get(topic)
        if found is None:
            if self._subscriptions is None:
                self._subscriptions = self._db.execute(SQL["subscriptions"]).fetchall()
            if len(self._cache) >= CACHE_MAX:
                self._cache.clear()
            found = self._cache[topic] = [
                (session, client_id, *options)
                for session, client_id, topic_filter, *options in self._subscriptions
                if matches(topic_filter, topic)
            ]
        return found


def log_ended(client_id: str, waiting: int) -> None:
    """Says that messages have ended with a session."""
    if waiting:
        text = "the session of the MQTT client %s has ended, and %d messages with it"
        _log.warning(text, visible(client_id), waiting)


def decode_properties(raw: bytes) -> Properties:
    """MessagePack has no tuples: user properties are pairs."""
    found: Properties = msgspec.msgpack.decode(raw, type=dict[str, Any])
    if "user_property" in found:
        found["user_property"] = [(name, value) for name, value in found["user_property"]]
    return found


def _delivery(row: tuple[Any, ...], sent: int) -> Delivery:
    number, packet_id, qos, retain, is_released, identifiers, identifier, topic, payload, properties, expires_s = row
    return Delivery(
        number,
        packet_id,
        qos,
        bool(retain),
        bool(is_released),
        number <= sent,
        msgspec.msgpack.decode(identifiers, type=list[int]),
        identifier,
        topic,
        payload,
        decode_properties(properties),
        expires_s,
    )
