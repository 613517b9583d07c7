"""The fold over `egress`: each instruction once, matched with the shard's subscriptions (R2, R4, M14)."""

from collections.abc import Iterable

import structlog

from gateway.bus import Record
from gateway.home.context import HomeContext
from gateway.home.delivery import Deliverer
from gateway.home.instant import InstantReader
from gateway.home.messages import Entry, Held, Message, message_of, other_scope
from gateway.home.quarantine import quarantine
from gateway.home.session import Session, SessionSubscription
from gateway.home.shard import Shard
from schemas.envelope import EVERYONE, ROUTED, Instruction
from schemas.errors import RecordError
from schemas.identity import INBOX_MARK

log = structlog.get_logger(__name__)


class Fold:
    """Applies records of `egress`, `ingress` (while the instant reader wants them) and `retained` in their order."""

    def __init__(self, context: HomeContext, deliverer: Deliverer, instant: InstantReader) -> None:
        self._context = context
        self._deliverer = deliverer
        self._instant = instant
        self._egress = context.topics.egress
        self._ingress = context.topics.ingress

    def records(self, batch: list[Record]) -> None:
        """One batch of the consumer."""
        for record in batch:
            topic = record.topic()
            if topic == self._egress:
                shard = self._context.shards[record.partition()]
                if shard.parked or self._instant.is_behind(record):
                    shard.parked.append(record)
                else:
                    self._instruct(shard, record)
            elif topic == self._ingress:
                self._own_copies(record)
            else:
                self._context.retained.fold(record)
        for shard in self._context.shards:
            while shard.parked and not self._instant.is_behind(shard.parked[0]):
                self._instruct(shard, shard.parked.popleft())
        self._deliverer.flush()

    def _instruct(self, shard: Shard, record: Record) -> None:
        """One instruction: dropped if it is a copy, else offered to every session that wants it."""
        position = record.offset()
        shard.position = position + 1
        replayed = position < shard.recovered_to
        if replayed and position not in shard.unfinished:
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
            quarantine(self._context, record, str(error))
            return
        finished: list[str] = []
        if replayed:
            finished = shard.unfinished.pop(position)
            if position in shard.copies:
                shard.copies.remove(position)
                self._join(shard, message, instruction)
                return
        elif self._is_copy(shard, instruction, message):
            return
        held = Held(message, shard.number, position, self._context.clock(), [instruction], done=finished)
        if topic.startswith(INBOX_MARK):
            self._offer_inbox(shard, held)
        else:
            found_subscriptions = shard.trie.match(topic)
            if found_subscriptions:
                self._offer_matches(shard, held, found_subscriptions)
        self._deliverer.offered(held)

    def _is_copy(self, shard: Shard, instruction: Instruction, message: Message) -> bool:
        """Whether the shard has this message already: from the other router, or by a decision of the other scope; in
        the latter case the message's present holder relinquishes this instruction as well."""
        if not shard.window(instruction.scope, instruction.partition).accept(instruction.offset):
            self._context.counts["copies_dropped"] += 1
            return True
        if not shard.window(other_scope(instruction.scope), instruction.partition).seen(instruction.offset):
            return False
        self._join(shard, message, instruction)
        return True

    def _join(self, shard: Shard, message: Message, instruction: Instruction) -> None:
        """A further instruction for a message is relinquished with it; at once if the message is done."""
        place = (message.partition, message.offset)
        held, mid = shard.find_live(place), shard.spooled.get(place)
        if held is not None:
            held.instructions.append(instruction)
            held.copies.append(shard.position - 1)
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
        appended = held.message.appended
        effective = [s for s in subscriptions if s.record.effective_ms <= appended]
        for client, (qos, retain, identifiers) in wanted(held.message, effective):
            session = shard.sessions[client]
            if client in held.done or held.position < session.since or held.message.id in session.retained_sent:
                continue
            _note_live(session, held.message)
            self._deliverer.offer(session, held, Entry(client, held, qos, retain, identifiers))

    def _own_copies(self, record: Record) -> None:
        """A message of `ingress`, for subscriptions whose route is not in effect for it yet."""
        self._instant.passed(record)
        topic = (record.key() or b"").decode(errors="replace")
        if topic.startswith(INBOX_MARK):
            return
        appended = record.timestamp()[1]
        place = (record.partition(), record.offset(), appended)
        for shard in self._context.shards:
            subscriptions = shard.trie.match(topic)
            if not any(s.record.effective_ms > appended for s in subscriptions):
                continue
            routed = {s.client for s in subscriptions if s.record.effective_ms <= appended}
            early = [s for s in subscriptions if s.client not in routed and self._instant.wants(s, record)]
            try:
                message = message_of(topic, record.value() or b"", record.headers() or [], place)
            except RecordError:
                return  # the ledger quarantines what cannot be parsed on `ingress`
            held = Held(message, shard.number, -1, self._context.clock(), [])
            for client, (qos, retain, identifiers) in wanted(message, early):
                session = shard.sessions[client]
                if message.id not in session.retained_sent:
                    _note_live(session, message)
                    self._deliverer.offer(session, held, Entry(client, held, qos, retain, identifiers))
            self._deliverer.offered(held)


def _note_live(session: Session, message: Message) -> None:
    """A retained message that came live while SUBSCRIBE is worked on does not come again as a retained one."""
    if session.subscribing and message.retain:
        session.live_meanwhile.add(message.id)


def wanted(
    message: Message, subscriptions: Iterable[SessionSubscription]
) -> Iterable[tuple[str, tuple[int, bool, tuple[int, ...]]]]:
    """By client, what one PUBLISH for all its overlapping subscriptions says: QoS, RETAIN, subscription identifiers
    (MQTT 5.0, 3.3.4: the highest QoS, all identifiers)."""
    shares: dict[str, tuple[int, bool, tuple[int, ...]]] = {}
    for subscription in subscriptions:
        record = subscription.record
        if record.no_local and subscription.client == message.source:
            continue
        qos, retain, identifiers = shares.get(subscription.client, (0, False, ()))
        if record.identifier is not None:
            identifiers = (*identifiers, record.identifier)
        retain = retain or (record.retain_as_published and message.retain)
        shares[subscription.client] = (max(qos, min(record.qos, message.qos)), retain, identifiers)
    return shares.items()
