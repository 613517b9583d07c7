"""Own copies: messages that sessions get from `ingress` itself, for their route is not in effect yet, and in which
order they come with those that routers bring (R8).

A sender's messages share a partition of `ingress`. Two things wait, each only for what is earlier in its partition, so
that nobody waits in a circle:

* an instruction waits until the reader has passed its message (:meth:`InstantReader.is_behind`);
* an own copy waits until the shard has got the instructions for earlier messages. Which are to come is known exactly,
  for routing is a pure function of the routes: :meth:`Shard.expect` notes it of every record that the reader passes.

What waits is not passed, nor is what follows it in its partition: a restart reads it again. Routers may be away for
long; so what waits in memory is bounded, and beyond that the reader pauses and later goes back.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gateway.record import Record
from gateway.shard.ingress_reader import IngressRecord
from gateway.shard.instant import InstantReader
from gateway.shard.messages import Held, message_of
from gateway.shard.node import Node
from gateway.shard.offering import Offering
from gateway.shard.outage import SpoolOutage
from gateway.shard.routes import ShardRoutes
from gateway.shard.shard import Shard
from gateway.shard.subscription import SessionSubscription
from gateway.shard.work import RECORD, SLICE, Steps, Work
from schemas.envelope import INGRESS_HEADERS
from schemas.errors import RecordError
from schemas.identity import INBOX_MARK, shard_of


class Newer(NamedTuple):
    """The subscriptions that match a record and whose route is not in effect for it yet: `early` get it as an own copy;
    those of the clients `left` leave it to an older subscription, which an instruction brings it."""

    early: Sequence[SessionSubscription]
    left: Sequence[str]


_NOBODY = Newer((), ())


class _Waiting:
    """Records of a partition that wait, in order."""

    __slots__ = ("records", "size")

    def __init__(self) -> None:
        self.records: deque[IngressRecord] = deque()
        self.size = 0

    def append(self, read: IngressRecord) -> None:
        self.records.append(read)
        self.size += len(read.record.value() or b"")

    def popleft(self) -> IngressRecord:
        read = self.records.popleft()
        self.size -= len(read.record.value() or b"")
        return read


class OwnCopies:
    """Takes the records of `ingress` that the instant reader gets, and offers them to those sessions of the shard that
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
        instant: InstantReader,
    ) -> None:
        self._node = node
        self._shards = node.settings.kafka.shards
        self._shard = shard
        self._routes = routes
        self._outage = outage
        self._offering = offering
        self._instant = instant
        limits, partitions = node.settings.gateway.limits, node.settings.kafka.ingress_partitions
        self._most = max(1, limits.held_back_messages // partitions)
        self._most_bytes = limits.held_back_bytes // partitions
        self._waiting: dict[int, _Waiting] = {}

    @property
    def held_back(self) -> int:
        """How many records wait."""
        return sum(len(waiting.records) for waiting in self._waiting.values())

    def receive(self, read: IngressRecord) -> Steps[None]:
        """The next record of its partition."""
        record = read.record
        if not self._instant.takes(record):
            return
        waiting = self._waiting.get(record.partition())
        if waiting is None:
            if (yield from self._offer(read)):
                self._instant.passed(record)
                return
            waiting = self._waiting[record.partition()] = _Waiting()
        elif len(waiting.records) >= self._most or waiting.size >= self._most_bytes:
            self._node.counts["held_back_full"] += 1
            self._instant.pause(record)
            return
        waiting.append(read)
        self._instant.received(record)

    def reconsider(self) -> Steps[bool]:
        """Offers what waits no more; whether there was any."""
        offered, work = False, self._node.work
        for partition, waiting in list(self._waiting.items()):
            while waiting.records and (yield from self._offer(waiting.records[0])):
                self._instant.passed(waiting.popleft().record)
                offered = True
                if work.spend(RECORD):
                    yield False
            if not waiting.records:
                del self._waiting[partition]
                self._instant.go_on(partition)
        return offered

    def _offer(self, read: IngressRecord) -> Steps[bool]:
        """Offers a record to the subscriptions it is an own copy for; False if it must wait: for instructions, or for a
        spool that is to keep it."""
        if self._outage.is_full:
            return False
        record, topic = read.record, read.topic
        if topic is None:
            return True  # no subscription can match it
        newer = _NOBODY if topic.startswith(INBOX_MARK) else (yield from self._newer(topic, record))
        if newer.early and self._shard.is_ahead_of_routers(record.partition(), record.offset()):
            return False
        self._expect(topic, read, newer.left)
        if newer.early:
            yield from self._offer_early(topic, record, newer.early)
        return True

    def _newer(self, topic: str, record: Record) -> Steps[Newer]:
        """The subscriptions whose route is not in effect for the record yet."""
        place, work = (record.partition(), record.offset(), record.timestamp()[1]), self._node.work
        subscriptions = yield from found_in(self._shard, topic, work)
        newer, routed = list[SessionSubscription](), set[str]()
        for part in slices(subscriptions):
            self._instant.divide(part, place, newer, routed)
            if work.spend(len(part)):
                yield True
        if not newer:
            return _NOBODY
        early = [s for s in newer if s.client not in routed]
        return Newer(early, sorted({s.client for s in newer if s.client in routed}))

    def _expect(self, topic: str, read: IngressRecord, left: Sequence[str]) -> None:
        """Notes whether the shard gets an instruction for the record, and who of the newer leaves the record to it;
        routers decide by the same rules."""
        record, shard = read.record, self._shard
        if record.key() is None or tuple(name for name, _ in record.headers() or ()) != INGRESS_HEADERS:
            return  # routers leave it out
        partition, offset = record.partition(), record.offset()
        if topic.startswith(INBOX_MARK):
            if shard_of(topic.removeprefix(INBOX_MARK), self._shards) == shard.number:
                shard.expect(partition, offset)
            return
        if left:
            shard.left[partition, offset] = left
        if self._routes.is_in_effect(read.keys, record.timestamp()[1]):
            shard.expect(partition, offset)

    def _offer_early(self, topic: str, record: Record, early: Sequence[SessionSubscription]) -> Steps[None]:
        place = (record.partition(), record.offset(), record.timestamp()[1])
        try:
            message = message_of(topic, record.value() or b"", record.headers() or [], place)
        except RecordError:
            return  # the ledger quarantines what cannot be parsed on `ingress`
        yield from self._offering.offer(Held(message, self._shard.number, -1, self._node.clock(), []), early)


def slices(subscriptions: Sequence[SessionSubscription]) -> Iterable[Sequence[SessionSubscription]]:
    """As much of them at a time as is not interrupted."""
    if len(subscriptions) <= SLICE:
        return (subscriptions,) if subscriptions else ()
    return (subscriptions[start : start + SLICE] for start in range(0, len(subscriptions), SLICE))


def found_in(shard: Shard, topic: str, work: Work) -> Steps[list[SessionSubscription]]:
    """The shard's subscriptions that match."""
    found = shard.trie.begin(topic, SLICE)
    if isinstance(found, list):
        return found
    while True:
        if work.spend(SLICE):
            yield True
        if found.run(SLICE):
            return found.found
