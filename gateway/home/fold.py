"""The fold over `egress`: each instruction once, matched with the shard's subscriptions (R2, R4, R8, M14)."""

from collections.abc import Sequence

import structlog

from gateway.bus import Record
from gateway.home.context import HomeContext
from gateway.home.delivery import Deliverer
from gateway.home.egress_flow import EgressFlow
from gateway.home.instant import InstantReader, place_of
from gateway.home.messages import Entry, Held, Message, message_of
from gateway.home.own_copies import OwnCopies, note_live, wanted
from gateway.home.quarantine import quarantine
from gateway.home.session import SessionSubscription
from gateway.home.shard import Shard
from schemas.envelope import EVERYONE, ROUTED, Instruction
from schemas.errors import RecordError
from schemas.identity import INBOX_MARK

log = structlog.get_logger(__name__)


class Fold:
    """Applies records of `egress`, `ingress` (while the instant reader wants them), `retained` and message presence:
    those that concern one partition of `ingress` in its order, whichever way they come."""

    def __init__(
        self, context: HomeContext, deliverer: Deliverer, instant: InstantReader, own: OwnCopies, flow: EgressFlow
    ) -> None:
        self._context = context
        self._deliverer = deliverer
        self._instant = instant
        self._own = own
        self._flow = flow
        self._egress = context.topics.egress
        self._ingress = context.topics.ingress
        self._retained = context.topics.retained

    def records(self, batch: list[Record]) -> None:
        """One batch of the consumer."""
        for record in batch:
            topic = record.topic()
            if topic == self._egress:
                self._receive(record)
            elif topic == self._ingress:
                self._own.receive(record)
            elif topic == self._retained:
                self._context.retained.fold(record)
            else:
                self._context.message_presence.fold(record)
        while self._unpark() | self._own.reconsider():  # what one lets go may be what the other waits for
            pass
        self._flow.adjust(own_copies_wait=self._own.held_back > 0)
        self._deliverer.flush()

    def _receive(self, record: Record) -> None:
        """Applies an instruction, or parks it if the reader has not passed its message."""
        shard = self._context.shards[record.partition()]
        shard.position = record.offset() + 1
        if self._instant.positions is not None or shard.parked:
            place = place_of(record)
            if place is not None and (place[0] in shard.parked or self._instant.is_behind(*place)):
                shard.park(*place, record)
                return
        self._instruct(shard, record)

    def _unpark(self) -> bool:
        """Applies what waits no more; whether there was any."""
        applied = False
        for shard in self._context.shards:
            for partition, parked in list(shard.parked.items()):
                while parked and not self._instant.is_behind(partition, parked[0][0]):
                    self._instruct(shard, shard.unpark(partition))
                    applied = True
        return applied

    def _instruct(self, shard: Shard, record: Record) -> None:
        """One instruction: dropped if it is a copy, else offered to every session that wants it."""
        position = record.offset()
        replayed = position in shard.unfinished
        if position < shard.recovered_to and not replayed:
            return
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
            quarantine(self._context, record, str(error))
            return
        finished: Sequence[str] = ()
        held_at = self._context.clock()
        if replayed:
            finished, held_at = shard.unfinished.pop(position), min(held_at, message.appended / 1000)
            if position in shard.copies:
                shard.copies.remove(position)
                self._join(shard, message, instruction, position)
                return
        elif self._is_copy(shard, instruction, message, position):
            return
        left = shard.left.pop((message.partition, message.offset), ()) if shard.left else ()
        held = Held(message, shard.number, position, held_at, [instruction], done=finished, left=left)
        if topic.startswith(INBOX_MARK):
            self._offer_inbox(shard, held)
        else:
            found_subscriptions = shard.trie.match(topic)
            if found_subscriptions:
                self._offer_matches(shard, held, found_subscriptions)
        self._deliverer.offered(held)

    def _is_copy(self, shard: Shard, instruction: Instruction, message: Message, position: int) -> bool:
        """Whether the shard has this message already: from the other router, or by a decision of the other scope; in
        the latter case the message's present holder relinquishes this instruction as well."""
        offset = instruction.offset
        own, other = shard.windows(instruction.scope, instruction.partition)
        if not own.accept(offset):
            self._context.counts["copies_dropped"] += 1
            return True
        if not other.seen(offset):
            return False
        self._join(shard, message, instruction, position)
        return True

    def _join(self, shard: Shard, message: Message, instruction: Instruction, position: int) -> None:
        """A further instruction for a message is relinquished with it; at once if the message is done."""
        place = (message.partition, message.offset)
        held, mid = shard.find_live(place), shard.spooled.get(place)
        if held is not None:
            held.instructions.append(instruction)
            held.copies += (position,)
        elif mid is not None:
            new_mid = self._context.new_mid()
            self._context.batch.instructions.append((mid, new_mid, shard.number, message, instruction))
        else:
            self._context.reporter.relinquish(Held(message, shard.number, -1, 0, [instruction]), replayed=True)

    def _offer_inbox(self, shard: Shard, held: Held) -> None:
        message = held.message
        session = shard.sessions.get(message.topic.removeprefix(INBOX_MARK))
        if session is not None and held.position >= session.since and session.client not in held.done:
            self._deliverer.offer(session, held, Entry(session.client, held, message.qos, False, ()))

    def _offer_matches(self, shard: Shard, held: Held, subscriptions: list[SessionSubscription]) -> None:
        message = held.message
        appended, partition, offset = message.appended, message.partition, message.offset
        routed = [s for s in subscriptions if s.is_routed(partition, offset, appended)]
        if held.left:
            left = [s for s in subscriptions if s.client in held.left and s.is_older(partition, offset)]
            routed += [s for s in left if not s.is_routed(partition, offset, appended)]
        for client, (qos, retain, identifiers) in wanted(message, routed):
            session = shard.sessions[client]
            if client in held.done or held.position < session.since or message.id in session.retained_sent:
                continue
            if session.subscribing:
                note_live(session, message)
            self._deliverer.offer(session, held, Entry(client, held, qos, retain, identifiers))
