"""The home's side of the one interface between connections and sessions: attach, publish, subscribe, ack, detach.

Everything runs on one event loop; a host calls these methods, the home calls the host's :class:`Link`.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple

import msgspec
import structlog

from gateway.errors import BusError, SpoolError
from gateway.shard.checkpoint import Checkpointer
from gateway.shard.context import HomeContext
from gateway.shard.delivery import Deliverer
from gateway.shard.egress_flow import EgressFlow
from gateway.shard.entitlement import Entitlement
from gateway.shard.fold import Fold
from gateway.shard.instant import InstantReader
from gateway.shard.keyed import KeyedMessages
from gateway.shard.link import Link
from gateway.shard.log_writer import SessionLogWriter, durable
from gateway.shard.messages import Entry
from gateway.shard.offering import Offering
from gateway.shard.own_copies import OwnCopies
from gateway.shard.presence import PresenceReporter
from gateway.shard.publishing import Publisher
from gateway.shard.recovery import Recovery
from gateway.shard.rules import EVERYTHING, ClientRules
from gateway.shard.session import OWN_PACKET_IDS, Session
from gateway.shard.sharing import ShareGroups
from gateway.shard.subscribing import Subscriber
from gateway.shard.timers import SessionTimers
from gateway.shard.turns import Turns
from gateway.shard.wills import Wills
from mqtt.codes import ReasonCode
from mqtt.packets import Subscribe, Unsubscribe
from schemas.origin import HTTP_FLAG
from schemas.session_log import WillRecord

LOST_CONNECTING = "connection_lost_while_connecting"
"""Why a connection ended that never got its CONNACK: lost, but its will was never accepted."""

_HOUSEKEEPING_S = 1.0

log = structlog.get_logger(__name__)


class Arrival(NamedTuple):
    """A client that connects; `expiry_s`: of its session; `hears_refusals`: its protocol can refuse a PUBLISH (5.0)."""

    client: str
    clean_start: bool
    expiry_s: int
    will: WillRecord | None
    receive_maximum: int
    peer: str
    protocol: str
    rules: ClientRules = EVERYTHING
    hears_refusals: bool = True


class Attached(NamedTuple):
    """A client's session, whether it was there before, and what takes its PUBLISH and answers it once Kafka has it."""

    session: Session
    present: bool
    publisher: Publisher


class Kicked(NamedTuple):
    """What an operator's `kick` has ended."""

    connection: bool
    session: bool


class Home:
    """Owns all shards of this gateway. `recovered` counts what was read at the start (:class:`Recovery`)."""

    def __init__(self, context: HomeContext) -> None:
        self._context = context
        self.recovered: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = Turns()
        self._timers = SessionTimers()
        self._writer = SessionLogWriter(context)
        self._instant = InstantReader(context, self._spawn)
        self._deliverer = Deliverer(
            context, self._writer, self._spawn, partial(self._disconnect, reason=ReasonCode.QUOTA_EXCEEDED)
        )
        self._lender = self._deliverer.lender
        self._groups = ShareGroups(context, self._lender)
        self._checkpointer = Checkpointer(context, self._deliverer, self._writer, self._instant)
        self._wills = Wills(context, self._writer)
        self._presence = PresenceReporter(context)
        self._subscriber = Subscriber(
            context, self._deliverer, self._writer, self._instant, self._groups, self._checkpointer.cover
        )
        self._entitlement = Entitlement(context, self._subscriber)
        self.acknowledged = self._deliverer.acknowledged
        """PUBACK of a session's packet id."""
        offering = Offering(context, self._deliverer)
        self._own = OwnCopies(context, offering, self._instant)
        self.keyed = KeyedMessages(context)
        self.message_presence = context.message_presence
        self._flow = EgressFlow(context, self._spawn)
        self.records = Fold(context, self._deliverer, self._instant, self._own, offering, self._flow).records

    async def start(self) -> None:
        """Recovers all sessions and begins to consume; clients may attach afterwards."""
        recovery = Recovery(self._context, self._instant, self.keyed, self._groups)
        start = await recovery.run()
        self.recovered = dict(recovery.read)
        for spool_key in recovery.orphans:
            self._spawn(self._deliverer.end_backlog(spool_key))
        for key in recovery.ended_groups:
            self._writer.forget(self._context.shard_for(key.client).number, key)
        now = self._context.clock()
        self._context.wills_settling.update(recovery.published_wills)
        for shard in self._context.shards:
            for session in [s for s in shard.sessions.values() if not s.is_group]:
                self._recovered(session, now)
        self._wills.recovered(recovery.published_wills)
        self._context.routes.begin(now)
        await self._context.bus.assign(start)
        await self._checkpointer.relinquish_finished()
        self._presence.heartbeat()  # before any client of this process: those of earlier ones are void from now on
        self._spawn(self._heartbeats())
        self._spawn(self._checkpoints())
        self._spawn(self._housekeeping())

    async def stop(self) -> None:
        """Stops the timers and makes a last checkpoint; connections are gone already. What is being worked on comes to
        its end; wills whose delay is not over stay in the session log. Raises SpoolError if there is no checkpoint.
        """
        self._timers.cancel_all()
        self._context.stopping.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._presence.heartbeat("disconnected")
        await self._checkpointer.run(at_once=True)
        if not self._context.outage.is_writing:
            raise SpoolError(self._context.outage.reason)

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of payload that clients have published and Kafka has not acknowledged yet."""
        return self._context.in_flight_bytes

    # -- the interface -------------------------------------------------------------------------------------------------

    async def attach(self, arrival: Arrival, link: Link) -> Attached:
        """Opens or resumes the client's session for `link`, taking it over from an earlier one (MQTT 5.0, 3.1.4).

        Returns once that is durable; deliveries begin with `resume`. Raises NotAdmitted if the session is another
        user's (R11).
        """
        async with self._turns.of(arrival.client):
            earlier = self._context.session(arrival.client)
            was_logged = earlier is not None and earlier.in_log
            self._entitlement.check_owner(earlier, arrival.rules)
            session, present = self._take_over(arrival)
            if earlier is not None:
                await self._wills.stored(earlier)
            await self._open(session, arrival, link, was_logged)
        publisher = Publisher(
            self._context, arrival.client, session, link, arrival.rules, hears_refusals=arrival.hears_refusals
        )
        return Attached(session, present, publisher)

    def has_capacity(self, client: str) -> bool:
        """Whether a client has a session, or there may be one more; "" for a client that is to be given a name."""
        if client and self._context.session(client) is not None:
            return True
        sessions = sum(len(shard.sessions) for shard in self._context.shards) - self._groups.count
        return sessions + len(self._turns) < self._context.settings.gateway.limits.sessions

    def resume(self, session: Session, link: Link) -> None:
        """CONNACK is sent: resends what was in flight and delivers what waits."""
        if session.link is link:
            self._deliverer.resend(session)
            self._lender.resume(session)

    def writable(self, session: Session, link: Link) -> None:
        """The connection takes deliveries again."""
        if session.link is link:
            self._deliverer.writable(session)

    def publisher(self, client: str, link: Link, rules: ClientRules) -> Publisher:
        """Publishes at QoS 0 and 1 what a client without a session posts over HTTP; `link` is answered."""
        return Publisher(self._context, client, None, link, rules, flags=HTTP_FLAG)

    def session(self, client: str) -> Session | None:
        """The client's session, connected or not."""
        return self._context.session(client)

    def release(self, session: Session, link: Link, packet_id: int) -> None:
        """PUBREL: the client may use the packet id again once that is durable (G8)."""
        if packet_id not in session.received:
            link.complete(packet_id, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
            return
        session.received.discard(packet_id)
        if session.persistent:
            self._writer.windows(session, lambda: link.complete(packet_id, ReasonCode.SUCCESS))
        else:
            link.complete(packet_id, ReasonCode.SUCCESS)

    async def subscribe(self, session: Session, packet: Subscribe, answer: Callable[[list[ReasonCode]], None]) -> None:
        """SUBSCRIBE: `answer` is called once the subscriptions are durable and nothing sent from then on is missed;
        retained messages follow it."""
        changes = self._entitlement.changes
        await self._subscriber.subscribe(session, packet, answer)
        if changes != self._entitlement.changes:  # it was answered by the rules before
            await self._entitlement.end_forbidden(session)

    async def unsubscribe(self, session: Session, packet: Unsubscribe) -> list[ReasonCode]:
        """UNSUBSCRIBE; returns once durable."""
        return await self._subscriber.unsubscribe(session, packet.filters)

    def rules_changed(self) -> None:
        """What clients may do has changed: subscriptions that are no longer allowed end (R11)."""
        self._entitlement.changes += 1
        self._spawn(self._entitlement.end_all_forbidden())

    def received(self, session: Session, packet_id: int, reason: ReasonCode) -> None:
        """PUBREC."""
        self._deliverer.received(session, packet_id, reason)

    def completed(self, session: Session, packet_id: int) -> None:
        """PUBCOMP."""
        self._deliverer.completed(session, packet_id)

    def undeliverable(self, session: Session, entry: Entry) -> None:
        """The client does not accept so large a packet: it counts as sent [MQTT-3.1.2-25]."""
        self._deliverer.undeliverable(session, entry)

    def flush(self) -> None:
        """All packets of one read are handed over: deliver what they made possible."""
        self._deliverer.flush()

    def detach(
        self, session: Session, link: Link, *, send_will: bool, reason: str, expiry_s: int | None = None
    ) -> None:
        """The connection is gone (R12, G9): the session lives on until it expires; its will is due after its delay."""
        if session.link is not link:
            return
        now = self._context.clock()
        session.link = None
        session.disconnected_ms = int(now * 1000)
        if expiry_s is not None:
            session.expiry_s = expiry_s
        if not send_will:
            session.will = None
        lost = reason == LOST_CONNECTING or (send_will and reason != "disconnect_with_will")
        self._presence.report(session, "lost" if lost else "disconnected", reason=reason)
        self._deliverer.drop_qos0(session)
        session.forget_spooled(self._context.committed_row)
        self._lender.lost(session)
        if session.will is not None:
            self._timers.after(min(session.will.delay_s, session.expiry_s), session, "will", self._wills.publish)
        if session.expiry_s == 0:
            self._expire(session)
        elif session.logged:
            self._writer.opened(session)
            self._timers.after(session.expiry_s, session, "expiry", self._expire)

    async def kick(self, client: str, *, end_session: bool = False) -> Kicked | None:
        """An operator ends the client's connection (0x98), and its session too if asked to; None if it has no session.
        The will is due as after any loss. The client may come back at once. What is ended stays so: it is durable."""
        async with self._turns.of(client):
            session = self._context.session(client)
            if session is None:
                return None
            is_connected = session.link is not None
            self._disconnect(session, ReasonCode.ADMINISTRATIVE_ACTION)
            if end_session and not session.ended:
                was_logged = session.in_log
                self._end(session)
                if was_logged:
                    await self._wills.stored(session)
                    await durable(partial(self._writer.gone, session))
            return Kicked(is_connected, session.ended)

    # -- sessions ------------------------------------------------------------------------------------------------------

    def _take_over(self, arrival: Arrival) -> tuple[Session, bool]:
        """The session that the client gets, and whether it was there before."""
        shard = self._context.shard_for(arrival.client)
        session = shard.sessions.get(arrival.client)
        if session is not None:
            self._disconnect(session, ReasonCode.SESSION_TAKEN_OVER)
        born_us = int(self._context.clock() * 1e6)
        if session is not None:
            born_us = max(born_us, session.born_us + 1)
            self._timers.cancel(session.client)
            if arrival.clean_start and not session.ended:
                self._end(session)
            if not session.ended:
                return session, True
        session = Session(arrival.client, shard.number, shard.received_to, born_us)
        shard.sessions[arrival.client] = session
        return session, False

    async def _open(self, session: Session, arrival: Arrival, link: Link, was_logged: bool) -> None:
        session.expiry_s, session.receive_maximum = arrival.expiry_s, min(arrival.receive_maximum, OWN_PACKET_IDS)
        session.disconnected_ms = None
        session.user = arrival.rules.user
        session.epoch, session.events = self._context.new_epoch(), 0
        session.will = arrival.will and msgspec.structs.replace(arrival.will, of_us=session.epoch)
        if session.logged or session.in_log:
            await durable(lambda then: self._writer.opened(session, then))
        elif was_logged:  # the earlier session's end must be durable too
            await durable(partial(self._writer.gone, session))
        session.peer, session.protocol = arrival.peer, arrival.protocol
        session.rules = arrival.rules
        await self._entitlement.end_forbidden(session)  # before anything can be delivered
        session.link = link
        self._presence.report(session, "connected", peer=arrival.peer, protocol=arrival.protocol)

    def _disconnect(self, session: Session, reason: ReasonCode) -> None:
        """Ends the client's connection, if it has one: its session stays, and its will is due."""
        link = session.link
        if link is not None:
            link.disconnect(reason)
            self.detach(session, link, send_will=True, reason=reason.name.lower())

    def _recovered(self, session: Session, now: float) -> None:
        """A session found in the log: whoever was connected has lost the connection with the gateway."""
        if session.disconnected_ms is None:
            session.epoch = self._context.new_epoch()
            session.disconnected_ms = int(now * 1000)
            self._writer.opened(session)  # its time runs from now on, also if there is another crash
            self._presence.report(session, "lost", reason="gateway_restarted")
        gone_s = now - session.disconnected_ms / 1000
        if session.will is not None:
            delay = min(session.will.delay_s, session.expiry_s) - gone_s
            self._timers.after(max(0.0, delay), session, "will", self._wills.publish)
        self._timers.after(max(0.0, session.expiry_s - gone_s), session, "expiry", self._expire)

    def _expire(self, session: Session) -> None:
        """The session's time is over."""
        if session.link is None:
            self._end(session)

    def _end(self, session: Session) -> None:
        """The session is over: its will is due at the latest now (MQTT 5.0, 3.1.3.2.2)."""
        self._wills.publish(session)
        session.ended = True
        shard = self._context.shards[session.shard]
        if shard.sessions.get(session.client) is session:
            del shard.sessions[session.client]
        self._timers.cancel(session.client)
        self._subscriber.forget(session)
        self._deliverer.end(session)
        self._lender.end(session)
        if session.in_log:
            self._wills.end(session)

    # -- time ----------------------------------------------------------------------------------------------------------

    async def _checkpoints(self) -> None:
        while await self._pause(self._context.settings.gateway.checkpoint_s):
            await self._checkpointer.run()

    async def _heartbeats(self) -> None:
        while await self._pause(self._context.settings.presence.heartbeat_s):
            self._presence.heartbeat()

    async def _housekeeping(self) -> None:
        while await self._pause(_HOUSEKEEPING_S):
            now = self._context.clock()
            self._context.routes.drop_unused(now)
            self._context.message_presence.forget(now)
            if not self._own.held_back:  # it may be among them
                self._subscriber.forget_retained(now)
            try:
                if await self._instant.end_if_passed(int(now * 1000)) or self._own.held_back or self._flow.is_paused:
                    self.records([])
            except BusError as error:  # the next time, perhaps
                log.warning("housekeeping failed", reason=str(error))

    async def _pause(self, seconds: float) -> bool:
        """False if the home stops meanwhile."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._context.stopping.wait(), seconds)
        return not self._context.stopping.is_set()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> object:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._context.on_fatal(task.exception())  # type: ignore[arg-type]
