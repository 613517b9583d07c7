"""The home's side of the one interface between connections and sessions: attach, publish, subscribe, ack, detach.

Everything runs on one event loop; a host calls these methods, the home calls the host's :class:`Link`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import structlog

from gateway.home.checkpoint import Checkpointer
from gateway.home.context import HomeContext
from gateway.home.delivery import Deliverer
from gateway.home.fold import Fold
from gateway.home.instant import InstantReader
from gateway.home.log_writer import SessionLogWriter
from gateway.home.messages import Entry
from gateway.home.presence import PresenceReporter
from gateway.home.publishing import Publisher
from gateway.home.recovery import Recovery
from gateway.home.session import Link, Session
from gateway.home.subscribing import Subscriber
from gateway.mqtt.codes import ReasonCode
from gateway.mqtt.packets import Publish, Subscribe, Unsubscribe
from schemas.session_log import WillRecord

_HOUSEKEEPING_S = 1.0

log = structlog.get_logger(__name__)


class Arrival(NamedTuple):
    """A client that asks to be attached; `expiry_s` seconds its session outlives the connection."""

    client: str
    clean_start: bool
    expiry_s: int
    will: WillRecord | None
    receive_maximum: int
    peer: str
    protocol: str


class Attached(NamedTuple):
    session: Session
    present: bool
    publisher: Publisher


class Home:
    """Owns all shards of this gateway."""

    def __init__(self, context: HomeContext) -> None:
        self._context = context
        self._tasks: set[asyncio.Task[None]] = set()
        self._locks: dict[str, asyncio.Lock] = {}
        self._timers: dict[tuple[str, str], asyncio.TimerHandle] = {}
        self._writer = SessionLogWriter(context)
        self._instant = InstantReader(context.bus, context.topics.ingress, context.settings.kafka.ingress_partitions)
        self._deliverer = Deliverer(context, self._writer, self._spawn)
        self._checkpointer = Checkpointer(context, self._deliverer, self._writer, self._instant)
        self._presence = PresenceReporter(context)
        self._subscriber = Subscriber(context, self._deliverer, self._writer, self._instant)
        self._fold = Fold(context, self._deliverer, self._instant)
        self.records = self._fold.records

    async def start(self) -> None:
        """Recovers all sessions and begins to consume; clients may attach afterwards."""
        recovery = Recovery(self._context, self._instant, self._checkpointer)
        start = await recovery.run()
        for client in recovery.orphans:
            self._spawn(self._deliverer.end_backlog(client))
        now = self._context.clock()
        for shard in self._context.shards:
            for session in list(shard.sessions.values()):
                self._recovered(session, now)
        self._context.routes.begin(now)
        await self._context.bus.assign(start)
        await self._checkpointer.relinquish_finished()
        self._spawn(self._checkpoints())
        self._spawn(self._housekeeping())

    async def stop(self) -> None:
        """Stops the timers and makes a last checkpoint; connections are gone already."""
        for timer in self._timers.values():
            timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._checkpointer.run()

    # -- the interface -------------------------------------------------------------------------------------------------

    async def attach(self, arrival: Arrival, link: Link) -> Attached:
        """Opens or resumes the client's session for `link`, taking it over from an earlier connection (MQTT 5.0, 3.1.4).

        Returns once that is durable; deliveries begin with `resume`.
        """
        lock = self._locks.setdefault(arrival.client, asyncio.Lock())
        async with lock:
            shard = self._context.shard_for(arrival.client)
            session = shard.sessions.get(arrival.client)
            if session is not None and session.link is not None:
                session.link.disconnect(ReasonCode.SESSION_TAKEN_OVER)
                self.detach(session, session.link, send_will=True, reason="session_taken_over")
                session = shard.sessions.get(arrival.client)
            if session is not None:
                self._cancel(session.client)
                if session.will is not None and arrival.clean_start:
                    self._publish_will(session)
            if session is not None and arrival.clean_start:
                self._remove(session)
                if session.in_log:
                    await self._durable(lambda then, ended=session: self._writer.ended(ended, then))  # type: ignore[misc]
                session = None
            present = session is not None
            if session is None:
                session = shard.sessions[arrival.client] = Session(arrival.client, shard.number, shard.position)
            await self._open(session, arrival, link)
        if not lock.locked() and self._locks.get(arrival.client) is lock:
            del self._locks[arrival.client]
        publisher = Publisher(self._context, arrival.client, session, link, self._checkpointer.inbound)
        return Attached(session, present, publisher)

    def resume(self, session: Session, link: Link) -> None:
        """CONNACK is sent: resends what was in flight and delivers what waits."""
        if session.link is link:
            self._deliverer.resend(session)

    def writable(self, session: Session, link: Link) -> None:
        """The connection takes deliveries again."""
        if session.link is link:
            self._deliverer.pump(session)

    def publish(self, attached: Attached, packet: Publish) -> None:
        """A PUBLISH; answered through the link once Kafka has it."""
        attached.publisher.publish(packet)

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
        await self._subscriber.subscribe(session, packet, answer)

    async def unsubscribe(self, session: Session, packet: Unsubscribe) -> list[ReasonCode]:
        """UNSUBSCRIBE; returns once durable."""
        return await self._subscriber.unsubscribe(session, packet.filters)

    def acknowledged(self, session: Session, packet_id: int) -> None:
        """PUBACK."""
        self._deliverer.acknowledged(session, packet_id)

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
        lost = send_will and reason != "disconnect_with_will"
        self._presence.report(session, "lost" if lost else "disconnected", reason=reason)
        self._deliverer.drop_qos0(session)
        session.forget_spooled()
        if session.will is not None:
            self._after(min(session.will.delay_s, session.expiry_s), session, "will", self._publish_will)
        if session.expiry_s == 0:
            self._expire(session)
        elif session.logged:
            self._writer.opened(session)
            self._after(session.expiry_s, session, "expiry", self._expire)

    # -- sessions ------------------------------------------------------------------------------------------------------

    async def _open(self, session: Session, arrival: Arrival, link: Link) -> None:
        session.expiry_s, session.will = arrival.expiry_s, arrival.will
        session.receive_maximum = arrival.receive_maximum
        session.disconnected_ms = None
        session.epoch, session.events = int(self._context.clock() * 1e6), 0
        if session.logged or session.in_log:
            await self._durable(lambda then: self._writer.opened(session, then))
        session.link = link
        self._presence.report(session, "connected", peer=arrival.peer, protocol=arrival.protocol)

    def _recovered(self, session: Session, now: float) -> None:
        """A session found in the log: whoever was connected has lost the connection with the gateway."""
        if session.disconnected_ms is None:
            session.disconnected_ms = int(now * 1000)
            self._presence.report(session, "lost", reason="gateway_restarted")
        gone_s = now - session.disconnected_ms / 1000
        if session.will is not None:
            delay = min(session.will.delay_s, session.expiry_s) - gone_s
            self._after(max(0.0, delay), session, "will", self._publish_will)
        self._after(max(0.0, session.expiry_s - gone_s), session, "expiry", self._expire)

    def _expire(self, session: Session) -> None:
        """The session's time is over: its will is due at the latest now (MQTT 5.0, 3.1.3.2.2)."""
        if session.link is not None:
            return
        if session.will is not None:
            self._publish_will(session)
        self._remove(session)
        if session.in_log:
            self._writer.ended(session)

    def _remove(self, session: Session) -> None:
        shard = self._context.shards[session.shard]
        if shard.sessions.get(session.client) is session:
            del shard.sessions[session.client]
        self._cancel(session.client)
        self._subscriber.forget(session)
        self._deliverer.end(session)

    def _publish_will(self, session: Session) -> None:
        will, session.will = session.will, None
        if will is None:
            return
        publisher = Publisher(self._context, session.client, None, None, self._checkpointer.inbound)
        publisher.publish_will(will)
        if session.in_log and session.expiry_s:
            self._writer.opened(session)

    # -- time ----------------------------------------------------------------------------------------------------------

    def _after(self, delay_s: float, session: Session, kind: str, action: Callable[[Session], None]) -> None:
        def due() -> None:
            self._timers.pop((session.client, kind), None)
            if session.link is None:
                action(session)

        if delay_s <= 0:
            due()
            return
        self._timers[session.client, kind] = asyncio.get_running_loop().call_later(delay_s, due)

    def _cancel(self, client: str) -> None:
        for kind in ("will", "expiry"):
            timer = self._timers.pop((client, kind), None)
            if timer is not None:
                timer.cancel()

    async def _checkpoints(self) -> None:
        while True:
            await asyncio.sleep(self._context.settings.gateway.checkpoint_s)
            await self._checkpointer.run()

    async def _housekeeping(self) -> None:
        while True:
            await asyncio.sleep(_HOUSEKEEPING_S)
            now = self._context.clock()
            self._context.routes.drop_unused(now)
            self._subscriber.forget_retained(now)
            if await self._instant.end_if_passed(int(now * 1000)):
                self.records([])

    async def _durable(self, write: Callable[[Callable[[], None]], None]) -> None:
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        write(lambda: stored.set_result(None))
        await stored

    def _spawn(self, work: Coroutine[Any, Any, None]) -> object:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._context.on_fatal(task.exception())  # type: ignore[arg-type]
