"""A home in memory with its clients, what may be done to them, and what must hold however it went: the model behind
`test_home_state_machine`.

What one client is owed follows from what it had subscribed to when a message was published (:attr:`HomeModel.due`).
A home that is down is started again by whatever is done next.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from gateway.shard.share_group import ShareGroup
from mqtt.topics import matches
from tests.unit.gateway.shard.conversation_harness import of, with_settings
from tests.unit.gateway.shard.conversation_model import check_conversations
from tests.unit.gateway.shard.home_client import Client, Got
from tests.unit.gateway.shard.home_harness import LEAD_S, PARTITIONS, HomeHarness, turn

SENDERS = 2
HELD = ("ingress", "sessions", "progress", "presence", "egress")


class Setup(NamedTuple):
    """`receivers` are their options, `filters` what each subscribes to at first; `topics` may name inboxes. To `groups`
    (filters of shared subscriptions) the first receiver belongs all the time, the second to the first group at first.
    `limits` are the home's, `shares` its settings of conversations. With `reconnects` all clients come anew at the end,
    else only those that are away."""

    topics: tuple[str, ...]
    receivers: tuple[Mapping[str, Any], ...]
    filters: tuple[tuple[str, ...], ...]
    groups: tuple[str, ...] = ()
    limits: Mapping[str, int | str] = {}
    shares: Mapping[str, float] = {}
    wait_s: float = LEAD_S + 5
    reconnects: bool = False


KILLED = Setup(
    topics=("a/x", "a/y", "b/c", "@r0", "@r2"),
    receivers=({}, {"receive_maximum": 2}, {"receive_maximum": 4}),
    filters=(("#",), ("a/+", "b/c"), ("a/x",)),
    reconnects=True,
)
"""Receivers with wide and narrow windows, to be killed with their home."""


class Sent(NamedTuple):
    sender: int
    topic: str
    payload: bytes
    qos: int
    conversation: str = ""


class Receiver(Client):
    """`given` has in order of time what any receiver was given, and who; `told` what told that a conversation was
    another one's before."""

    given: list[tuple[str, bytes]]
    told: set[tuple[str, bytes]]

    def take(self, got: Got, packet_id: int) -> None:
        before = len(self.got)
        super().take(got, packet_id)
        self.given += [(self.name, each.payload) for each in self.got[before:]]
        self.told |= {(self.name, each.payload) for each in self.got[before:] if each.restarted}


class HomeModel:
    """`due`: by receiver and payload the filters that wanted it; `dropped`: by receiver the payloads that were reported
    as dropped, and how often; `moved`: what was taken back from a member of a share group, or lost with the home."""

    harness_type: type[HomeHarness] = HomeHarness

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.harness: HomeHarness
        self.senders: list[Client] = []
        self.receivers: list[Receiver] = []
        self.sent: list[Sent] = []
        self.given: list[tuple[str, bytes]] = []
        self.told: set[tuple[str, bytes]] = set()
        self.granted: list[set[str]] = [set() for _ in setup.receivers]
        self.asked: list[set[str]] = [{f"@r{n}"} for n in range(len(setup.receivers))]
        self.due: list[dict[bytes, set[str]]] = [{} for _ in setup.receivers]
        self.dropped: list[dict[bytes, int]] = [{} for _ in setup.receivers]
        self.moved: set[bytes] = set()
        self.has_died = False
        self.is_calm = self.all_stay = True
        self._seen = [0 for _ in setup.receivers]

    async def begin(self, directory: Path) -> None:
        setup = self.setup
        self.harness = with_settings(self.harness_type(directory, **setup.limits), **setup.shares)
        await self.harness.start()
        self._crash, self.harness.crash = self.harness.crash, self._crashed  # type: ignore[method-assign]
        self.harness.spool.die = self._crashed
        self.senders = [await self.harness.client(f"s{n}") for n in range(SENDERS)]
        for n, options in enumerate(setup.receivers):
            receiver = Receiver(self.harness, f"r{n}", **options)
            receiver.given, receiver.told = self.given, self.told
            self.receivers.append(receiver)
            self.harness.clients.append(receiver)
            await receiver.connect()
            for topic_filter in setup.filters[n]:
                await self.subscribe(n, topic_filter)
        for n, groups in ((0, setup.groups), (1, setup.groups[:1])):
            if groups:
                await self.receivers[n].subscribe(*groups)
        await turn(setup.wait_s)

    @contextlib.contextmanager
    def noting_what_moves(self) -> Any:
        """As long as this is entered, `moved` is kept."""
        take_back = ShareGroup.take_back

        def noting(group: ShareGroup, returned: Any) -> None:
            self.moved |= {assigned.delivery.pending.message.payload for assigned in returned}
            take_back(group, returned)

        with patch.object(ShareGroup, "take_back", noting):
            yield

    def _crashed(self, stored: int = 0) -> None:
        if self.harness.is_up:
            for group in self._share_groups():
                self.moved |= {a.delivery.pending.message.payload for a in group.assigned.values()}
            self.has_died, self.is_calm = True, False
        self._crash(stored)

    def crash(self, stored: int, disk: str) -> None:
        self.harness.crash(stored)
        self.harness.change_disk(disk)

    def _share_groups(self) -> list[ShareGroup]:
        return [s for shard in self.harness.home.states for s in shard.sessions.values() if isinstance(s, ShareGroup)]

    # what may be done

    async def ensure_up(self) -> None:
        if not self.harness.is_up:
            await self.harness.start()
            self.harness.spool.die = self._crashed
            for client in self.senders:
                await self.connect(client)

    def publish(self, sender: int, topic: str, qos: int, conversation: str = "") -> None:
        payload = b"%d" % len(self.sent)
        self.sent.append(Sent(sender, topic, payload, qos, conversation))
        for n in range(len(self.receivers)):
            filters = {f"@r{n}"} if topic.startswith("@") else self.granted[n]
            self.due[n][payload] = {f for f in filters if qos and matches(f, topic)}
        properties = of(conversation) if conversation else None
        self.senders[sender].publish(topic, payload, qos, properties=properties)

    async def subscribe(self, n: int, topic_filter: str) -> None:
        """What is not answered in time may be in effect or not."""
        receiver = self.receivers[n]
        if receiver.link is None:
            return
        self.asked[n].add(topic_filter)
        if await self._answered(receiver.subscribe(topic_filter)):
            self.granted[n].add(topic_filter)

    async def unsubscribe(self, n: int, topic_filter: str) -> None:
        """What is on its way for this filter alone need not come."""
        receiver = self.receivers[n]
        if receiver.link is None:
            return
        self.granted[n].discard(topic_filter)
        for wanted_by in self.due[n].values():
            wanted_by.discard(topic_filter)
        await self._answered(receiver.unsubscribe(topic_filter))

    async def join(self, n: int, group: str) -> None:
        if self.receivers[n].link is not None:
            await self._answered(self.receivers[n].subscribe(group))

    async def leave(self, n: int, group: str) -> None:
        self.all_stay = False
        if self.receivers[n].link is not None:
            await self._answered(self.receivers[n].unsubscribe(group))

    async def _answered(self, request: Awaitable[Any]) -> bool:
        self.release()
        try:
            await asyncio.wait_for(request, 1)
        except TimeoutError:
            return False
        return True

    def lose(self, client: Client) -> None:
        self.is_calm = False
        client.lose()

    async def connect(self, client: Client) -> None:
        self.is_calm = False
        self.release()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(client.connect(), 1)

    def hear(self, client: Client) -> None:
        """It answers again, also what it has not answered yet."""
        client.mute = False
        client.answer_all()

    def let_write(self, n: int, *, writable: bool) -> None:
        receiver = self.receivers[n]
        if receiver.link is not None:
            receiver.link.writable = writable
            if writable:
                receiver.attached.home.writable(receiver.attached.session, receiver.link)

    def release(self) -> None:
        """Kafka stores and acknowledges all that it has held back."""
        self.harness.bus.held_acks.clear()
        self.harness.bus.held_stores.clear()
        self.harness.bus.release()

    async def stop(self) -> None:
        """An orderly end."""
        self.release()
        await self.harness.stop()

    def route(self, n: int, *, stopped: bool) -> None:
        router = [self.harness.active, self.harness.backup][n]
        router.stopped = stopped
        router.wake()

    async def finish(self) -> None:
        """Nothing is in the way any more, and all has time to come to its end."""
        self.harness.spool.dies = None
        if self.harness.is_up:
            self.harness.spool.free_disk()
        await self.ensure_up()
        self.release()
        for number in range(2):
            self.route(number, stopped=False)
        calm = self.is_calm
        for client in (*self.senders, *self.receivers):
            self.hear(client)
            if client.link is None or self.has_died or self.setup.reconnects:
                await self.connect(client)
        for n in range(len(self.receivers)):
            self.let_write(n, writable=True)
        self.is_calm = calm
        await turn(LEAD_S + 60)
        for receiver in self.receivers:  # who was too slow comes again, for what waits
            if receiver.link is None:
                await self.connect(receiver)
        await turn(30)

    # what must hold

    def look(self) -> None:
        """At any time: what has come since the last look had not been reported as dropped by then; it may be now. A
        sender that did not hear of its PUBACK has made two messages of one: of those either may have been."""
        stored, twice = self._payloads(), self.twice()
        for n, receiver in enumerate(self.receivers):
            for payload in receiver.payloads[self._seen[n] :]:
                again = payload in receiver.payloads[: self._seen[n]]
                if not again and payload not in twice:
                    assert payload not in self.dropped[n], f"{receiver.name} got {payload!r}, which had been dropped"
            self._seen[n] = len(receiver.payloads)
            ids = [e.id for e in self.harness.events() for d in e.deliveries
                   if (d.client, d.outcome) == (receiver.name, "dropped") and d.qos]  # fmt: skip
            self.dropped[n] = {stored[i]: ids.count(i) for i in ids}

    def check(self) -> None:
        """At the end."""
        assert not self.harness.fatal
        for sent in self.sent:
            assert sent.payload in self.senders[sent.sender].acknowledged or not sent.qos
        for n in range(len(self.receivers)):
            self._check_deliveries(n)
            self._check_order(n)
        self._check_shares()
        for group in self.setup.groups:
            check_conversations(self, _shared(group))
        assert self.harness.relinquished() == self.harness.instructions()
        assert self.harness.completed() == set(self.harness.published())
        self._check_nothing_left()

    def _check_deliveries(self, n: int) -> None:
        """Nothing lost, but what was reported as dropped; at QoS 2 nothing twice; nothing that was not asked for."""
        receiver, got, dropped = self.receivers[n], Counter(self.receivers[n].payloads), self.dropped[n]
        assert "queue_messages" in self.setup.limits or "queue_bytes" in self.setup.limits or not dropped
        asked = {*self.asked[n], *map(_shared, self.setup.groups)}
        for sent in self.sent:
            if self.due[n][sent.payload]:
                assert got[sent.payload] or sent.payload in dropped, f"{receiver.name} lost {sent}"
            if sent.qos == 2:
                assert got[sent.payload] + (sent.payload in dropped) <= 1, f"{receiver.name} got {sent} twice"
            if got[sent.payload]:
                assert any(matches(f, sent.topic) for f in asked), f"{receiver.name} had not asked for {sent}"

    def _check_order(self, n: int) -> None:
        """R8: first deliveries are in the order of `ingress`, a sender's; also through one group, but for what was
        another's before or waits for the member of its conversation (:mod:`conversation_model`), and of two messages
        that came of one either may be the first where queues are full."""
        receiver = self.receivers[n]
        stored = self.offsets()
        waits = {sent.payload for sent in self.sent if sent.conversation and not sent.topic.startswith("@")}
        left_out = self.moved | waits | (self.twice() if self.setup.limits.get("queue_full") else set())
        firsts, others = [], set()
        for name, payload in self.given:
            if name != receiver.name:
                others.add(payload)
            elif payload not in firsts and not (self.setup.groups and payload in others):
                firsts.append(payload)
        topics = {sent.topic for sent in self.sent}
        ways = [{t for t in topics if matches(f, t)} for f in (*map(_shared, self.setup.groups), f"@r{n}")]
        for sender in range(SENDERS):
            for way in ways if self.setup.groups else [topics]:
                mine = {sent.payload for sent in self.sent if sent.sender == sender and sent.topic in way}
                offsets = [stored[payload] for payload in firsts if payload in mine and payload not in left_out]
                assert offsets == sorted(offsets), f"{receiver.name} got {firsts}"

    def _check_shares(self) -> None:
        """R6: each message goes to a member, at QoS 2 to one only, and so if nobody has come or gone. A member without
        a session may take with it what it was sent at QoS 2 (MQTT 5.0, 4.8.2)."""
        keeps = all(options.get("expiry_s", 1) for options in self.setup.receivers)
        for sent in self.sent:
            if not any(matches(_shared(group), sent.topic) for group in self.setup.groups):
                continue
            names = [name for name, payload in self.given if payload == sent.payload]
            if sent.qos == 1 or (sent.qos == 2 and keeps):
                assert names, f"{sent} is lost"
            if sent.qos == 2 or not (sent.qos or self.has_died) or self.is_calm:
                assert len(names) <= 1, f"{sent} went to {names}"

    def _check_nothing_left(self) -> None:
        harness = self.harness
        assert harness.spool_rows() == 0
        assert not harness.is_reading, "the reader has ended"
        for options, receiver in zip(self.setup.receivers, self.receivers, strict=True):
            assert self.has_died or receiver.most_in_flight <= options.get("receive_maximum", 65_535)
        for shard in harness.home.states:
            assert not shard.order.parked
            for session in shard.sessions.values():
                assert (session.queued, session.queued_bytes, session.settled_before) == (0, 0, None)
                assert not any((session.in_flight, session.put_back, session.restored))
                assert not any((session.dropping, session.dropped, session.dropped_before))
                if isinstance(session, ShareGroup):
                    assert not any((session.assigned, session.assigned_before, session.sending))
                elif session.assignments is not None:
                    assert not any((session.assignments.waiting, session.assignments.open))
                    assert not list(session.assignments.packet_ids())
        for client in (*self.senders, *self.receivers):
            session = client.attached.session
            assert not session.inbound

    def _ingress(self) -> list[Any]:
        return [self.harness.broker.partitions[self.harness.topics.ingress, p] for p in range(PARTITIONS)]

    def offsets(self) -> dict[bytes, int]:
        """Where the first message with each payload is on its partition of `ingress`."""
        return {record.value(): record.offset() for records in self._ingress() for record in reversed(records)}

    def _payloads(self) -> dict[str, bytes]:
        """By message id."""
        return {(r.headers() or [])[0][1].decode(): r.value() or b"" for records in self._ingress() for r in records}

    def twice(self) -> set[bytes]:
        """Payloads of which a sender has made two messages."""
        return {payload for payload, n in Counter(self._payloads().values()).items() if n > 1}


def _shared(group: str) -> str:
    """The filter of a share group: of `$share/NAME/FILTER`."""
    return group.split("/", 2)[2]
