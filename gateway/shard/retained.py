"""Retained messages: a fold over the compacted topic `retained` (MQTT 5.0, 3.3.1.3)."""

import asyncio
import heapq
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable

import structlog

from gateway.record import Record
from gateway.shard.messages import Message, message_of
from gateway.shard.retained_bundles import NewestBundles
from gateway.shard.retained_expiry import RetainedExpiry
from gateway.shard.retained_fences import RetainedFences, is_mend
from gateway.shard.trie import SubscriptionTrie
from schemas.cluster_topics import FENCES_TOPIC
from schemas.envelope import BundleMark
from schemas.errors import RecordError

_AT_ONCE = 1_000
"""How many nodes of filters, or messages found, are looked at before everybody else has a turn."""

_FENCES = f"{FENCES_TOPIC}/"

log = structlog.get_logger(__name__)


class RetainedMessages:
    """The latest retained message of each topic. Records have the envelope of `ingress`; no value ends a topic's. So
    does a malformed record: compaction leaves nothing else of the topic, and all readers must agree.

    A message that came in a bundle is taken only if it is the newest of its source: an old copy may come late (M14). So
    many sources are remembered as messages are allowed. Where gateways share the shards, what a late copy has
    overwritten is written again (:mod:`gateway.shard.retained_fences`). Without others there is none on the topic.

    `fences` are those of the topic where gateways share the shards (:meth:`share`), None without.
    """

    def __init__(self, limit: int, limit_bytes: int, shards: int) -> None:
        self._shards = shards
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._coming = 0  # written by this gateway and not folded yet: messages, and their bytes
        self._coming_bytes = 0
        self._on_way: dict[int, tuple[str, int]] = {}  # topic and bytes of each of those, in the order of their numbers
        self._last_number = 0
        self._to_fold: deque[tuple[int, int]] = deque()  # (offset, number) of those that Kafka has
        self._by_topic: dict[str, Message] = {}
        self._expiry = RetainedExpiry(self._by_topic, shards)
        self._bundles = NewestBundles(limit)
        self._folded_to = 0
        self._waiting: list[asyncio.Future[None]] = []
        self._awaited: list[tuple[int, asyncio.Future[None]]] = []  # until the topic is folded that far
        self.fences: RetainedFences | None = None
        self._to_count: dict[int, Callable[[], None]] = {}

    def __len__(self) -> int:
        return len(self._by_topic)

    @property
    def folded_to(self) -> int:
        """Up to where the topic is taken."""
        return self._folded_to

    @property
    def size_bytes(self) -> int:
        """The bytes of all messages: topics, payloads and properties."""
        return self._bytes

    def find(self, topic: str) -> Message | None:
        """The retained message of a topic."""
        return self._by_topic.get(topic)

    def has_capacity(self, topic: str, size: int) -> bool:
        """Whether one more may be retained, or `topic` has one that is no smaller; what is on its way counts. `size`:
        as `size_of`, 0 to end what is retained."""
        old, will_be = self._by_topic.get(topic), self._bytes + self._coming_bytes + size
        if not size:
            return True
        if old is None:
            return len(self._by_topic) + self._coming < self._limit and will_be <= self._limit_bytes
        return size <= old.size or will_be - old.size <= self._limit_bytes

    def has_newer(self, topic: str, source: str, bundle: BundleMark) -> bool:
        """Whether this bundle of a sender, or a later one, was taken for the topic, or is on its way."""
        return self._bundles.has_newer(topic, source, bundle)

    def begin(self, position: int) -> None:
        """The topic was read up to `position`."""
        self._folded_to = max(self._folded_to, position)

    def expired(self, shard: int, now_ms: int) -> dict[str, int]:
        """Messages whose time is over, and that this gateway is not replacing: a shard is to end them, as they are its
        clients'. Their offsets by topic."""
        self._expiry.run(now_ms)
        over = self._expiry.over[shard]
        on_way = {topic for topic, _ in self._on_way.values()} if over else ()
        return {topic: message.offset for topic, message in over.items() if topic not in on_way}

    def sent(self, topic: str, size: int, source: str = "", bundle: BundleMark | None = None) -> int:
        """This gateway writes a message of a topic, with a `size` as in `has_capacity`, of the sender `source` if it
        came in a `bundle`; `stored` or `refused` follows, with the number that this gives."""
        self._last_number += 1
        self._on_way[self._last_number] = topic, size
        if bundle is not None:
            self._bundles.writing(self._last_number, topic, source, bundle)
        self._coming += size > 0
        self._coming_bytes += size
        return self._last_number

    def stored(self, number: int, offset: int) -> None:
        """Kafka has a record of this gateway; it will come to `fold`, or has."""
        if offset < self._folded_to:
            self._arrived(number)
        else:
            self._to_fold.append((offset, number))

    def share(self) -> None:
        """Gateways share the shards, so there are fences. Call it before anything is folded."""
        self.fences = RetainedFences(self._shards)

    def when_counts(self, offset: int, then: Callable[[], None]) -> None:
        """Calls `then` once a record that this gateway has written is known to count, at once where that is certain;
        never if it is void."""
        if self.fences is not None and offset >= self._folded_to:
            self._to_count[offset] = then
        elif self.fences is None or not self.fences.is_void(offset):
            then()

    def refused(self, number: int) -> None:
        """Kafka does not take a record of this gateway."""
        self._arrived(number)

    def _arrived(self, number: int) -> None:
        _, size = self._on_way.pop(number)
        self._bundles.written(number)
        self._coming -= size > 0
        self._coming_bytes -= size
        waiting, self._waiting = self._waiting, []
        for folded in waiting:
            if not folded.done():
                folded.set_result(None)

    async def caught_up(self) -> None:
        """Returns once what this gateway has begun to write so far is folded, as far as Kafka takes it."""
        last = self._last_number
        while self._on_way and next(iter(self._on_way)) <= last:
            folded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(folded)
            await folded

    async def reached(self, position: int) -> None:
        """Returns once the topic is folded up to `position`."""
        while self._folded_to < position:
            folded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._awaited.append((position, folded))
            await folded

    def fold(self, record: Record) -> None:
        """Takes one record of the topic, in the order of its offsets."""
        self._fold(record)
        self._folded_to = max(self._folded_to, record.offset() + 1)
        while self._to_fold and self._to_fold[0][0] < self._folded_to:
            self._arrived(self._to_fold.popleft()[1])
        if self._awaited:
            self._notify()
        then = self._to_count.pop(record.offset(), None) if self._to_count else None
        if then is not None and self.fences is not None and not self.fences.is_void(record.offset()):
            then()

    def _notify(self) -> None:
        awaited, self._awaited = self._awaited, []
        for position, folded in awaited:
            if self._folded_to < position:
                self._awaited.append((position, folded))
            elif not folded.done():
                folded.set_result(None)

    def _fold(self, record: Record) -> None:
        try:
            topic, payload = (record.key() or b"").decode(), record.value()
        except UnicodeDecodeError:
            topic = ""
        if not topic:
            log.warning("a record on retained has no topic", key=record.key(), offset=record.offset())
            return
        if topic.startswith(_FENCES):
            if self.fences is not None:
                self.fences.read_fence(record)
            return
        if self.fences is not None:
            kept = self._by_topic.get(topic)
            if not self.fences.counts(topic, record, None if kept is None else kept.offset):
                return
        late_of = self._bundles.take(topic, record)
        if self.fences is not None and late_of is not None:
            if is_mend(record):  # of what counts here: no more, and no less
                late_of = None
            else:
                self.fences.overwritten(topic, record, late_of)
        if late_of is None:
            self._keep(topic, payload, record)

    def _keep(self, topic: str, payload: bytes | None, record: Record) -> None:
        if not payload:
            self._replace(topic, None)
            return
        try:
            place = (-1, record.offset(), record.timestamp()[1])
            self._replace(topic, message_of(topic, payload, record.headers() or [], place))
        except RecordError as error:
            log.warning("cannot read retained message, what was retained ends", topic=topic, reason=str(error))
            self._replace(topic, None)
            if self.fences is not None:
                self.fences.ended(topic, record)

    def _replace(self, topic: str, message: Message | None) -> None:
        old = self._by_topic.get(topic)
        if old is not None:
            self._bytes -= old.size
        if message is None:
            self._by_topic.pop(topic, None)
        else:
            self._by_topic[topic] = message
            self._bytes += message.size
        self._expiry.replaced(topic, old)

    async def matching(self, filters: Iterable[str]) -> AsyncIterator[tuple[str, Message]]:
        """Each filter with each retained message whose topic it matches, as it is when it is given.

        One pass over all topics, however many filters; others have their turns meanwhile.
        """
        wild: SubscriptionTrie[str] = SubscriptionTrie()
        for topic_filter in filters:
            if "+" in topic_filter or "#" in topic_filter:
                wild.add(topic_filter, "", topic_filter)
            elif topic_filter in self._by_topic:
                yield topic_filter, self._by_topic[topic_filter]
        seen = 0
        for topic in list(self._by_topic) if wild else ():
            search = wild.start(topic)
            while not search.run(_AT_ONCE):
                await asyncio.sleep(0)
            seen += search.visited + len(search.found)
            if seen > _AT_ONCE:
                seen = 0
                await asyncio.sleep(0)
            for topic_filter in search.found:
                message = self._by_topic.get(topic)
                if message is not None:  # it may have ended meanwhile
                    yield topic_filter, message

    async def listed(self, prefix: str, after: str, most: int) -> list[Message]:
        """Up to `most` messages whose topics begin with `prefix` and sort after `after`, by topic; others have their
        turns meanwhile."""
        best: list[str] = []
        topics = list(self._by_topic)
        for start in range(0, len(topics), _AT_ONCE):
            part = [t for t in topics[start : start + _AT_ONCE] if t > after and t.startswith(prefix)]
            best = heapq.nsmallest(most, [*best, *part])
            await asyncio.sleep(0)
        found = [self._by_topic.get(topic) for topic in best]
        return [message for message in found if message is not None]  # others have ended meanwhile


def size_of(topic: str, payload: bytes, properties: bytes) -> int:
    """What a retained message counts for the limit, bytes."""
    return len(topic) + len(payload) + len(properties)
