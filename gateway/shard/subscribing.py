"""SUBSCRIBE and UNSUBSCRIBE: routes, reading `ingress`, the session log, retained messages (MQTT 5.0, 3.8 to 3.11)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Final, TypeVar

import msgspec

from gateway.shard.delivery import Deliverer
from gateway.shard.group_requests import GroupRequests
from gateway.shard.log_writer import SessionLogWriter
from gateway.shard.messages import Delivery, PendingMessage
from gateway.shard.node import Node
from gateway.shard.route_start import RouteStart
from gateway.shard.session import Session
from gateway.shard.session_records import sent_from_memory
from gateway.shard.shard import Shard
from gateway.shard.subscription import SessionSubscription
from gateway.shard.system_topics import send_system
from gateway.shard.trie import SubscriptionTrie
from mqtt.codes import ReasonCode
from mqtt.packets import Subscribe, Subscription
from mqtt.topics import split_shared
from schemas.cluster_topics import is_cluster
from schemas.identity import INBOX_MARK, inbox_of
from schemas.reserved_topics import is_local
from schemas.session_log import SubscriptionRecord

_RETAINED_FENCE_S = 30.0
RETAINED_BUNDLES: Final = 1_000
"""Bundles of which a session knows that it was sent them as retained messages; beyond that it forgets the first one."""

_COPY_MS: Final = 30_000
"""How long after the end of a bundle's lifetime a copy of it may still come from the routers."""

_RECORD_BYTES = 210
"""Of a subscription in the session log, but for its filter and its positions on `ingress`."""
_POSITION_BYTES = 26
_GROUP_BYTES = 70
_AT_ONCE = 100
"""Subscriptions that are begun, or ended, before everybody else has a turn."""

T = TypeVar("T")

_GRANTED = (ReasonCode.GRANTED_QOS_0, ReasonCode.GRANTED_QOS_1, ReasonCode.GRANTED_QOS_2)


class Subscriber:
    """Adds and removes subscriptions of a shard's sessions. `checkpoint` returns once what waits by now is in the
    spool."""

    def __init__(
        self,
        node: Node,
        shard: Shard,
        routes: RouteStart,
        deliverer: Deliverer,
        writer: SessionLogWriter,
        groups: GroupRequests,
        checkpoint: Callable[[], Awaitable[None]],
    ) -> None:
        self._node = node
        self._shard = shard
        self._routes = routes
        self._checkpoint = checkpoint
        self._deliverer = deliverer
        self._writer = writer
        self._groups = groups
        self._fenced: set[Session] = set()
        self._adding: dict[tuple[Session, str], object] = {}
        """Filters that are being added: by the last SUBSCRIBE that wants them, and no UNSUBSCRIBE has come since. An
        earlier one may still wait, on the session's former connection."""

    async def subscribe(self, session: Session, packet: Subscribe, answer: Callable[[list[ReasonCode]], None]) -> None:
        """Adds each filter that is allowed; a filter that is there already gets the new options."""
        session.subscribing += 1
        try:
            await self._subscribe(session, packet, answer)
        finally:
            session.subscribing -= 1
            if not session.subscribing:
                session.live_meanwhile.clear()

    async def _subscribe(self, session: Session, packet: Subscribe, answer: Callable[[list[ReasonCode]], None]) -> None:
        identifier = (packet.properties or {}).get("subscription_identifier", [None])[0]
        codes = self._verdicts(session, packet.filters)
        for code in codes:
            if code >= ReasonCode.UNSPECIFIED_ERROR:
                self._node.counts[f"subscription_refused_{code.name.lower()}"] += 1
        allowed = [w for w, code in zip(packet.filters, codes, strict=True) if code < ReasonCode.UNSPECIFIED_ERROR]
        existed = {wanted.filter for wanted in allowed if wanted.filter in session.subscriptions}
        earlier = _Earlier(session)
        for some in _some(list({wanted.filter: wanted for wanted in allowed}.values())):
            await asyncio.gather(*(self._add(session, wanted, identifier) for wanted in some))
            await asyncio.sleep(0)
        session.forget_bundles(self._node.clock() * 1000)
        retaining = [w for w in allowed if w.retain_handling < 2 and split_shared(w.filter) is None]
        if retaining:
            if self._node.settings.gateway.cluster.enabled:  # others may have stored some
                ends = await self._node.bus.end_offsets(self._node.topics.retained, 1)
                await self._node.retained.reached(ends[0])
            await self._node.retained.caught_up()
        present = [w for w in retaining if w.filter in session.subscriptions]  # others have been ended meanwhile
        asking = {w.filter: w for w in present if _wants_retained(w, w.filter in existed)}
        if asking and session.persistent and await self._send_retained(session, asking, identifier, earlier, kept=True):
            await self._checkpoint()  # no log brings them again: for whoever has SUBACK they are in the spool
        if session.logged and allowed:
            await self._writer.durable(partial(self._writer.subscribed, session))
        answer(codes)
        in_log = len(session.retained_bundles)
        if asking:
            await self._send_retained(session, asking, identifier, earlier, kept=False)
        if session.logged and len(session.retained_bundles) > in_log:
            self._writer.subscribed(session)
        self._deliverer.flush()

    async def unsubscribe(self, session: Session, filters: list[str]) -> list[ReasonCode]:
        codes, shared = [], []
        for some in _some(filters):
            for topic_filter in some:
                found = session.subscriptions.pop(topic_filter, None)
                adding = self._adding.pop((session, topic_filter), None)
                codes.append(ReasonCode.SUCCESS if found else ReasonCode.NO_SUBSCRIPTION_EXISTED)
                if split_shared(topic_filter) is None:
                    if found is not None:
                        self._detach(session, topic_filter)
                elif found is not None or adding is not None:
                    shared.append(topic_filter)
            await asyncio.sleep(0)
        await self._groups.leave(session, shared)
        if session.persistent and (sent := sent_from_memory(session)):
            self._shard.spool_through(max(delivery.pending.number for delivery in sent))
            await self._checkpoint()  # a delivery that has begun must end, and no subscription brings it again
        if session.logged:
            await self._writer.durable(partial(self._writer.subscribed, session))
        return codes

    def forget(self, session: Session) -> None:
        """The session is over."""
        for topic_filter in list(session.subscriptions):
            if split_shared(topic_filter) is not None:
                self._groups.forget(session, topic_filter)
            else:
                self._detach(session, topic_filter)
        self._fenced.discard(session)

    def forget_retained(self, now: float) -> None:
        """Live copies of retained messages that were sent on SUBSCRIBE have long come: no longer look for them."""
        for session in list(self._fenced):
            session.retained_sent = {i: until for i, until in session.retained_sent.items() if until > now}
            if not session.retained_sent:
                self._fenced.discard(session)

    def _verdicts(self, session: Session, filters: list[Subscription]) -> list[ReasonCode]:
        known, codes = {topic_filter: self._size(topic_filter) for topic_filter in session.subscriptions}, []
        left = self._node.settings.gateway.limits.subscription_bytes - sum(known.values())
        for wanted in filters:
            size = 0 if wanted.filter in known else self._size(wanted.filter)
            code = self._verdict(session, wanted, known)
            if size > left and code < ReasonCode.UNSPECIFIED_ERROR:
                code = ReasonCode.QUOTA_EXCEEDED
            if code < ReasonCode.UNSPECIFIED_ERROR and size:
                known[wanted.filter] = size
                left -= size
            codes.append(code)
        return codes

    def _size(self, topic_filter: str) -> int:
        """Bytes of a subscription in the session log, at most: all of a session are one record there."""
        partitions = self._node.settings.kafka.ingress_partitions
        of_group = 0 if split_shared(topic_filter) is None else _GROUP_BYTES
        return len(msgspec.json.encode(topic_filter)) + _RECORD_BYTES + of_group + partitions * _POSITION_BYTES

    def _verdict(self, session: Session, wanted: Subscription, known: Mapping[str, int]) -> ReasonCode:
        limits = self._node.settings.gateway.limits
        shared = split_shared(wanted.filter)
        if shared is not None and (shared[1].startswith(INBOX_MARK) or is_local(shared[1])):
            return ReasonCode.NOT_AUTHORIZED
        if is_cluster(wanted.filter if shared is None else shared[1]):
            return ReasonCode.NOT_AUTHORIZED
        if wanted.filter.startswith(INBOX_MARK) and wanted.filter != inbox_of(session.client):
            return ReasonCode.NOT_AUTHORIZED
        if wanted.filter not in known and len(known) >= limits.subscriptions:
            return ReasonCode.QUOTA_EXCEEDED
        levels = (wanted.filter if shared is None else shared[1]).count("/") + 1
        if levels > limits.filter_levels:
            return ReasonCode.TOPIC_FILTER_INVALID
        refused = session.rules.subscribe(wanted.filter)
        return refused or _GRANTED[wanted.qos]

    async def _add(self, session: Session, wanted: Subscription, identifier: int | None) -> None:
        key = session, wanted.filter
        adding = self._adding[key] = object()

        def is_wanted() -> bool:
            return not session.ended and self._adding.get(key) is adding

        try:
            if split_shared(wanted.filter) is not None:
                await self._share(session, wanted, identifier, is_wanted)
            else:
                await self._add_own(session, wanted, identifier, is_wanted)
        finally:
            if self._adding.get(key) is adding:
                del self._adding[key]

    async def _add_own(
        self, session: Session, wanted: Subscription, identifier: int | None, is_wanted: Callable[[], bool]
    ) -> None:
        old = session.subscriptions.get(wanted.filter)
        merged_from = self._shard.received_to
        if old is not None:
            effective_ms, start, merged_from = old.record.effective_ms, old.record.ingress_from, old.record.merged_from
        elif wanted.filter.startswith(INBOX_MARK):
            return  # a client's inbox is its own without asking
        elif is_local(wanted.filter):
            effective_ms, start = 0, {}  # local: no route, nothing on `ingress`
        else:
            effective_ms, start = await self._routes.use(wanted.filter)
            if not is_wanted() or wanted.filter in session.subscriptions:  # meanwhile
                self._routes.leave(wanted.filter)
            if not is_wanted():
                return
            start = self._routes.unpassed(start)
        record = _record(wanted, identifier, effective_ms, start, merged_from)
        subscription = SessionSubscription(session.client, record)
        session.subscriptions[wanted.filter] = subscription
        self._shard.trie.add(wanted.filter, session.client, subscription)

    async def _share(
        self, session: Session, wanted: Subscription, identifier: int | None, is_wanted: Callable[[], bool]
    ) -> None:
        """Makes the session a member of a share group, the first one if there is no such group."""
        record = await self._groups.join(session, _record(wanted, identifier, 0, {}), is_wanted)
        if is_wanted():
            session.subscriptions[wanted.filter] = SessionSubscription(session.client, record)

    async def _send_retained(
        self,
        session: Session,
        wanted: Mapping[str, Subscription],
        identifier: int | None,
        earlier: "_Earlier",
        *,
        kept: bool,
    ) -> bool:
        """Offers what is retained, a message for each filter: either what a crash must not lose (`kept`), or the rest;
        whether there was any. Others have their turns meanwhile. Live copies that come later are left out, but for
        those that an `earlier` subscription gets: behind older messages, and perhaps at a higher QoS."""
        identifiers, found = () if identifier is None else (identifier,), False
        for topic_filter in filter(is_local, wanted) if not kept else ():
            for message in self._node.system.matching(topic_filter):
                send_system(session, message, True, identifiers)
        async for topic_filter, message in self._node.retained.matching(wanted):
            now, subscription = self._node.clock(), wanted[topic_filter]
            if session.ended:
                return False
            if message.expires is not None and message.expires <= now * 1000:
                continue
            if session.is_outdated(message) or (subscription.no_local and message.source == session.client):
                continue
            qos = min(subscription.qos, message.qos)
            if kept != (session.persistent and qos > 0):
                continue
            found = True
            message = msgspec.structs.replace(message, offered_us=self._node.numbers.offer(self._shard.number, now))
            pending = PendingMessage(message, session.shard, -1, now, [])
            if not earlier.match(message.topic):
                session.retained_sent[message.id] = now + _RETAINED_FENCE_S
                self._fenced.add(session)
                if message.bundle is not None and message.expires is not None:
                    session.remember_bundle(message.id, message.expires + _COPY_MS, RETAINED_BUNDLES)
            self._deliverer.offer(session, pending, Delivery(session.client, pending, qos, True, identifiers))
            self._deliverer.offered(pending)
        return found

    def _detach(self, session: Session, topic_filter: str) -> None:
        self._shard.trie.remove(topic_filter, session.client)
        self._routes.leave(topic_filter)


class _Earlier:
    """The subscriptions that a session had before a SUBSCRIBE."""

    def __init__(self, session: Session) -> None:
        self._filters = [name for name in session.subscriptions if split_shared(name) is None]

    def match(self, topic: str) -> bool:
        """Whether one of them gets messages of the topic."""
        return bool(self._trie.search(topic))

    @cached_property
    def _trie(self) -> SubscriptionTrie[None]:
        """Made when something retained is found, which is rare."""
        trie: SubscriptionTrie[None] = SubscriptionTrie()
        for topic_filter in self._filters:
            trie.add(topic_filter, "", None)
        return trie


def _some(all_of_them: Sequence[T]) -> Iterable[Sequence[T]]:
    """_AT_ONCE at a time; others have their turns between two."""
    return (all_of_them[start : start + _AT_ONCE] for start in range(0, len(all_of_them), _AT_ONCE))


def _wants_retained(wanted: Subscription, existed: bool) -> bool:
    """Retain Handling (MQTT 5.0, 3.8.3.1): always, only for a new subscription, never."""
    return wanted.retain_handling == 0 or (wanted.retain_handling == 1 and not existed)


def _record(
    wanted: Subscription, identifier: int | None, effective_ms: int, start: dict[int, int], merged_from: int = 0
) -> SubscriptionRecord:
    return SubscriptionRecord(
        wanted.filter,
        wanted.qos,
        wanted.no_local,
        wanted.retain_as_published,
        wanted.retain_handling,
        identifier,
        effective_ms,
        start,
        merged_from=merged_from,
    )
