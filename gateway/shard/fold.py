"""The fold over `egress`: each instruction once, matched with the shard's subscriptions (R2, R4, R8, M14)."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

import structlog

from gateway.bus import Record
from gateway.shard.context import HomeContext
from gateway.shard.delivery import Deliverer
from gateway.shard.egress_flow import EgressFlow
from gateway.shard.instant import InstantReader, place_of
from gateway.shard.messages import Entry, Held, Message, message_of
from gateway.shard.offering import Offering
from gateway.shard.own_copies import OwnCopies, found_in, slices
from gateway.shard.quarantine import quarantine
from gateway.shard.session import SessionSubscription
from gateway.shard.shard import Shard
from gateway.shard.trie import Search
from gateway.shard.work import RECIPIENT, RECORD, Steps
from schemas.envelope import EVERYONE, ROUTED, Instruction
from schemas.errors import RecordError
from schemas.identity import INBOX_MARK

log = structlog.get_logger(__name__)


LARGE = 200
"""A message with more matching subscriptions, or more nodes to search, is offered in steps."""

_DONE: Final = object()


class Fold:
    """Applies records of `egress`, `ingress` (while the instant reader wants them), `retained` and message presence:
    those that concern one partition of `ingress` in its order, whichever way they come.

    Records are applied one after the other. Work that exceeds a turn of the event loop continues in the next turn
    (:mod:`gateway.shard.work`), so that expensive records do not delay other connections.
    """

    def __init__(
        self,
        context: HomeContext,
        deliverer: Deliverer,
        instant: InstantReader,
        own: OwnCopies,
        offering: Offering,
        flow: EgressFlow,
    ) -> None:
        self._context = context
        self._deliverer = deliverer
        self._instant = instant
        self._own = own
        self._offering = offering
        self._flow = flow
        self._egress = context.topics.egress
        self._ingress = context.topics.ingress
        self._retained = context.topics.retained
        self._begun: deque[tuple[Steps[None], asyncio.Future[None]]] = deque()
        """Batches that are not fully applied yet, in order."""

    def records(self, batch: list[Record]) -> asyncio.Future[None] | None:
        """Applies one batch of the consumer. Returns None if it is applied, else a future that is done when it is."""
        steps = self._apply(batch)
        if not self._begun and self._is_done(steps):
            return None
        loop = asyncio.get_running_loop()
        applied: asyncio.Future[None] = loop.create_future()
        self._begun.append((steps, applied))
        if len(self._begun) == 1:
            loop.call_soon(self._go_on)
        return applied

    def _go_on(self) -> None:
        """Continues in a turn of the event loop."""
        steps, applied = self._begun[0]
        try:
            is_done = self._is_done(steps)
        except Exception as error:  # what was not got to would be lost without a word
            self._context.on_fatal(error)
            return
        if is_done:
            self._begun.popleft()
            applied.set_result(None)
        if self._begun:
            asyncio.get_running_loop().call_soon(self._go_on)

    def _is_done(self, steps: Steps[None]) -> bool:
        """Works on a batch for one turn; True if the batch is applied."""
        work = self._context.work
        work.spent = 0
        is_half = next(steps, _DONE)
        self._deliverer.flush()
        work.pause(is_half is True)
        return is_half is _DONE

    def _apply(self, batch: list[Record]) -> Steps[None]:
        work = self._context.work
        for record in batch:
            topic = record.topic()
            if topic == self._egress:
                rest = self._receive(record)
                if rest is not None:
                    yield from rest
            elif topic == self._ingress:
                yield from self._own.receive(record)
            elif topic == self._retained:
                self._context.retained.fold(record)
            else:
                self._context.message_presence.fold(record)
            if work.spend(RECORD):
                yield False
        while True:  # what one lets go may be what the other waits for
            has_unparked = yield from self._unpark()
            has_offered = yield from self._own.reconsider()
            if not (has_unparked or has_offered):
                break
        self._flow.adjust(own_copies_wait=self._own.held_back > 0)

    def _receive(self, record: Record) -> Steps[None] | None:
        """Applies an instruction, or parks it if the reader has not passed its message; returns the remaining work."""
        shard = self._context.shards[record.partition()]
        shard.position = record.offset() + 1
        if self._instant.positions is not None or shard.parked:
            place = place_of(record)
            if place is not None and (place[0] in shard.parked or self._instant.is_behind(*place)):
                shard.park(*place, record)
                return None
        return self._instruct(shard, record)

    def _unpark(self) -> Steps[bool]:
        """Applies what waits no more; whether there was any."""
        applied, work = False, self._context.work
        for shard in self._context.shards:
            for partition, parked in list(shard.parked.items()):
                while parked and not self._instant.is_behind(partition, parked[0][0]):
                    rest = self._instruct(shard, shard.unpark(partition))
                    if rest is not None:
                        yield from rest
                    applied = True
                    if work.spend(RECORD):
                        yield False
        return applied

    def _instruct(self, shard: Shard, record: Record) -> Steps[None] | None:
        """Drops an instruction that is a copy, else offers its message to every session that wants it. Returns the
        remaining work if there are many."""
        position = record.offset()
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
            quarantine(self._context, record, str(error))
            return None
        finished: Sequence[str] = ()
        held_at = self._context.clock()
        if replayed:
            finished, held_at = shard.unfinished.pop(position), min(held_at, message.appended / 1000)
            if position in shard.copies:
                shard.copies.remove(position)
                self._join(shard, message, instruction, position)
                return None
        elif self._is_copy(shard, instruction, message, position):
            return None
        left = shard.left.pop((message.partition, message.offset), ()) if shard.left else ()
        held = Held(message, shard.number, position, held_at, [instruction], done=finished, left=left)
        if topic.startswith(INBOX_MARK):
            self._offer_inbox(shard, held)
            self._deliverer.offered(held)
            return None
        found = shard.trie.begin(topic, LARGE)
        if isinstance(found, Search) or len(found) > LARGE:
            return self._offer_many(shard, held)
        if found:
            self._context.work.spent += len(found) * RECIPIENT
            self._offering.offer_at_once(shard, held, routed_of(held, found))
        else:
            self._deliverer.offered(held)
        return None

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

    def _offer_many(self, shard: Shard, held: Held) -> Steps[None]:
        found = yield from found_in(shard, held.message.topic, self._context.work)
        routed = list[SessionSubscription]()
        for part in slices(found):
            routed += routed_of(held, part)
            if self._context.work.spend(len(part)):
                yield True
        yield from self._offering.offer(shard, held, routed)


def routed_of(held: Held, subscriptions: Sequence[SessionSubscription]) -> list[SessionSubscription]:
    """The subscriptions that get the message by an instruction."""
    message = held.message
    appended, partition, offset = message.appended, message.partition, message.offset
    routed = [s for s in subscriptions if s.is_routed(partition, offset, appended)]
    if held.left:
        left = [s for s in subscriptions if s.client in held.left and s.is_older(partition, offset)]
        routed += [s for s in left if not s.is_routed(partition, offset, appended)]
    return routed
