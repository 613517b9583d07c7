"""Retained messages: a fold over the compacted topic `retained` (MQTT 5.0, 3.3.1.3)."""

import asyncio
from collections.abc import Iterator

import structlog

from gateway.bus import Record
from gateway.home.messages import Message, message_of
from gateway.mqtt.topics import matches
from schemas.errors import RecordError

log = structlog.get_logger(__name__)


class RetainedMessages:
    """The latest retained message of each topic. Records have the envelope of `ingress`; no value ends a topic's."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_topic: dict[str, Message] = {}
        self._folded_to = 0
        self._stored_to = 0
        self._waiting: list[asyncio.Future[None]] = []

    def __len__(self) -> int:
        return len(self._by_topic)

    @property
    def folded_to(self) -> int:
        """Up to where the topic is taken."""
        return self._folded_to

    def has_room(self, topic: str) -> bool:
        """Whether one more may be retained, or `topic` has one already."""
        return topic in self._by_topic or len(self._by_topic) < self._limit

    def begin(self, position: int) -> None:
        """The topic was read up to `position`."""
        self._folded_to = max(self._folded_to, position)

    def stored(self, record: Record) -> None:
        """This gateway has written a record of the topic; it will come to `fold`."""
        self._stored_to = max(self._stored_to, record.offset() + 1)

    async def caught_up(self) -> None:
        """Returns once what this gateway has written and acknowledged so far is folded."""
        target = self._stored_to
        while self._folded_to < target:
            folded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(folded)
            await folded

    def fold(self, record: Record) -> None:
        """Takes one record of the topic, in the order of its offsets."""
        self._fold(record)
        self._folded_to = max(self._folded_to, record.offset() + 1)
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for folded in waiting:
                if not folded.done():
                    folded.set_result(None)

    def _fold(self, record: Record) -> None:
        topic, payload = (record.key() or b"").decode(errors="replace"), record.value()
        if not payload:
            self._by_topic.pop(topic, None)
            return
        try:
            place = (-1, record.offset(), record.timestamp()[1])
            self._by_topic[topic] = message_of(topic, payload, record.headers() or [], place)
        except RecordError as error:
            log.warning("retained message unreadable", topic=topic, reason=str(error))

    def matching(self, topic_filter: str, now_ms: int) -> Iterator[Message]:
        """Retained messages whose topic matches and whose time is not over."""
        if "+" not in topic_filter and "#" not in topic_filter:
            found = self._by_topic.get(topic_filter)
            candidates = [found] if found is not None else []
        else:
            candidates = [m for topic, m in self._by_topic.items() if matches(topic_filter, topic)]
        for message in candidates:
            if message.expires is None or message.expires > now_ms:
                yield message
