"""The home of one shard: its side of the one interface between connections and sessions, and its life.

Everything runs on one event loop; a host calls these methods, the home calls the host's :class:`Link`. What a shard
needs is its own: its spool, its numbers, its routes, its reader of `ingress`, its positions. So it can start and stop
while other shards of the process go on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple

import structlog

from gateway.errors import NotAdmitted
from gateway.shard.arrivals import LOST_CONNECTING, Arrival, Kicked
from gateway.shard.catch_up_reader import IngressCatchUpReader
from gateway.shard.checkpoint import Checkpointer
from gateway.shard.conversation_notices import ConversationNotices
from gateway.shard.delivery import Deliverer
from gateway.shard.entitlement import Entitlement
from gateway.shard.feed_writer import FeedWriter
from gateway.shard.ingress_reader import IngressReader
from gateway.shard.keyed import KeyedMessages
from gateway.shard.keyed_lock import KeyedLock
from gateway.shard.link import Link
from gateway.shard.log_writer import SessionLogWriter
from gateway.shard.moved_clients import LeavingClients, MovedClient, take_up
from gateway.shard.node import Node
from gateway.shard.operations import Operations, Tasks
from gateway.shard.presence import PresenceReporter
from gateway.shard.promises import Promises
from gateway.shard.publishes import InboundPosition
from gateway.shard.publishing import Publisher
from gateway.shard.route_start import RouteStart
from gateway.shard.routes import ShardRoutes
from gateway.shard.rules import ClientRules
from gateway.shard.session import Session
from gateway.shard.session_ends import SessionEnds
from gateway.shard.session_mending import SessionMender
from gateway.shard.shard_parts import egress_consumer, shard_state
from gateway.shard.shard_spool import ShardSpool
from gateway.shard.share_messages import ShareMessage
from gateway.shard.shares import Shares
from gateway.shard.start_steps import together
from gateway.shard.subscribing import Subscriber
from gateway.shard.timers import SessionTimers
from gateway.shard.upkeep import Upkeep
from gateway.shard.waiting_bundles import WaitingBundles
from gateway.shard.wills import Wills
from mqtt.codes import ReasonCode
from mqtt.packets import Subscribe, Unsubscribe
from schemas.origin import HTTP_FLAG, SHARES_SENDER
from schemas.session_log import SessionKey

_TASKS_END_S = 5.0
"""How long the end of a shard that was lost waits for its tasks: for the disk, mostly."""

log = structlog.get_logger(__name__)


class Attached(NamedTuple):
    """A client's session, the home that it has, whether it was there before, and what takes its PUBLISH and answers it
    once Kafka has it."""

    home: "ShardHome"
    session: Session
    present: bool
    publisher: Publisher


class ShardHome:
    """`orphans` (names in the spool whose sessions are over), `ended_groups` (records of share groups without members)
    and `published_wills` (sessions whose will `ingress` has) are what a recovery leaves to `start`.

    `post` is that of :class:`gateway.shard.shares.Shares`; `spawn` starts a coroutine whose failure is fatal;
    `on_superseded` is that of :class:`gateway.shard.promises.Promises`.
    """

    def __init__(
        self,
        number: int,
        node: Node,
        spool: ShardSpool,
        ingress: IngressReader,
        instructed_to: Callable[[int], int],
        post: Callable[[int, int, ShareMessage], None],
        presence: PresenceReporter,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        on_superseded: Callable[[int, int, int], None] = lambda _shard, _epoch, _fence: None,
    ) -> None:
        self.number = number
        self.spool = spool
        self.state = shard_state(number, node)
        self.sessions = self.state.sessions
        self.unsettled: set[Session] = set()
        self.orphans: list[str] = []
        self.ended_groups: list[SessionKey] = []
        self.published_wills: list[Session] = []
        self._node = node
        self._tasks = Tasks(spawn)
        self._spawn = spawn = self._tasks.spawn
        self._presence = presence
        self.lock = KeyedLock()
        self._operations = Operations()
        self._is_abandoned = False
        self.timers = SessionTimers()
        settings, topics, http = node.settings, node.topics, node.settings.gateway.http
        self.keyed = KeyedMessages(http.idempotency_keys, http.idempotency_s, spool, node.clock, node.counts)
        self.routes = ShardRoutes(node.bus, topics.routes, number, int(settings.router.route_lead_s * 1000))
        self.feeds = FeedWriter(node, self.state, self.routes, spool.epoch)
        self.inbound = InboundPosition(node.publishes)
        self._publisher = partial(Publisher, node, self.inbound, self.unsettled)
        self.promises = Promises(number, node.sessions_reader, on_superseded)
        self.writer = SessionLogWriter(node.bus, topics.sessions, number, node.on_fatal, self.promises)
        self.catch_up = IngressCatchUpReader(self.state.order, ingress, instructed_to, spawn)
        routes = RouteStart(self.routes, self.catch_up, node.publishes.stored_to, node.clock, node.broker_clock)
        self.shares = Shares(node, self.state, routes, post, spawn)
        self.deliverer = Deliverer(
            node,
            self.state,
            spool,
            self.writer,
            self.shares,
            self.unsettled,
            self._tasks,
            partial(self._disconnect, reason=ReasonCode.QUOTA_EXCEEDED),
        )
        self._wills = Wills(self.sessions, self._will_publisher, self.writer, self.promises)
        self.mender = SessionMender(self.sessions, self.shares.groups, self._wills.is_on_way, self.writer)
        self._checkpointer = Checkpointer(
            node,
            self.state,
            spool,
            self.inbound,
            self.unsettled,
            self._wills,
            self.deliverer,
            self.writer,
            self.catch_up,
            self.feeds,
            spawn,
        )
        self.checkpoint, cover = self._checkpointer.run, self._checkpointer.cover
        notices = ConversationNotices(self._publisher(SHARES_SENDER, None, None), node.counts)
        self.shares.connect(self.deliverer, self.writer, spool, cover, notices.tell)
        requests = self.shares.requests
        self._subscriber = Subscriber(node, self.state, routes, self.deliverer, self.writer, requests, cover)
        ended = self._wills, self._subscriber, self.deliverer
        self._ends = SessionEnds(node, self.sessions, self.timers, *ended, self.writer, self.promises, presence)
        work = self.deliverer, self.writer, self._operations, cover
        self.waiting = WaitingBundles(self.sessions, spool, *work, node.clock)
        self._entitlement = Entitlement(self.sessions, self._subscriber, node.counts)
        self.end_forbidden = self._entitlement.end_forbidden
        self.acknowledged = self.deliverer.acknowledged
        """PUBACK of a session's packet id."""
        self.received, self.completed = self.deliverer.received, self.deliverer.completed
        """PUBREC and PUBCOMP."""
        self.undeliverable = self.deliverer.undeliverable
        """The client does not accept so large a packet: it counts as sent [MQTT-3.1.2-25]."""
        self.flush = node.ready.flush
        """All packets of one read are handed over: deliver what they made possible."""
        self.arrivals: Callable[[], Awaitable[None]] | None = None
        """Attaches clients who have come with the shard, once its sessions are recovered."""
        ways = self.routes, self.catch_up, self.feeds
        self.egress = egress_consumer(node, self.state, spool, self.deliverer, *ways, self.shares, spawn)
        kept = self.promises, self.feeds, self._subscriber, self.shares, self.catch_up, self.egress, self._broker_ms
        self.keep = Upkeep(node, self.state, spool, self.routes, *kept).run
        """What is due every second; whether records that wait may go on by now. Raises BusError."""

    # -- its life ------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """After a recovery, before records come: what is due of what was found."""
        self.promises.serve()
        self._node.reporter.guard(self.number, self.promises)
        for spool_key in self.orphans:
            self._spawn(self.deliverer.backlog.end_rows(spool_key))
        for key in self.ended_groups:
            self.writer.forget(key)
        now = self._node.clock()
        self._wills.recovered(self.published_wills)
        for session in [s for s in self.sessions.values() if not s.is_group and s.link is None]:
            self._ends.recovered(session, self._broker_ms())
        self._wills.log_recovered(self.published_wills)
        self.routes.begin(now)
        self.shares.begin()

    async def relinquish_finished(self) -> None:
        """At the start: what the spool has finished but not relinquished."""
        await self._checkpointer.relinquish_finished()

    async def freeze(self, leaving: LeavingClients | None = None) -> None:
        """Ends the connections of the shard's clients, but for those of `leaving`, held already, that it passes on, and
        all work on it, and writes its positions to Kafka; the file is left as it is. Call it once no more records come.
        Raises ShardLost."""
        self.shares.requests.stop()
        self.feeds.stop()
        await self._operations.end()
        if leaving is not None:
            await together(leaving.leave(), self._node.reporter.flush(self.number))  # the last checkpoint waits for it
        for session in list(self.sessions.values()):
            self._disconnect(session, ReasonCode.SERVER_MOVED)
        self.timers.cancel_all()
        await self.catch_up.stop()
        self.spool.end()
        while self.inbound.is_busy or self._wills.is_settling or self._tasks.are_left:
            await self.writer.durable(self.writer.barrier)
        await together(self._checkpointer.last(), self.writer.durable(self.writer.barrier))
        self.shares.end()
        self.writer.check()

    def abandon(self) -> None:
        """Another home has the shard: nothing is sent and nothing begins here any more; its clients are disconnected,
        and of what they and their sessions have still to do nothing is done here. `abandoned` follows."""
        self._is_abandoned = True
        self.promises.lose()
        self.timers.cancel_all()
        self.shares.requests.stop()
        self.shares.end()
        self.feeds.stop()
        self._operations.close()
        for session in list(self.sessions.values()):
            if session.link is not None:
                session.link.disconnect(ReasonCode.SERVER_MOVED)

    async def abandoned(self) -> None:
        """Returns once nothing of it runs."""
        await self._operations.end()
        await self.catch_up.stop()
        await self._checkpointer.end()
        await self.promises.end()
        self.spool.end()
        if not await self._tasks.ended(_TASKS_END_S):
            log.warning("work on a shard that was lost has not ended", shard=self.number)

    # -- the interface -------------------------------------------------------------------------------------------------

    async def attach(self, arrival: Arrival, link: Link) -> Attached:
        """Opens or resumes the client's session for `link`, taking it over from an earlier one (MQTT 5.0, 3.1.4).

        Returns once that is durable; deliveries begin with `resume`. Raises NotAdmitted if the session is another
        user's (R11).
        """
        async with self._operations, self.lock.of(arrival.client):
            earlier = self.sessions.get(arrival.client)
            was_logged = earlier is not None and earlier.in_log
            self._entitlement.check_owner(earlier, arrival.rules)
            session, present = self._take_over(arrival)
            if earlier is not None:
                await self._wills.stored(earlier)
                if session.ended:  # its time was over meanwhile
                    session, present = self._take_over(arrival)
            await self._open(session, arrival, link, was_logged)
        return self._attached(session, present, link, arrival.rules, arrival.hears_refusals)

    def move_in(self, moved: MovedClient) -> Attached:
        """Attaches a client whose connection has come with the shard. Nothing is delivered to it before records come,
        and `end_forbidden` was called. Raises NotAdmitted."""
        session = self.sessions.get(moved.client)
        self._entitlement.check_owner(session, moved.rules)
        number = self._node.numbers.connection(self.number, self._node.clock())
        if session is None or not take_up(session, moved, number):
            raise NotAdmitted(ReasonCode.SERVER_MOVED, "the session is not the one that the connection was for")
        self._presence.report(session, "connected", peer=moved.peer, protocol=moved.protocol)
        return self._attached(session, True, moved.link, moved.rules, moved.hears_refusals)

    def _attached(self, session: Session, present: bool, link: Link, rules: ClientRules, hears: bool) -> Attached:
        of = session.client, session, link, rules
        publisher = self._publisher(*of, hears_refusals=hears, promises=self.promises, epoch=self.spool.epoch)
        return Attached(self, session, present, publisher)

    def resume(self, session: Session, link: Link) -> None:
        """CONNACK is sent: delivers, again what was in flight."""
        if session.link is link:
            self.deliverer.resend(session)
            self.shares.members.resume(session)

    def writable(self, session: Session, link: Link) -> None:
        """The connection takes deliveries again."""
        if session.link is link:
            self.deliverer.writable(session)

    def publisher(self, client: str, link: Link, rules: ClientRules) -> Publisher:
        """Publishes at QoS 0 and 1 what a client without a session posts over HTTP; `link` is answered."""
        return self._publisher(client, None, link, rules, flags=HTTP_FLAG, epoch=self.spool.epoch)

    def _will_publisher(self, client: str) -> Publisher:
        return self._publisher(client, None, None, epoch=self.spool.epoch)

    def release(self, session: Session, link: Link, packet_id: int) -> None:
        """PUBREL: the client may use the packet id again once that is durable (G8). One that comes before PUBREC is
        passed over: the client repeats it when PUBREC comes."""
        if session.inbound.is_early(packet_id):
            return
        is_known = session.inbound.release(packet_id)
        code = ReasonCode.SUCCESS if is_known else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
        if session.persistent and (is_known or session.is_logging):
            self.writer.windows(session, partial(link.complete, packet_id, code))
        else:
            link.complete(packet_id, code)

    async def subscribe(self, session: Session, packet: Subscribe, answer: Callable[[list[ReasonCode]], None]) -> None:
        """SUBSCRIBE: `answer` is called once the subscriptions are durable and nothing sent from then on is missed;
        retained messages follow it."""
        async with self._operations:
            changes = self._entitlement.changes
            await self._subscriber.subscribe(session, packet, answer)
            if changes != self._entitlement.changes:  # it was answered by the rules before
                await self._entitlement.end_forbidden(session)

    async def unsubscribe(self, session: Session, packet: Unsubscribe) -> list[ReasonCode]:
        """UNSUBSCRIBE; returns once durable."""
        async with self._operations:
            return await self._subscriber.unsubscribe(session, packet.filters)

    def rules_changed(self) -> None:
        """What clients may do has changed: the shard's subscriptions that are no longer allowed end (R11)."""
        self._entitlement.changes += 1
        self._spawn(self._entitlement.end_all_forbidden())

    def detach(
        self, session: Session, link: Link, *, send_will: bool, reason: str, expiry_s: int | None = None
    ) -> None:
        """The connection is gone (R12, G9): the session lives on until it expires; its will is due after its delay."""
        if session.link is not link or self._is_abandoned:
            return
        is_new = reason == LOST_CONNECTING
        session.disconnected(self._broker_ms(), expiry_s, keeps_will=send_will, was_accepted=not is_new)
        lost = is_new or (send_will and reason != "disconnect_with_will")
        self._presence.report(session, "lost" if lost else "disconnected", reason=reason)
        self.deliverer.drop_qos0(session)
        session.forget_spooled(self.spool.committed_row)
        self.shares.members.lost(session)
        self._ends.disconnected(session)

    async def kick(self, client: str, *, end_session: bool = False) -> Kicked | None:
        """An operator ends the client's connection (0x98), and its session too if asked to; None if it has no session.
        The will is due as after any loss. The client may come back at once. What is ended stays so: it is durable."""
        async with self._operations, self.lock.of(client):
            session = self.sessions.get(client)
            if session is None:
                return None
            is_connected = session.link is not None
            self._disconnect(session, ReasonCode.ADMINISTRATIVE_ACTION)
            if end_session and not session.ended:
                was_logged = session.in_log
                self._ends.end(session)
                if was_logged:
                    await self._wills.stored(session)
                    await self.writer.durable(partial(self.writer.gone, session))
            return Kicked(is_connected, session.ended)

    # -- sessions ------------------------------------------------------------------------------------------------------

    def _take_over(self, arrival: Arrival) -> tuple[Session, bool]:
        """The session that the client gets, and whether it was there before."""
        session = self.sessions.get(arrival.client)
        born_us = self._node.numbers.session(self.number, self._node.clock())
        if session is not None:
            self._disconnect(session, ReasonCode.SESSION_TAKEN_OVER)
            born_us = max(born_us, session.born_us + 1)
            self.timers.cancel(session.client)
            if arrival.clean_start and not session.ended:
                self._ends.end(session)
            if not session.ended:
                return session, True
        session = Session(arrival.client, self.number, self.state.received_to, born_us, self.spool.epoch)
        self.sessions[arrival.client] = session
        return session, False

    async def _open(self, session: Session, arrival: Arrival, link: Link, was_logged: bool) -> None:
        session.admit(arrival, self._node.numbers.connection(self.number, self._node.clock()))
        if session.logged or session.in_log:
            await self.writer.durable(lambda then: self.writer.opened(session, then))
        elif was_logged:  # the earlier session's end must be durable too
            await self.writer.durable(partial(self.writer.gone, session))
        await self.writer.caught_up(session)  # nothing is acted on here that was said on an earlier connection before
        session.connecting(arrival)
        await self._entitlement.end_forbidden(session)  # before anything can be delivered
        self.promises.check()
        session.connected(link)
        self._presence.report(session, "connected", peer=arrival.peer, protocol=arrival.protocol)

    def _disconnect(self, session: Session, reason: ReasonCode) -> None:
        """Ends the client's connection, if it has one: its session stays, and its will is due."""
        link = session.link
        if link is not None:
            link.disconnect(reason)
            self.detach(session, link, send_will=True, reason=reason.name.lower())

    def _broker_ms(self) -> int:
        """The broker's time: of times that other gateways and other lives of this one compare with theirs."""
        return self._node.broker_clock.ms(asyncio.get_running_loop().time())
