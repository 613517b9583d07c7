"""Applying instructions on `egress`: each once, matched with the shard's subscriptions (R2, R4, R8, M14)."""

from collections.abc import Callable

import structlog

from gateway.record import Record
from gateway.shard.delivery import Deliverer
from gateway.shard.direct_deliveries import DirectDeliveries
from gateway.shard.egress_flow import EgressFlow
from gateway.shard.feed_consumer import FeedConsumer
from gateway.shard.ingress_fences import IngressFences
from gateway.shard.ingress_record import IngressRecord
from gateway.shard.messages import Delivery, Message, PendingMessage, message_of
from gateway.shard.node import Node
from gateway.shard.offering import Offering, find_matches, slices
from gateway.shard.quarantine import quarantine
from gateway.shard.shard import Shard
from gateway.shard.shard_spool import ShardSpool
from gateway.shard.share_messages import ShareMessage, decode, sender_of
from gateway.shard.share_senders import ShareSenders
from gateway.shard.subscription import SessionSubscription, get_by_instruction
from gateway.shard.trie import Search
from gateway.shard.window import Copy
from gateway.shard.work import RECIPIENT, RECORD, Steps
from schemas.cluster_topics import FENCES_TOPIC
from schemas.envelope import EVERYONE, MOST_OFFSET, ROUTED, Instruction
from schemas.errors import RecordError
from schemas.feed_topics import FEEDS_PREFIX
from schemas.identity import INBOX_MARK

LARGE = 200
"""A message with more matching subscriptions, or more nodes to search, is offered in steps."""

log = structlog.get_logger(__name__)


class EgressConsumer:
    """Applies to one shard its records of `egress`, and passes on those of `ingress`: what concerns one partition of
    `ingress` in the order there (:mod:`gateway.shard.delivery_order`). Work in steps: see
    :mod:`gateway.shard.record_batches`. `receive` takes what other homes say about share groups, as far as it counts by
    `senders`. `fences` are those on `ingress`, where gateways share the shards.
    """

    def __init__(
        self,
        node: Node,
        shard: Shard,
        spool: ShardSpool,
        deliverer: Deliverer,
        direct: DirectDeliveries,
        offering: Offering,
        flow: EgressFlow,
        feeds: FeedConsumer,
        receive: Callable[[ShareMessage], None],
        senders: ShareSenders,
        fences: IngressFences | None = None,
    ) -> None:
        self._node = node
        self._shard = shard
        self._order = shard.order
        self._spool = spool
        self._deliverer = deliverer
        self._direct = direct
        self._offering = offering
        self._flow = flow
        self._feeds = feeds
        self._receive = receive
        self._senders = senders
        self._fences = fences
        self._partitions = node.settings.kafka.ingress_partitions
        self._was_at = -1

    def apply(self, record: Record) -> Steps[None] | None:
        """Applies an instruction, or parks it if it must wait; returns the remaining work."""
        order = self._order
        if record.offset() > self._shard.position:
            self._note_deleted(record.offset())
        self._shard.received(record.offset())
        key = record.key()
        if key is not None and key.startswith(FEEDS_PREFIX):
            try:
                found = self._feeds.read(record)
            except RecordError as error:
                return self._refuse(record, str(error))
            if found is not None:
                return self._feeds.apply(found, record.offset())
        if order.passed_to is not None or order.parked:
            place = self._place_of(record)
            if place is not None and order.must_park(*place):
                order.park(*place, record)
                return None
        return self._instruct(record)

    def read(self, read: IngressRecord) -> Steps[None]:
        """Takes a record of `ingress`, if the shard's reader wants it."""
        return self._direct.receive(read)

    @property
    def waits(self) -> bool:
        """Whether records wait for others, or for the spool."""
        return bool(self._order.parked or self._order.waiting)

    @property
    def is_paused(self) -> bool:
        """Whether no more is read of `egress` for now."""
        return self._flow.is_paused

    def reconsider(self) -> Steps[None]:
        """Applies what waits no more."""
        has_gone_on = True
        while has_gone_on:  # what one way lets go may be what the other waits for
            has_gone_on = False
            for record in self._order.unparked():
                has_gone_on = True
                rest = self._instruct(record)
                if rest is not None:
                    yield from rest
                if self._node.work.spend(RECORD):
                    yield False
            has_gone_on |= yield from self._direct.reconsider()

    def adjust(self) -> None:
        """Pauses reading of `egress`, or resumes it, after a batch of records."""
        self._feeds.adjust()
        self._flow.adjust(direct_deliveries_wait=bool(self._order.waiting))

    def _place_of(self, instruction: Record) -> tuple[int, int] | None:
        """Partition and offset on `ingress` of an instruction's message; None if it does not say, or cannot be."""
        headers = instruction.headers() or []
        try:
            partition, offset = map(int, headers[4][1].split(b";", 2)[:2])
        except (IndexError, ValueError, AttributeError):
            return None
        return (partition, offset) if 0 <= partition < self._partitions and 0 <= offset <= MOST_OFFSET else None

    async def pass_deleted(self) -> bool:
        """Waits no longer for records from before the start of which none is left; whether it has. Call it every second
        or so: it asks Kafka only if nothing has come since the last call. Raises BusError."""
        shard, was_at = self._shard, self._was_at
        at = self._was_at = shard.position
        if at != was_at or at >= shard.reread_to or self.is_paused:
            return False
        first = (await self._node.bus.first_offsets(self._node.topics.egress, {shard.number: at}))[shard.number]
        if shard.position != at or first == at:
            return False
        self._note_deleted(first)
        shard.received(first - 1)
        return True

    def _note_deleted(self, position: int) -> None:
        """Records that are due do not come: Kafka has deleted them while no gateway had the shard."""
        shard = self._shard
        unfinished = shard.deleted_before(position)
        if unfinished or position > shard.recovered_to:
            log.error(
                "records of egress were deleted before they were read: see kafka.retention_days",
                shard=shard.number,
                position=shard.position,
                next=position,
                unfinished=len(unfinished),
            )

    def _refuse(self, record: Record, reason: str) -> Steps[None] | None:
        """A record about feeds that cannot be read, or is not wanted any more; nothing, if it was applied before a
        restart."""
        shard, position = self._shard, record.offset()
        if position < shard.recovered_to and position not in shard.unfinished:
            return None
        shard.take_unfinished(position)
        quarantine(self._node, record, reason)
        return self._feeds.refused(position)

    def _instruct(self, record: Record) -> Steps[None] | None:
        """Drops an instruction that is a copy, else offers its message to every session that wants it. Returns the
        remaining work if there are many."""
        shard, position = self._shard, record.offset()
        is_reread = position in shard.unfinished
        if position < shard.recovered_to and not is_reread:
            return None
        is_joined = is_reread and shard.take_unfinished(position)
        try:
            headers = record.headers() or []
            instruction = Instruction.decode(headers[4][1])
            if instruction.scope not in (ROUTED, EVERYONE):
                raise RecordError(f"instruction scope {instruction.scope!r} is unknown")
            partition, offset = instruction.partition, instruction.offset
            if partition >= self._partitions:
                raise RecordError(f"ingress has no partition {partition}")
            if not is_reread and self._order.copies.seen(instruction.scope, partition, offset):
                self._node.counts["copies_dropped"] += 1
                return None
            topic = (record.key() or b"").decode()
            message = message_of(topic, record.value() or b"", headers, (partition, offset, instruction.appended))
        except (RecordError, IndexError, UnicodeDecodeError, AttributeError) as error:
            if self._is_share_message(record):
                return None
            if (bad := self._place_of(record)) is not None:
                self._order.discard(*bad)
            quarantine(self._node, record, str(error))
            return None
        finished, pending_since = shard.finished.take(position), self._node.clock()
        if is_reread:
            pending_since = min(pending_since, message.appended / 1000)
            copy: Copy = "of the other scope" if is_joined else "first"
        else:
            copy = self._order.copies.accept(instruction.scope, partition, offset)
        if copy != "first":
            self._join(message, instruction, position)
            return None
        left = self._order.take_left(message.partition, message.offset) if self._order.left else ()
        pending = PendingMessage(
            message, shard.number, position, pending_since, [instruction], done=finished, left=left
        )
        if message.bundle is not None and not is_reread and not self._offering.takes_bundle(message):
            self._deliverer.offered(pending)  # to nobody: its instruction is relinquished
            return None
        if self._fences is not None and not is_reread and self._is_for_nobody(record, message, self._fences):
            self._deliverer.offered(pending)
            return None
        if topic.startswith(INBOX_MARK):
            self._offer_inbox(pending)
            return None
        found = shard.trie.begin(topic, LARGE)
        if isinstance(found, Search) or len(found) > LARGE:
            return self._offer_many(pending)
        self._node.work.spent += len(found) * RECIPIENT
        self._offering.offer_at_once(pending, get_by_instruction(pending, found) if found else ())
        return None

    @staticmethod
    def _is_for_nobody(record: Record, message: Message, fences: IngressFences) -> bool:
        """Whether a message is a fence, which is taken, or void behind one."""
        if message.topic == FENCES_TOPIC:
            fences.read(record, (message.partition, message.offset))
            return True
        return message.epoch is not None and fences.drops(message)

    def _is_share_message(self, record: Record) -> bool:
        """Takes what another home says about share groups; not what was there before this home has started, nor what
        comes from a home that another one has followed. Only a record without an instruction is looked at, so that
        instructions do not pay for it."""
        headers = record.headers() or []
        try:
            message = decode(record.value() or b"", headers)
            if message is None:
                return False
            if record.offset() < self._shard.reread_to:
                return True
            if self._senders.counts(sender_of(headers)):
                self._node.ready.post(self._receive, message)
            else:
                self._node.counts["share_messages_fenced"] += 1
        except RecordError as error:
            quarantine(self._node, record, str(error))
        return True

    def _join(self, message: Message, instruction: Instruction, position: int) -> None:
        """An instruction of the other scope is relinquished with the message; at once if that is done."""
        shard, place = self._shard, (message.partition, message.offset)
        pending, mid = shard.find_live(place), shard.spooled.get(place)
        if pending is not None:
            pending.instructions.append(instruction)
            pending.copies += (position,)
        elif mid is not None:
            self._spool.add_instruction(mid, message, instruction)
        else:
            self._node.reporter.relinquish_later(message, shard.number, [instruction])

    def _offer_inbox(self, pending: PendingMessage) -> None:
        message = pending.message
        session = self._shard.sessions.get(message.topic.removeprefix(INBOX_MARK))
        if session is not None and pending.position >= session.since and session.client not in pending.done:
            self._deliverer.offer(session, pending, Delivery(session.client, pending, message.qos, False, ()))
        self._deliverer.offered(pending)

    def _offer_many(self, pending: PendingMessage) -> Steps[None]:
        found = yield from find_matches(self._shard, pending.message.topic, self._node.work)
        routed = list[SessionSubscription]()
        for part in slices(found):
            routed += get_by_instruction(pending, part)
            if self._node.work.spend(len(part)):
                yield True
        yield from self._offering.offer(pending, routed)
