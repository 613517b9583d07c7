"""The fold over `egress`: each instruction once, matched with the shard's subscriptions (R2, R4, R8, M14)."""

from collections.abc import Sequence

import structlog

from gateway.record import Record
from gateway.shard.delivery import Deliverer
from gateway.shard.egress_flow import EgressFlow
from gateway.shard.ingress_reader import IngressRecord
from gateway.shard.instant import InstantReader, place_of
from gateway.shard.messages import Entry, Held, Message, message_of
from gateway.shard.node import Node
from gateway.shard.offering import Offering
from gateway.shard.own_copies import OwnCopies, found_in, slices
from gateway.shard.quarantine import quarantine
from gateway.shard.shard import Shard
from gateway.shard.shard_spool import ShardSpool
from gateway.shard.subscription import SessionSubscription
from gateway.shard.trie import Search
from gateway.shard.work import RECIPIENT, RECORD, Steps
from schemas.envelope import EVERYONE, ROUTED, Instruction
from schemas.errors import RecordError
from schemas.identity import INBOX_MARK

log = structlog.get_logger(__name__)


LARGE = 200
"""A message with more matching subscriptions, or more nodes to search, is offered in steps."""


class Fold:
    """Applies to one shard its records of `egress`, and those of `ingress` while its instant reader wants them: what
    concerns one partition of `ingress` in the order there, whichever way it comes. Work in steps: see
    :mod:`gateway.shard.record_batches`.
    """

    def __init__(
        self,
        node: Node,
        shard: Shard,
        spool: ShardSpool,
        deliverer: Deliverer,
        instant: InstantReader,
        own: OwnCopies,
        offering: Offering,
        flow: EgressFlow,
    ) -> None:
        self._node = node
        self._shard = shard
        self._spool = spool
        self._deliverer = deliverer
        self._instant = instant
        self._own = own
        self._offering = offering
        self._flow = flow

    def instruction(self, record: Record) -> Steps[None] | None:
        """Applies an instruction, or parks it if the reader has not passed its message; returns the remaining work."""
        shard = self._shard
        shard.position = record.offset() + 1
        if self._instant.positions is not None or shard.parked:
            place = place_of(record)
            if place is not None and (place[0] in shard.parked or self._instant.is_behind(*place)):
                shard.park(*place, record)
                return None
        return self._instruct(record)

    def direct(self, read: IngressRecord) -> Steps[None]:
        """Takes a record of `ingress`, if the shard's reader wants it."""
        return self._own.receive(read)

    @property
    def waits(self) -> bool:
        """Whether records wait for others, or for the spool."""
        return bool(self._shard.parked or self._own.held_back)

    @property
    def is_paused(self) -> bool:
        """Whether no more is read of `egress` for now."""
        return self._flow.is_paused

    def reconsider(self) -> Steps[None]:
        """Applies what waits no more."""
        while True:  # what one lets go may be what the other waits for
            has_unparked = yield from self._unpark()
            has_offered = yield from self._own.reconsider()
            if not (has_unparked or has_offered):
                return

    def adjust(self) -> None:
        """Pauses reading of `egress`, or resumes it, after a batch of records."""
        self._flow.adjust(own_copies_wait=self._own.held_back > 0)

    def _unpark(self) -> Steps[bool]:
        """Applies what waits no more; whether there was any."""
        applied, work, shard = False, self._node.work, self._shard
        for partition, parked in list(shard.parked.items()):
            while parked and not self._instant.is_behind(partition, parked[0][0]):
                rest = self._instruct(shard.unpark(partition))
                if rest is not None:
                    yield from rest
                applied = True
                if work.spend(RECORD):
                    yield False
        return applied

    def _instruct(self, record: Record) -> Steps[None] | None:
        """Drops an instruction that is a copy, else offers its message to every session that wants it. Returns the
        remaining work if there are many."""
        shard, position = self._shard, record.offset()
        replayed = position in shard.unfinished
        if position < shard.recovered_to and not replayed:
            return None
        try:
            headers = record.headers() or []
            instruction = Instruction.decode(headers[4][1])
            if instruction.scope not in (ROUTED, EVERYONE):
                raise RecordError(f"instruction scope {instruction.scope!r} is unknown")
            topic = (record.key() or b"").decode()
            place = (instruction.partition, instruction.offset, instruction.appended)
            message = message_of(topic, record.value() or b"", headers, place)
        except (RecordError, IndexError, UnicodeDecodeError, AttributeError) as error:
            shard.unfinished.pop(position, None)
            if (bad := place_of(record)) is not None:
                shard.hear(*bad)
                shard.left.pop(bad, None)
            quarantine(self._node, record, str(error))
            return None
        finished, held_at = shard.finished.take(position), self._node.clock()
        if replayed:
            shard.unfinished.pop(position)
            held_at = min(held_at, message.appended / 1000)
            if position in shard.copies:
                shard.copies.remove(position)
                self._join(message, instruction, position)
                return None
        elif self._is_copy(instruction, message, position):
            return None
        left = shard.left.pop((message.partition, message.offset), ()) if shard.left else ()
        held = Held(message, shard.number, position, held_at, [instruction], done=finished, left=left)
        if topic.startswith(INBOX_MARK):
            self._offer_inbox(held)
            self._deliverer.offered(held)
            return None
        found = shard.trie.begin(topic, LARGE)
        if isinstance(found, Search) or len(found) > LARGE:
            return self._offer_many(held)
        if found:
            self._node.work.spent += len(found) * RECIPIENT
            self._offering.offer_at_once(held, routed_of(held, found))
        else:
            self._deliverer.offered(held)
        return None

    def _is_copy(self, instruction: Instruction, message: Message, position: int) -> bool:
        """Whether the shard has this message already: from the other router, or by a decision of the other scope; in
        the latter case the message's present holder relinquishes this instruction as well."""
        offset = instruction.offset
        own, other = self._shard.windows(instruction.scope, instruction.partition)
        if not own.accept(offset):
            self._node.counts["copies_dropped"] += 1
            return True
        if not other.seen(offset):
            return False
        self._join(message, instruction, position)
        return True

    def _join(self, message: Message, instruction: Instruction, position: int) -> None:
        """A further instruction for a message is relinquished with it; at once if the message is done."""
        shard, place = self._shard, (message.partition, message.offset)
        held, mid = shard.find_live(place), shard.spooled.get(place)
        if held is not None:
            held.instructions.append(instruction)
            held.copies += (position,)
        elif mid is not None:
            self._spool.add_instruction(mid, message, instruction)
        else:
            self._node.reporter.relinquish_later(message, shard.number, [instruction])

    def _offer_inbox(self, held: Held) -> None:
        message = held.message
        session = self._shard.sessions.get(message.topic.removeprefix(INBOX_MARK))
        if session is not None and held.position >= session.since and session.client not in held.done:
            self._deliverer.offer(session, held, Entry(session.client, held, message.qos, False, ()))

    def _offer_many(self, held: Held) -> Steps[None]:
        found = yield from found_in(self._shard, held.message.topic, self._node.work)
        routed = list[SessionSubscription]()
        for part in slices(found):
            routed += routed_of(held, part)
            if self._node.work.spend(len(part)):
                yield True
        yield from self._offering.offer(held, routed)


def routed_of(held: Held, subscriptions: Sequence[SessionSubscription]) -> list[SessionSubscription]:
    """The subscriptions that get the message by an instruction."""
    message = held.message
    appended, partition, offset = message.appended, message.partition, message.offset
    routed = [s for s in subscriptions if s.is_routed(partition, offset, appended)]
    if held.left:
        left = [s for s in subscriptions if s.client in held.left and s.is_older(partition, offset)]
        routed += [s for s in left if not s.is_routed(partition, offset, appended)]
    return routed
