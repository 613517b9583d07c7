"""Retained messages on disk (MQTT 5.0, 3.3.1.3). Methods run in a transaction of the store's file (:mod:`.changes`)."""

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Final

from edge.agent.mqtt.message import MqttMessage
from edge.agent.mqtt.sessions import SQL, decode_properties, encode
from edge.agent.mqtt.usage import use, used
from mqtt.topics import matches

_USAGE: Final = "retained"


class Retained:
    """At most `messages` with `size_max` bytes."""

    def __init__(self, db: sqlite3.Connection, messages: int, size_max: int) -> None:
        self._db, self._messages, self._size_max = db, messages, size_max

    def __len__(self) -> int:
        return used(self._db, _USAGE)[0]

    def keep(self, message: MqttMessage, expires_s: float | None, platform_topic: str) -> str:
        """In place of an older one of its topic. Returns why it does not fit: then there is none. `platform_topic`: its
        topic on the platform, of which it is a copy; "" if it is not."""
        row = self._db.execute(SQL["retained_size"], (message.topic,)).fetchone()
        if row is not None:
            self._remove(message.topic, row[0])
        if not message.payload:
            return ""
        messages, size = used(self._db, _USAGE)
        if messages >= self._messages or size + message.size > self._size_max:
            return f"no more retained messages fit: there are {messages:,} with {size:,} bytes"
        properties = encode(message.properties)
        kept = (message.topic, message.payload, message.qos, properties, expires_s, message.size, platform_topic)
        self._db.execute(SQL["retain"], kept)
        use(self._db, _USAGE, 1, message.size)
        return ""

    def matching(self, topic_filter: str, now_s: float) -> Iterator[tuple[MqttMessage, float | None]]:
        """With the time at which each expires. One at a time, in order of topics: all together may be large."""
        for (topic,) in self._db.execute(SQL["retained_topics"], (now_s,)).fetchall():
            if matches(topic_filter, topic):
                payload, qos, properties, expires_s = self._db.execute(SQL["retained"], (topic,)).fetchone()
                yield MqttMessage("", topic, payload, qos, True, decode_properties(properties)), expires_s

    def end_copies(self, ended: str, subscribed: Iterable[str]) -> None:
        """Removes the copies that came by the filter `ended` of the platform, and by none of those still subscribed:
        nothing would change or end them here."""
        for topic, size, platform_topic in self._db.execute(SQL["retained_of_platform"]).fetchall():
            if matches(ended, platform_topic) and not any(matches(one, platform_topic) for one in subscribed):
                self._remove(topic, size)

    def expire(self, now_s: float) -> None:
        """Removes what is over."""
        for topic, size in self._db.execute(SQL["overdue_retained"], (now_s,)).fetchall():
            self._remove(topic, size)

    def _remove(self, topic: str, size: int) -> None:
        self._db.execute(SQL["remove_retained"], (topic,))
        use(self._db, _USAGE, -1, -size)
