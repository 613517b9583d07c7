"""Publishing: a client's message to `ingress`, acknowledged only once Kafka has it (Q1, R8, G8).

Where gateways share shards, Kafka's word is not enough at QoS 2: behind the fence of another owner the message would be
dropped (:mod:`gateway.cluster.fencing`). So PUBREC waits for a barrier as well (:mod:`gateway.shard.promises`). At QoS
1 such a message counts, and PUBACK waits for nothing more.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog
from confluent_kafka import KafkaError

from gateway.bus import OnDone
from gateway.record import Record
from gateway.shard.asked_receipts import AskedReceipt, tell_read, with_id
from gateway.shard.link import Link
from gateway.shard.node import Node
from gateway.shard.pending_publish import PendingPublish
from gateway.shard.promises import Promises
from gateway.shard.publish_properties import wanted
from gateway.shard.publish_turns import Turn
from gateway.shard.publishes import InboundPosition
from gateway.shard.retained import size_of
from gateway.shard.rules import EVERYTHING, ClientRules
from gateway.shard.session import Session
from mqtt.codes import PacketType, ReasonCode
from mqtt.packets import Publish
from mqtt.properties import NO_PROPERTIES, forwarded_section
from schemas.envelope import RETAIN_FLAG, BundleMark, Headers, Meta, headers_of_source
from schemas.identity import INBOX_MARK, derived_message_id, is_derived, new_message_id, partition_of
from schemas.origin import PLATFORM_FLAG, WILL_FLAG
from schemas.receipts import READ_START, read_message
from schemas.reserved_topics import RESERVED_STARTS, is_reserved
from schemas.session_log import WillRecord

log = structlog.get_logger(__name__)

_REASONS = {
    KafkaError._QUEUE_FULL: ReasonCode.QUOTA_EXCEEDED,
    KafkaError.MSG_SIZE_TOO_LARGE: ReasonCode.PACKET_TOO_LARGE,
}
"""Kafka's refusals that say how much, not what."""


_AGAIN_S = 0.05
"""After so long a message is tried again for which Kafka's client had no capacity."""


def will_id(client: str, will: WillRecord) -> str:
    """The message id of a will: the same whenever it is published."""
    return derived_message_id(client, f"will/{will.of_us}")


class Publisher:
    """One connection's publishes, answered in their order [MQTT-4.6.0-2, 4.6.0-3], whatever becomes of each.

    A will has neither session nor link. `flags` are in the envelope of all messages published here. Where the client
    does not hear refusals (:class:`gateway.shard.home.Arrival`), a message to a reserved topic is dropped and
    acknowledged [MQTT-3.3.5-2 of 3.1.1]: else the client would connect and send it again for ever. `epoch` is that of
    the shard's home, 0 without one (:class:`schemas.envelope.Meta`).
    """

    def __init__(
        self,
        node: Node,
        inbound: InboundPosition,
        unsettled: set[Session],
        client: str,
        session: Session | None,
        link: Link | None,
        rules: ClientRules = EVERYTHING,
        flags: str = "",
        hears_refusals: bool = True,
        promises: Promises | None = None,
        epoch: int = 0,
    ) -> None:
        self._promises = promises
        self._flags = flags
        self._epoch = epoch or None
        self._node = node
        self._inbound = inbound
        self._unsettled = unsettled
        self._client = client
        self._session = session
        self._link = link
        self._judge = None if rules.open else rules.publish
        self._may_publish = rules.may_publish
        self._headers_of = headers_of_source(client)
        self._partition = partition_of(client, node.settings.kafka.ingress_partitions)
        self._pending: deque[PendingPublish] = deque()
        self._hears_refusals = hears_refusals
        self._has_tried_reserved = False

    @property
    def in_flight(self) -> int:
        """Publishes not answered yet."""
        return len(self._pending)

    def publish(
        self,
        packet: Publish,
        message_id: str = "",
        bundle: BundleMark | None = None,
        on_ingress: Callable[[], None] | None = None,
        receipt: AskedReceipt | None = None,
    ) -> None:
        """Sends the message on, with a new id or `message_id`; refuses what a rule or a limit forbids. What is held
        already at QoS 2 is not sent again. `bundle`: in which one of the client's it came (M14). `on_ingress` is called
        once `ingress` has it, before any checkpoint is behind it; the answer may have to wait for more. `receipt` is
        asked for, in the place of what its properties ask for."""
        qos, flags = packet.qos, self._flags
        if qos == 2 and self._session is not None:
            if packet.packet_id in self._session.inbound.publishing:
                return
            if packet.packet_id in self._session.inbound.received:
                self._answer_in_turn(PendingPublish(packet.packet_id, 2, 0))
                return
            self._session.inbound.begin(packet.packet_id)
        if packet.topic.startswith(RESERVED_STARTS):
            if packet.topic.startswith(READ_START):
                self._take_read(packet)
                return
            if is_reserved(packet.topic):
                self._refuse_reserved(packet)
                return
        if self._judge is not None:
            reason, found = self._judge(packet)
            flags += found
            if reason is not ReasonCode.SUCCESS:
                self._refuse(packet, reason, "refused_by_rule")
                return
        if packet.properties or receipt is not None:
            shares, sender = self._node.settings.gateway.shares, (self._client, self._may_publish)
            asked = wanted(packet.topic, packet.properties or {}, receipt, shares, *sender)
            if asked.reason is not ReasonCode.SUCCESS:
                self._refuse(packet, asked.reason, asked.counts_as)
                return
            flags, receipt = flags + asked.flags, asked.receipt
        retained = packet.retain and not packet.topic.startswith(INBOX_MARK)
        if retained:
            flags += RETAIN_FLAG
        of = message_id or new_message_id()
        if receipt is not None and receipt.kind == "read":
            packet.properties = with_id(packet.properties or {}, of)
        headers = self._headers(packet, flags, of, bundle)
        if retained:
            if bundle is not None and self._node.retained.has_newer(packet.topic, self._client, bundle):
                retained = False  # a late copy: what is retained stays
            elif not self._may_retain(packet.topic, packet.payload, headers):
                self._refuse(packet, ReasonCode.QUOTA_EXCEEDED, "refused_retained_full")
                return
        stores, last = 1 + retained + (receipt is not None), message_id != "" or qos == 2
        pending = PendingPublish(packet.packet_id, qos, stores, ingress_last=last, bundle=bundle, on_ingress=on_ingress)
        ask = None if receipt is None else partial(receipt.tell, self._node, of, self._client, self._partition)
        self._send(pending, packet.topic, packet.payload, headers, retained=retained, ask=ask)

    def publish_will(self, will: WillRecord, then: Callable[[ReasonCode], None]) -> None:
        """A will, as the client asked for it when it connected, its properties encoded already; `then` runs once Kafka
        has it, or with the reason why it does not take it.

        A restart that finds it on `ingress`, by its id, does not publish it again; therefore its retained copy is
        stored before. If there is no capacity for that, the will is published without.
        """
        now = self._node.clock()
        expires = None if will.expiry_s is None else int((now + will.expiry_s) * 1000)
        retained = will.retain and not will.topic.startswith(INBOX_MARK)
        flags = WILL_FLAG + will.flags + (RETAIN_FLAG if retained else "")
        meta = Meta(will.qos, flags, expires, int(now * 1e6), None, epoch=self._epoch)
        headers = self._headers_of(will_id(self._client, will), meta.encode(), will.properties)
        if retained and not self._may_retain(will.topic, will.payload, headers):
            retained = False
            self._node.counts["refused_retained_full"] += 1
            log.warning("a will is not retained: too much is", client=self._client[:128], topic=will.topic[:128])
        pending = PendingPublish(0, 0, 1 + retained, ingress_last=True, then=then)
        self._send(pending, will.topic, will.payload, headers, retained=retained)

    def publish_notice(
        self, topic: str, properties: bytes, expires: int | None, then: Callable[[ReasonCode], None]
    ) -> None:
        """What the platform itself says to somebody, at QoS 1 and without payload, its properties encoded already;
        `expires` as in :class:`schemas.envelope.Meta`. `then` runs once Kafka has it, or with the reason why not."""
        meta = Meta(1, PLATFORM_FLAG, expires, int(self._node.clock() * 1e6), None)
        headers = self._headers_of(new_message_id(), meta.encode(), properties)
        self._send(PendingPublish(0, 0, 1, then=then), topic, b"", headers, retained=False)

    def _may_retain(self, topic: str, payload: bytes, headers: Headers) -> bool:
        """Whether the limits allow it."""
        return self._node.retained.has_capacity(topic, _retained_size(topic, payload, headers))

    def _take_read(self, packet: Publish) -> None:
        """The client has read a message (Q13): no message of its own, and no rule forbids it."""
        message_id = read_message(packet.topic)
        if message_id is None or packet.qos == 2:
            self._refuse_reserved(packet)
            return
        pending = PendingPublish(packet.packet_id, packet.qos, 1)
        self._pending.append(pending)
        tell_read(self._node, message_id, self._client, lambda error, _: self._one_stored(pending, error))

    def _send(
        self,
        pending: PendingPublish,
        topic: str,
        payload: bytes,
        headers: Headers,
        *,
        retained: bool,
        ask: Callable[[OnDone], None] | None = None,
    ) -> None:
        """To `ingress`, and to `retained` if it is `retained`; `ask` asks for its receipt."""
        turns, key, last = self._inbound.turns, topic.encode(), pending.ingress_last
        self._pending.append(pending)
        pending.size = len(key) + len(payload) + len(headers[-1][1])
        self._inbound.begun(self._partition, pending.size)
        if ask is not None and last:
            self._send_once_asked(pending, topic, payload, headers, ask, retained=retained)
            return
        if ask is not None:
            ask(lambda error, _: self._one_stored(pending, error))
        if not (retained and last):
            if turns.waits(self._client):
                turns.follow(self._client, partial(self._in_turn, pending, key, payload, headers))
            elif not self._to_ingress(pending, key, payload, headers) and retained:
                retained = False  # it is refused: its copy must not stand alone
                pending.stores -= 1
        if retained:
            self._retain(pending, topic, payload, headers, turns.begin(self._client) if last else None)

    def _send_once_asked(
        self,
        pending: PendingPublish,
        topic: str,
        payload: bytes,
        headers: Headers,
        ask: Callable[[OnDone], None],
        *,
        retained: bool,
    ) -> None:
        """Whoever finds it on `ingress` asks for no receipt any more."""
        turns, client = self._inbound.turns, self._client
        asking = turns.begin(client)
        copying = turns.begin(client) if retained else None

        def asked(error: Any, record: Record) -> None:
            refuse = partial(self._stored, pending, error, record)
            if error is None and copying is None:
                turns.end(client, asking, partial(self._in_turn, pending, topic.encode(), payload, headers))
            elif error is None:
                turns.end(client, asking, partial(self._retain, pending, topic, payload, headers, copying))
            elif copying is None:
                turns.end(client, asking, refuse)
            else:
                turns.end(client, asking, partial(self._one_stored, pending, error))
                turns.end(client, copying, refuse)
            self._one_stored(pending, error)

        ask(asked)

    def _to_ingress(self, pending: PendingPublish, key: bytes, payload: bytes, headers: Headers) -> bool:
        """False if it is refused because too much waits for Kafka."""
        stored = partial(self._stored, pending)
        return self._node.bus.produce(self._node.topics.ingress, self._partition, key, payload, headers, stored)

    def _in_turn(self, pending: PendingPublish, key: bytes, payload: bytes, headers: Headers) -> bool:
        """Whether it has to wait on: a message whose retained copy is in Kafka, or on its way there, is not refused
        because too much waits for Kafka, but goes when there is capacity."""
        if not pending.has_copy:
            self._to_ingress(pending, key, payload, headers)
            return False

        def stored(error: Any, record: Record) -> None:
            if error is None or error.code() != KafkaError._QUEUE_FULL:
                self._stored(pending, error, record)

        if self._node.bus.produce(self._node.topics.ingress, self._partition, key, payload, headers, stored):
            return False
        asyncio.get_running_loop().call_later(_AGAIN_S, self._inbound.turns.go_on, self._client)
        return True

    def _retain(self, pending: PendingPublish, topic: str, payload: bytes, headers: Headers, turn: Turn | None) -> None:
        """`turn`: that of the message, if it goes to `ingress` behind its copy."""
        topics, bus, kept, key = self._node.topics, self._node.bus, self._node.retained, topic.encode()
        turns, client = self._inbound.turns, self._client
        to_ingress = partial(self._in_turn, pending, key, payload, headers)

        def retained(error: Any, record: Record) -> None:
            if error is None:
                kept.stored(coming, record.offset())
            else:
                kept.refused(coming)
                pending.has_copy = False
            if turn is not None:
                turns.end(client, turn, to_ingress if error is None else partial(self._stored, pending, error, record))
            if error is None:
                kept.when_counts(record.offset(), partial(self._one_stored, pending, None))
            else:
                self._one_stored(pending, error)

        pending.has_copy = True
        coming = kept.sent(topic, _retained_size(topic, payload, headers), client, pending.bundle)
        bus.produce(topics.retained, 0, key, payload or None, headers, retained)

    def _headers(self, packet: Publish, flags: str, message_id: str, bundle: BundleMark | None) -> Headers:
        now = self._node.clock()
        expires, properties, session = None, NO_PROPERTIES, self._session
        if packet.properties:
            lifetime = packet.properties.get("message_expiry_interval")
            expires = None if lifetime is None else int((now + lifetime) * 1000)
            properties = forwarded_section(packet.properties, PacketType.PUBLISH)
        qos, accepted, epoch = packet.qos, int(now * 1e6), self._epoch
        seq, of = None, None
        if qos == 2 and session is not None and session.persistent:
            seq, of = packet.packet_id, session.incarnation
        elif qos == 1 and epoch is not None and RETAIN_FLAG not in flags and not is_derived(message_id):
            epoch = None  # it may come twice
        if seq is None and epoch is None and bundle is None:
            meta = Meta.encode_plain(qos, flags, expires, accepted)
        else:
            meta = Meta(qos, flags, expires, accepted, seq, of, bundle, None, epoch).encode()
        return self._headers_of(message_id, meta, properties)

    def _stored(self, pending: PendingPublish, error: Any, record: Record) -> None:
        """The delivery report of a record on `ingress`."""
        offset = None if error is not None else record.offset()
        self._inbound.ended(self._partition, offset, pending.size)
        if offset is not None and pending.on_ingress is not None:
            pending.on_ingress()
        if offset is not None and pending.qos == 2 and self._session is not None:
            session = self._session
            session.inbound.stored(pending.packet_id, offset, to_log=session.persistent)
            if session.persistent:
                self._unsettled.add(session)
        self._one_stored(pending, error)

    def _one_stored(self, pending: PendingPublish, error: Any) -> None:
        pending.stores -= 1
        if error is not None:
            pending.reason = _REASONS.get(error.code(), ReasonCode.UNSPECIFIED_ERROR)
        if pending.stores:
            return
        if pending.reason is ReasonCode.SUCCESS:
            self._node.counts["published"] += 1
            if pending.qos == 2 and self._promises is not None:
                pending.stores = 1
                self._promises.after_barrier(partial(self._confirmed, pending))
                return
        else:
            self._node.counts["refused_by_kafka"] += 1
            if self._session is not None and pending.qos == 2:
                self._session.inbound.refused(pending.packet_id)
        if pending.then is not None:
            pending.then(pending.reason)
        self._answer_done()

    def _confirmed(self, pending: PendingPublish) -> None:
        """A message at QoS 2 counts."""
        pending.stores = 0
        if self._session is not None:
            self._session.inbound.confirmed(pending.packet_id)
        self._answer_done()

    def _refuse_reserved(self, packet: Publish) -> None:
        """Refuses a message to a topic that only the platform uses; logged once a connection."""
        if not self._has_tried_reserved:
            self._has_tried_reserved = True
            log.info("PUBLISH to a reserved topic dropped", client=self._client[:128], topic=packet.topic[:128])
        reason = ReasonCode.TOPIC_NAME_INVALID if self._hears_refusals else ReasonCode.SUCCESS
        self._refuse(packet, reason, "refused_system_topic")

    def _refuse(self, packet: Publish, reason: ReasonCode, count: str) -> None:
        self._node.counts[count] += 1
        if packet.qos == 2 and self._session is not None:
            self._session.inbound.refused(packet.packet_id)
        self._answer_in_turn(PendingPublish(packet.packet_id, packet.qos, 0, reason))

    def _answer_in_turn(self, pending: PendingPublish) -> None:
        self._pending.append(pending)
        self._answer_done()

    def _answer_done(self) -> None:
        """Answers the oldest publishes, up to the first that waits for Kafka, on the connection that asked; a QoS 2
        exchange goes on with the session's present one."""
        waiting = self._pending
        while waiting and not waiting[0].stores:
            done, link = waiting.popleft(), self._link
            if done.qos == 2 and self._session is not None and self._session.link is not None:
                link = self._session.link
            if link is not None:
                link.answer(done.qos, done.packet_id, done.reason)


def _retained_size(topic: str, payload: bytes, headers: Headers) -> int:
    """What a message counts as a retained one, bytes; 0 if it ends what is retained."""
    return size_of(topic, payload, headers[3][1]) if payload else 0
