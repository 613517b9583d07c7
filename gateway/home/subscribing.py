"""SUBSCRIBE and UNSUBSCRIBE: routes, instant reading, the session log, retained messages (MQTT 5.0, 3.8 to 3.11)."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from gateway.home.context import HomeContext
from gateway.home.delivery import Deliverer
from gateway.home.instant import InstantReader
from gateway.home.log_writer import SessionLogWriter, durable
from gateway.home.messages import Entry, Held
from gateway.home.session import Session, SessionSubscription
from gateway.home.system_topics import is_system, send_system
from gateway.mqtt.codes import ReasonCode
from gateway.mqtt.packets import Subscribe, Subscription
from gateway.mqtt.topics import split_shared
from schemas.identity import INBOX_MARK, inbox_of, route_key
from schemas.session_log import SubscriptionRecord

_RETAINED_FENCE_S = 30.0
_GRANTED = (ReasonCode.GRANTED_QOS_0, ReasonCode.GRANTED_QOS_1, ReasonCode.GRANTED_QOS_2)


class Subscriber:
    """Adds and removes subscriptions of sessions. `checkpoint` returns once what waits by now is in the spool."""

    def __init__(
        self,
        context: HomeContext,
        deliverer: Deliverer,
        writer: SessionLogWriter,
        instant: InstantReader,
        checkpoint: Callable[[], Awaitable[None]],
    ) -> None:
        self._context = context
        self._checkpoint = checkpoint
        self._deliverer = deliverer
        self._writer = writer
        self._instant = instant
        self._fenced: set[Session] = set()

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
                self._context.counts[f"subscription_refused_{code.name.lower()}"] += 1
        allowed = [w for w, code in zip(packet.filters, codes, strict=True) if code < ReasonCode.UNSPECIFIED_ERROR]
        existed = {wanted.filter for wanted in allowed if wanted.filter in session.subscriptions}
        await asyncio.gather(
            *(self._add(session, wanted, identifier) for wanted in {w.filter: w for w in allowed}.values())
        )
        if any(wanted.retain_handling < 2 for wanted in allowed):
            await self._context.retained.caught_up()
        due = [w for w in allowed if w.retain_handling == 0 or (w.retain_handling == 1 and w.filter not in existed)]
        if session.persistent and any([self._send_retained(session, wanted, identifier, kept=True) for wanted in due]):
            await self._checkpoint()  # no log brings them again: for whoever has SUBACK they are in the spool
        if session.logged and allowed:
            await durable(partial(self._writer.subscribed, session))
        answer(codes)
        for wanted in due:
            self._send_retained(session, wanted, identifier, kept=False)
        self._deliverer.flush()

    async def unsubscribe(self, session: Session, filters: list[str]) -> list[ReasonCode]:
        codes = []
        for topic_filter in filters:
            found = session.subscriptions.pop(topic_filter, None)
            codes.append(ReasonCode.SUCCESS if found else ReasonCode.NO_SUBSCRIPTION_EXISTED)
            if found is not None:
                self._detach(session, topic_filter)
        if session.logged:
            await durable(partial(self._writer.subscribed, session))
        return codes

    def forget(self, session: Session) -> None:
        """The session is over."""
        for topic_filter in session.subscriptions:
            self._detach(session, topic_filter)
        self._fenced.discard(session)

    def forget_retained(self, now: float) -> None:
        """Live copies of retained messages that were sent on SUBSCRIBE have long come: no longer look for them."""
        for session in list(self._fenced):
            session.retained_sent = {i: until for i, until in session.retained_sent.items() if until > now}
            if not session.retained_sent:
                self._fenced.discard(session)

    def _verdicts(self, session: Session, filters: list[Subscription]) -> list[ReasonCode]:
        known, codes = set(session.subscriptions), []
        for wanted in filters:
            codes.append(self._verdict(session, wanted, known))
            if codes[-1] < ReasonCode.UNSPECIFIED_ERROR:
                known.add(wanted.filter)
        return codes

    def _verdict(self, session: Session, wanted: Subscription, known: set[str]) -> ReasonCode:
        limit = self._context.settings.gateway.limits.subscriptions
        if split_shared(wanted.filter) is not None:
            return ReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED
        if wanted.filter.startswith(INBOX_MARK) and wanted.filter != inbox_of(session.client):
            return ReasonCode.NOT_AUTHORIZED
        if wanted.filter not in known and len(known) >= limit:
            return ReasonCode.QUOTA_EXCEEDED
        refused = session.rules.subscribe(wanted.filter)
        return refused or _GRANTED[wanted.qos]

    async def _add(self, session: Session, wanted: Subscription, identifier: int | None) -> None:
        old = session.subscriptions.get(wanted.filter)
        if old is not None:
            effective_ms, start = old.record.effective_ms, old.record.ingress_from
        elif wanted.filter.startswith(INBOX_MARK):
            return  # a client's inbox is its own without asking
        elif is_system(wanted.filter):
            effective_ms, start = 0, {}  # local: no route, nothing on `ingress`
        else:
            effective_ms, start = await self._route(session, wanted.filter)
            if session.ended or wanted.filter in session.subscriptions:  # meanwhile
                self._context.routes.leave(session.shard, route_key(wanted.filter), self._context.clock())
            if session.ended:
                return
            start |= self._instant.unpassed(start)
        record = SubscriptionRecord(
            wanted.filter,
            wanted.qos,
            wanted.no_local,
            wanted.retain_as_published,
            wanted.retain_handling,
            identifier,
            effective_ms,
            start,
        )
        subscription = SessionSubscription(session.client, record)
        session.subscriptions[wanted.filter] = subscription
        self._context.shards[session.shard].trie.add(wanted.filter, session.client, subscription)

    async def _route(self, session: Session, topic_filter: str) -> tuple[int, dict[int, int]]:
        """Since when the filter's route is in effect, and from where on messages on `ingress` are for it (anywhere:
        {}): what the instant reader has got already is for the subscriptions that were there before."""
        key = route_key(topic_filter)
        begun = self._context.routes.effective_ms(session.shard, key)
        now_ms = int(self._context.clock() * 1000)
        start: dict[int, int] = {}
        if begun is None or self._instant.is_needed(begun, now_ms):
            self._instant.hold_until(now_ms + self._context.routes.lead_ms if begun is None else begun)
            start = await self._instant.begin()
        elif self._instant.positions is not None:  # it is needed by others
            start = await self._instant.begin()
        route = await self._context.routes.use(session.shard, key)
        if start:
            self._instant.hold_until(route.effective_ms)
        return route.effective_ms, start

    def _send_retained(self, session: Session, wanted: Subscription, identifier: int | None, *, kept: bool) -> bool:
        """Sends either those that a crash must not lose (`kept`) or the others; whether there were any."""
        now, found = self._context.clock(), False
        identifiers = () if identifier is None else (identifier,)
        if session.ended:
            return False
        if is_system(wanted.filter):
            for message in self._context.system.matching(wanted.filter) if not kept else ():
                send_system(session, message, True, identifiers)
            return False
        for message in self._context.retained.matching(wanted.filter, int(now * 1000)):
            if message.id in session.live_meanwhile or (wanted.no_local and message.source == session.client):
                continue
            held = Held(message, session.shard, -1, now, [])
            entry = Entry(session.client, held, min(wanted.qos, message.qos), True, identifiers)
            if kept != (session.persistent and entry.qos > 0):
                continue
            found = True
            session.retained_sent[message.id] = now + _RETAINED_FENCE_S
            self._fenced.add(session)
            self._deliverer.offer(session, held, entry)
            self._deliverer.offered(held)
        return found

    def _detach(self, session: Session, topic_filter: str) -> None:
        self._context.shards[session.shard].trie.remove(topic_filter, session.client)
        self._context.routes.leave(session.shard, route_key(topic_filter), self._context.clock())
