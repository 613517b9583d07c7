"""Share groups in a toy home: the gateway's own parts, over the log of the simulation (MQTT 5.0, 4.8.2; R6, G6, Q7).

What assigns, takes, answers, logs, mends and recovers is the code of `gateway.shard`. What is made here stands in for
the rest of a home: it reads `ingress` itself instead of instructions, and has no spool. So a message that is not
finished keeps the position of the shard back, and comes from `ingress` again.

Records on `sessions` have the gateway's own keys and values, which have a NUL that the toy home's keys have not, but
for `numbers`: up to where numbers of assignments may have been given. What shards say to one another is on `egress`.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from gateway.shard.arrivals import Arrival
from gateway.shard.delivery import Deliverer
from gateway.shard.fenced_partition import FencedPartition
from gateway.shard.keyed_lock import KeyedLock
from gateway.shard.log_writer import SessionLogWriter
from gateway.shard.messages import Delivery, PendingMessage
from gateway.shard.messages import Message as GatewayMessage
from gateway.shard.offering import Offering
from gateway.shard.session import Session
from gateway.shard.session_mending import SessionMender
from gateway.shard.session_recovery import SessionRecovery
from gateway.shard.session_values import SessionValues
from gateway.shard.shard import Shard
from gateway.shard.share_messages import Assign, Sender, ShareMessage, decode, sender_of
from gateway.shard.shares import Shares
from gateway.shard.start_steps import Steps
from gateway.shard.subscription import SessionSubscription
from mqtt.codes import ReasonCode
from mqtt.properties import NO_PROPERTIES
from schemas.session_log import SubscriptionRecord
from tests.unit.gateway.cluster.sim.session import Message
from tests.unit.gateway.cluster.sim.share_parts import LogRecord, Promises, Routes, settings
from tests.unit.gateway.cluster.sim.share_ways import fail
from tests.unit.gateway.cluster.sim.world import Entry

SWEEP_S = 1.0
EXPIRY_S = 3_600


class GroupLink:
    """What a session of the gateway's own sends, on a connection of the simulation."""

    writable = True

    def __init__(self, home: "ShareHome", link: Any) -> None:
        self._home = home
        self.link = link

    def send(self, kind: str, packet_id: int = 0, message: Message | None = None) -> None:
        home = self._home.home
        home.process.send_to_client(home, lambda: self.link.to_client(kind, packet_id, message))

    def deliver(self, message: GatewayMessage, delivery: Delivery) -> bool:
        sent = Message(int(message.payload), message.source, message.topic, delivery.qos, 0)
        self.send("publish", delivery.packet_id, sent)
        return True

    def release(self, packet_id: int, _reason: ReasonCode = ReasonCode.SUCCESS) -> None:
        self.send("pubrel", packet_id)

    def answer(self, _qos: int, _packet_id: int, _reason: ReasonCode) -> None:
        """Members publish nothing."""

    def complete(self, _packet_id: int, _reason: ReasonCode) -> None:
        """Members publish nothing."""

    def disconnect(self, _reason: ReasonCode) -> None:
        self.link.close_from_home()


class ShareHome:
    """Of one toy home: its sessions that are members of groups, and its groups. `values` is what its partition of
    `sessions` says, until it is recovered."""

    def __init__(self, home: Any) -> None:
        self.home = home
        self.site = home.site
        self.state = Shard(home.shard)
        self.sessions = self.state.sessions
        self.has_begun = False
        self.promises = Promises(home)
        self._values = SessionValues(FencedPartition(home.shard))
        self._process = process = home.process
        self._numbers_limit = 0
        self._egress_from = 0
        self._swept_at = 0.0
        self._is_recovered = False
        self._waiting: list[tuple[int, int, Message]] = []
        """What was on `ingress` before the home has begun."""
        self._lock = KeyedLock()
        self.node = node = cast(
            Any,
            SimpleNamespace(
                settings=settings(self.site.shards, process.me.name),
                clock=lambda: self.site.world.now,
                broker_clock=SimpleNamespace(ms=lambda _: self._now_ms),
                counts=Counter[str](),
                reporter=self,
                ready=process.ready,
                numbers=process.numbers,
            ),
        )
        spawn = self.site.turns.spawn
        soon: Callable[[Callable[[], None]], object] = partial(self.site.world.after, 0.0)
        tasks = cast(Any, SimpleNamespace(spawn=spawn, soon=soon))
        spool = cast(Any, SimpleNamespace(committed_row=0, epoch=home.epoch))
        self.shares = Shares(node, self.state, cast(Any, Routes(home)), self._post, spawn)
        self._writer = SessionLogWriter(cast(Any, self), "sessions", home.shard, fail, cast(Any, self.promises))
        self._writer.begin(home.epoch)
        unsettled = set[Session]()
        self._deliverer = Deliverer(
            node, self.state, spool, self._writer, self.shares, unsettled, tasks, lambda session: None
        )
        self._offering = Offering(self.state, self._deliverer, node)
        self.shares.connect(self._deliverer, self._writer, spool, _nothing, lambda *_: None)
        self._mender = SessionMender(self.sessions, self.shares.groups, lambda _: False, self._writer)

    @property
    def _now_ms(self) -> int:
        return int(1000 * self.site.world.now)

    # -- the log -------------------------------------------------------------------------------------------------------

    def produce(self, _topic: str, _shard: int, key: bytes, value: bytes | None, _headers: Any, done: Any) -> None:
        """A record of the gateway's own on `sessions`."""
        tp = "sessions", self.home.shard
        stored = lambda offset: done(None, LogRecord(tp, key, value, offset))  # noqa: E731
        self._process.produce(tp, key, value, self.home.epoch, False, stored)

    def read(self, entry: Entry) -> None:
        """A record on `sessions` that counts, before the home's own fence."""
        if not self.owns(entry.key):
            return
        if entry.key == b"numbers":
            self.state.assignment_numbers.begin(entry.value)
        else:
            self._values.take(cast(Any, LogRecord(("sessions", self.home.shard), entry.key, entry.value, entry.offset)))

    @staticmethod
    def owns(key: bytes) -> bool:
        """Whether a key on `sessions` is of share groups and their members."""
        return b"\0" in key or key == b"numbers"

    def mend(self, key: bytes) -> None:
        """The last record of this key is void."""
        if key == b"numbers":
            self._write_limit()
        else:
            self._mender.mend(key)

    def _write_limit(self) -> None:
        numbers = self.state.assignment_numbers
        limit = self._numbers_limit = numbers.next_limit
        self.home._write(b"numbers", limit, lambda: self._reserved(limit))

    def _reserved(self, limit: int) -> None:
        self.state.assignment_numbers.reserved(limit)
        for group in self.shares.groups:
            self._deliverer.wake(group)
        self._process.ready.flush()

    # -- its life ------------------------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Everything before the fence on `sessions` is known: its sessions and groups, as they were."""
        of_recovery = SimpleNamespace(
            number=self.home.shard,
            sessions=self.sessions,
            state=self.state,
            routes=SimpleNamespace(recount=lambda _: None),
            spool=SimpleNamespace(epoch=self.home.epoch, number_above=lambda _: None),
            shares=self.shares,
            ended_groups=[],
        )
        homes = {self.home.shard: cast(Any, of_recovery)}
        recovery = SessionRecovery(self.node, homes, Counter(), {self.home.shard: self._values}, Steps(lambda: 0.0))

        async def apply() -> None:
            recovery.apply()

        self.site.turns.loop.run_until_complete(apply())
        self._is_recovered = True
        self._egress_from = len(self.site.world.log["egress", self.home.shard])

    def begin(self) -> None:
        """The home serves: it says so to all shards, and sends again what is open."""
        self.state.fences = self.home.senders
        for session in [s for s in self.sessions.values() if not s.is_group and s.disconnected_ms is None]:
            session.lost_with_gateway(
                self._process.numbers.connection(self.home.shard, self.site.world.now), self._now_ms
            )
            self._writer.opened(session)
        self._write_limit()
        self.has_begun = True
        self.shares.begin()
        self.home.read_on(("egress", self.home.shard), self._egress_from, self._said)
        for waiting in self._waiting:
            self.offer(*waiting)
        for session in list(self.sessions.values()):
            if session.is_recovering:
                self._deliverer.forget_restored(session)
        self._process.ready.flush()

    def end(self) -> None:
        """Another home has the shard."""
        self.promises.lose()
        self.shares.requests.stop()
        self.shares.end()
        for session in list(self.sessions.values()):
            if session.link is not None:
                session.link.disconnect(ReasonCode.SERVER_MOVED)

    def freeze(self) -> None:
        """The shard goes to another home: its clients do, too."""
        self.shares.requests.stop()
        for session in list(self.sessions.values()):
            if session.link is not None:
                session.link.disconnect(ReasonCode.SERVER_MOVED)

    def tick(self) -> None:
        if self.state.assignment_numbers.next_limit != self._numbers_limit:
            self._write_limit()
        if self.site.world.now - self._swept_at >= SWEEP_S:
            self._swept_at = self.site.world.now
            self.shares.sweep()
            self._process.ready.flush()

    # -- what shards say to one another --------------------------------------------------------------------------------

    def _post(self, shard: int, epoch: int, message: ShareMessage) -> None:
        if isinstance(message, Assign) and message.qos == 2:
            now = self.site.world.now
            self.site.groups.assigned(int(message.message.payload), message.client, message.session, now)
        self._process.ways.post(Sender(self.home.shard, self.home.epoch), shard, epoch, message)

    def _said(self, entry: Entry) -> None:
        """A record on `egress` (:meth:`gateway.shard.egress_consumer.EgressConsumer._is_share_message`)."""
        value, headers = entry.value
        message = decode(value, headers)
        if self.shares.senders.counts(sender_of(headers)):
            self._process.ready.post(self.shares.receive, message)
            self._process.ready.flush()

    # -- messages ------------------------------------------------------------------------------------------------------

    def offer(self, partition: int, offset: int, message: Message) -> None:
        """A message on `ingress` for members of a group."""
        self.home.undone[partition][offset] = None
        if not self.has_begun:
            self._waiting.append((partition, offset, message))
            return
        of_gateway = GatewayMessage(
            id=str(message.number),
            source=message.sender,
            topic=message.recipient,
            payload=b"%d" % message.number,
            qos=message.qos,
            retain=False,
            expires=None,
            properties=NO_PROPERTIES,
            partition=partition,
            offset=offset,
            appended=self._now_ms,
        )
        pending = PendingMessage(of_gateway, self.home.shard, -1, self.site.world.now, [])
        matching = self.state.trie.match(message.recipient)
        self._offering.offer_at_once(
            pending, [of for of in matching if of.record.ingress_from.get(partition, 0) <= offset]
        )
        if not pending.unfinished:
            self.home.undone[partition].pop(offset, None)
        self._process.ready.flush()

    def outcome(self, message: GatewayMessage, *_: Any) -> None:
        """All recipients are finished with a message: the reporter is told."""
        self.home.undone[message.partition].pop(message.offset, None)

    # -- members -------------------------------------------------------------------------------------------------------

    def attach(self, link: Any, client: str) -> None:
        """A member has connected (:meth:`gateway.shard.shard_home.ShardHome.attach`)."""
        self.site.turns.spawn(self._attach(link, client, link.client.is_clean))

    async def _attach(self, link: Any, client: str, is_clean: bool) -> None:
        async with self._lock.of(client):
            session = self._take_over(client, is_clean)
            arrival = Arrival(client, is_clean, EXPIRY_S, None, self.site.groups.window, "", "")
            session.admit(arrival, self._process.numbers.connection(self.home.shard, self.site.world.now))
            await self.promises.wait(partial(self._writer.opened, session))
            await self._writer.caught_up(session)
            if self.promises.is_lost or self.home.is_freezing:
                return
            own = GroupLink(self, link)
            session.connected(own)
        own.send("connected")
        if not link.is_open:
            self.detach(client, link)
            return
        self._deliverer.resend(session)
        self.shares.members.resume(session)
        self._process.ready.flush()

    def _take_over(self, client: str, is_clean: bool) -> Session:
        session = self.sessions.get(client)
        born_us = self._process.numbers.session(self.home.shard, self.site.world.now)
        if session is not None:
            if session.link is not None:
                session.link.disconnect(ReasonCode.SESSION_TAKEN_OVER)
            born_us = max(born_us, session.born_us + 1)
            if not is_clean:
                return session
            self._end(session)
        session = self.sessions[client] = Session(client, self.home.shard, 0, born_us, self.home.epoch)
        return session

    def _end(self, session: Session) -> None:
        """A session is over (:class:`gateway.shard.session_ends.SessionEnds`)."""
        self.site.groups.ended(session.client, session.incarnation)
        session.end()
        del self.sessions[session.client]
        for name in list(session.subscriptions):
            self.shares.requests.forget(session, name)
        self._deliverer.end(session)
        self._writer.ended(session)

    def detach(self, client: str, link: Any) -> None:
        """The connection is gone."""
        session = self.sessions.get(client)
        own = None if session is None else session.link
        if session is None or not isinstance(own, GroupLink) or own.link is not link or self.home.is_over:
            return
        session.disconnected(self._now_ms, None, keeps_will=False)
        self.shares.members.lost(session)
        self._writer.opened(session)
        self._process.ready.flush()

    def receive(self, client: str, kind: str, packet_id: int) -> None:
        """A packet of a member."""
        session = self.sessions.get(client)
        if session is None or session.link is None:
            return
        match kind:
            case "puback":
                self._deliverer.acknowledged(session, packet_id)
            case "pubrec":
                self._deliverer.received(session, packet_id, 0)
            case "pubcomp":
                self._deliverer.completed(session, packet_id)
            case "subscribe":
                self.site.turns.spawn(self._subscribe(session, cast(GroupLink, session.link)))
            case "unsubscribe":
                self.site.turns.spawn(self._unsubscribe(session, cast(GroupLink, session.link)))
        self._process.ready.flush()

    async def _subscribe(self, session: Session, link: GroupLink) -> None:
        for name in self.site.groups.names:
            asked = SubscriptionRecord(name, 2, False, False, 2, None, 0, {})
            record = await self.shares.requests.join(session, asked)
            if session.ended:
                return
            session.subscriptions[name] = SessionSubscription(session.client, record)
        await self.promises.wait(partial(self._writer.subscribed, session))
        link.send("suback")

    async def _unsubscribe(self, session: Session, link: GroupLink) -> None:
        names = [name for name in self.site.groups.names if session.subscriptions.pop(name, None) is not None]
        await self.shares.requests.leave(session, names)
        await self.promises.wait(partial(self._writer.subscribed, session))
        link.send("unsuback")


async def _nothing() -> None:
    """Everything that waits is on `ingress`, and the position of the shard keeps it."""
