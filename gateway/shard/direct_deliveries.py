"""Direct deliveries: messages on `ingress` that sessions get without an instruction, as their route is not in effect.

What must wait (:mod:`gateway.shard.delivery_order`) is not passed, nor is what follows it in its partition. Routers may
be away for long; so what waits in memory is bounded, and beyond that the reader pauses and later goes back.
"""

from collections.abc import Sequence

from gateway.record import Record
from gateway.shard.catch_up_reader import IngressCatchUpReader
from gateway.shard.feed_records import is_marked
from gateway.shard.feed_writer import FeedWriter
from gateway.shard.ingress_fences import IngressFences
from gateway.shard.ingress_record import IngressRecord
from gateway.shard.messages import PendingMessage, message_of
from gateway.shard.node import Node
from gateway.shard.offering import Offering, find_matches, slices
from gateway.shard.outage import SpoolOutage
from gateway.shard.routes import ShardRoutes
from gateway.shard.shard import Shard
from gateway.shard.subscription import SessionSubscription, divide
from gateway.shard.work import RECORD, Steps
from schemas.cluster_topics import FENCES_TOPIC
from schemas.envelope import INGRESS_HEADERS
from schemas.errors import RecordError
from schemas.feed_topics import is_feed
from schemas.identity import INBOX_MARK, shard_of


class DirectDeliveries:
    """Takes the records of `ingress` that the catch-up reader gets, and offers them to those sessions of the shard that
    no instruction brings them.

    Holds at most `limits.held_back_messages` of them and `limits.held_back_bytes`, shared by the partitions evenly; of
    each partition one may be larger.
    """

    def __init__(
        self,
        node: Node,
        shard: Shard,
        routes: ShardRoutes,
        outage: SpoolOutage,
        offering: Offering,
        reader: IngressCatchUpReader,
        feeds: FeedWriter,
        fences: IngressFences | None = None,
    ) -> None:
        self._node = node
        self._shards = node.settings.kafka.shards
        self._shard = shard
        self._order = shard.order
        self._routes = routes
        self._outage = outage
        self._offering = offering
        self._reader = reader
        self._feeds = feeds
        self._fences = fences
        limits, partitions = node.settings.gateway.limits, node.settings.kafka.ingress_partitions
        self._most = max(1, limits.held_back_messages // partitions)
        self._most_bytes = limits.held_back_bytes // partitions

    def receive(self, read: IngressRecord) -> Steps[None]:
        """The next record of its partition."""
        record = read.record
        if not self._reader.takes(record):
            return
        waiting = self._order.waiting.get(record.partition())
        if waiting is not None and (len(waiting.items) >= self._most or waiting.bytes >= self._most_bytes):
            self._node.counts["held_back_full"] += 1
            self._reader.pause(record.partition())
        elif waiting is None and (yield from self._offer(read)):
            self._order.passed(record.partition(), record.offset())
        else:
            self._order.wait(read)

    def reconsider(self) -> Steps[bool]:
        """Offers what waits no more; whether there was any."""
        offered, work = False, self._node.work
        for partition, waiting in list(self._order.waiting.items()):
            while waiting.items and (yield from self._offer(waiting.items[0][1])):
                self._order.passed(partition, waiting.first_offset)
                offered = True
                if work.spend(RECORD):
                    yield False
            if not waiting.items:
                self._reader.go_on(partition)
        return offered

    def _offer(self, read: IngressRecord) -> Steps[bool]:
        """Offers a record to the subscriptions that get it directly; False if it must wait: for instructions, or for a
        spool that is to keep it."""
        if self._outage.is_full:
            return False
        record, topic = read.record, read.topic
        if topic is None:
            return True  # no subscription can match it
        if self._fences is not None and topic == FENCES_TOPIC:
            self._fences.read(record, (record.partition(), record.offset()))
            self._expect(topic, read, ())
            return True
        if is_feed(topic) and is_marked(record):
            yield from self._merge(topic, read)
            return True
        direct, left = ((), ()) if topic.startswith(INBOX_MARK) else (yield from self._newer(topic, record))
        if direct and self._order.must_wait(record.partition(), record.offset(), self._shard.position):
            return False
        self._expect(topic, read, left)
        if direct:
            yield from self._deliver(topic, record, direct)
        return True

    def _merge(self, topic: str, read: IngressRecord) -> Steps[None]:
        """A copy of a redundant feed's message is merged with the others, on `egress`, whoever gets it; unless it comes
        there by itself."""
        record = read.record
        if not self._routes.is_in_effect(read.keys, record.timestamp()[1]):
            newer, _ = yield from self._newer(topic, record)
            if newer:
                self._feeds.copy(record)

    def _newer(self, topic: str, record: Record) -> Steps[tuple[Sequence[SessionSubscription], Sequence[str]]]:
        """The subscriptions whose route is not in effect for the record yet and that get it directly; and the clients
        whose newer ones leave it to an older one, which an instruction brings it."""
        place, work = (record.partition(), record.offset(), record.timestamp()[1]), self._node.work
        subscriptions = yield from find_matches(self._shard, topic, work)
        newer, routed = list[SessionSubscription](), set[str]()
        for part in slices(subscriptions):
            divide(part, place, self._reader.done_ms, newer, routed)
            if work.spend(len(part)):
                yield True
        return [s for s in newer if s.client not in routed], sorted({s.client for s in newer if s.client in routed})

    def _expect(self, topic: str, read: IngressRecord, left: Sequence[str]) -> None:
        """Notes whether the shard gets an instruction for the record, and who of the newer leaves the record to it;
        routers decide by the same rules."""
        record = read.record
        if record.key() is None or tuple(name for name, _ in record.headers() or ()) != INGRESS_HEADERS:
            return  # routers leave it out
        if left:
            self._order.leave(record.partition(), record.offset(), left)
        if topic.startswith(INBOX_MARK):
            is_routed = shard_of(topic.removeprefix(INBOX_MARK), self._shards) == self._shard.number
        else:
            is_routed = self._routes.is_in_effect(read.keys, record.timestamp()[1])
        if is_routed:
            self._order.expect(record.partition(), record.offset())

    def _deliver(self, topic: str, record: Record, direct: Sequence[SessionSubscription]) -> Steps[None]:
        place = (record.partition(), record.offset(), record.timestamp()[1])
        try:
            message = message_of(topic, record.value() or b"", record.headers() or [], place)
        except RecordError:
            return  # the ledger quarantines what cannot be parsed on `ingress`
        if self._fences is not None and self._fences.drops(message):
            return
        if message.bundle is not None and not self._offering.takes_bundle(message):
            return
        yield from self._offering.offer(PendingMessage(message, self._shard.number, -1, self._node.clock(), []), direct)
