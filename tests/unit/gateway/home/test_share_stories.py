"""R6 by random stories: members of share groups come and go, break, fall silent; the home is killed at any moment.

What must hold is :meth:`Story.check`; single rules are in the other `test_share_…`.
"""

import asyncio
import contextlib
import tempfile
from pathlib import Path
from unittest.mock import patch

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.home.share_group import ShareGroup
from mqtt.topics import matches
from tests.unit.gateway.home.home_client import Client, Got
from tests.unit.gateway.home.home_world import LEAD_S, PARTITIONS, World, turn
from tests.unit.gateway.home.virtual_time import run

TOPICS = ("x/1", "x/2", "y/1", "y/1", "@m1")
GROUPS = ("$share/g/x/#", "$share/h/y/+")
HELD = ("ingress", "sessions", "progress", "egress")

Step = tuple[str, int, int]

publishing = st.tuples(st.just("publish"), st.integers(0, 2 * len(TOPICS) - 1), st.integers(0, 2))
flooding = st.tuples(st.just("flood"), st.integers(0, 2 * len(TOPICS) - 1), st.sampled_from([5, 20]))
pausing = st.tuples(st.just("pause"), st.sampled_from([1, 2, 4, 20, 90, 300, 6_000, 20_000]), st.just(0))
coming = st.tuples(st.sampled_from(["lose", "connect", "connect"]), st.integers(0, 2), st.just(0))
hearing = st.tuples(st.sampled_from(["mute", "hear", "stuck", "smooth"]), st.integers(0, 2), st.just(0))
joining = st.tuples(st.sampled_from(["join", "leave"]), st.integers(1, 2), st.integers(0, 1))
routing = st.tuples(st.sampled_from(["slow", "quick", "stale", "fresh"]), st.integers(0, 1), st.just(0))
holding = st.tuples(st.sampled_from(["hold acks", "hold stores", "release", "release"]), st.integers(0, 3), st.just(0))
dying = st.tuples(
    st.sampled_from(["crash", "crash", "die before commit", "die after commit"]), st.integers(0, 3), st.just(0)
)
calm = st.one_of(publishing, publishing, flooding, pausing, hearing, joining, routing)
lively = st.one_of(publishing, publishing, flooding, flooding, pausing, pausing, coming, hearing, joining, holding)
deadly = st.one_of(publishing, publishing, flooding, pausing, pausing, coming, coming, hearing, joining, dying, routing)


class Member(Client):
    """A client whose `told` lists what any of the members was given, in order of time."""

    told: list[tuple[str, bytes]]

    def take(self, got: Got, packet_id: int) -> None:
        before = len(self.got)
        super().take(got, packet_id)
        self.told += [(self.name, g.payload) for g in self.got[before:]]


class Story:
    """Two senders, and three members: m0 stays in both groups, m1 has a small window, m2 may have no session when it
    is away (`keeps` False)."""

    def __init__(self, world: World, keeps: bool) -> None:
        self.world, self.keeps = world, keeps
        self.senders: list[Client] = []
        self.members: list[Member] = []
        self.sent: list[tuple[int, str, bytes, int]] = []
        self.told: list[tuple[str, bytes]] = []
        self.moved: set[bytes] = set()
        self.has_died = False
        self.is_calm = True

    async def begin(self, wait_s: float) -> None:
        self.senders = [await self.world.client(f"s{n}") for n in range(2)]
        for n, options in enumerate(({}, {"receive_maximum": 2}, {} if self.keeps else {"expiry_s": 0})):
            member = Member(self.world, f"m{n}", **options)  # type: ignore[arg-type]
            member.told = self.told
            self.members.append(member)
            self.world.clients.append(member)
            await member.connect()
        await self.members[0].subscribe(*GROUPS)
        await self.members[1].subscribe(GROUPS[0])
        await turn(wait_s)

    async def perform(self, word: str, number: int, more: int) -> None:
        world = self.world
        if not world.is_up:
            await self._restart()
        self.is_calm = self.is_calm and word not in ("lose", "connect", "crash")
        match word:
            case "publish":
                self._publish(number, more)
            case "flood":
                for n in range(more):
                    self._publish(number, 1 + n % 2 if n % 7 else 0)
            case "pause":
                await turn(number / 1_000)
            case "lose":
                self.members[number].lose()
            case "connect":
                await self._connect(self.members[number])
            case "mute" | "hear":
                self.members[number].mute = word == "mute"
                if word == "hear":
                    self.members[number].answer_all()
            case "stuck" | "smooth":
                self._let_write(self.members[number], word == "smooth")
            case "join" | "leave":
                self._release()
                member = self.members[number]
                with contextlib.suppress(TimeoutError):
                    if member.link is not None:
                        change = member.subscribe if word == "join" else member.unsubscribe
                        await asyncio.wait_for(change(GROUPS[more]), 1)
            case "slow" | "quick":
                [world.active, world.backup][number].delay_s = 7.0 if word == "slow" else 0.002
            case "stale" | "fresh":
                [world.active, world.backup][number].stale = word == "stale"
            case "hold acks":
                world.bus.held_acks.add(HELD[number])
            case "hold stores":
                world.bus.held_stores.add(HELD[number])
            case "release":
                self._release()
            case "crash":
                world.crash(number)
            case "die before commit" | "die after commit":
                world.spool.dies = word.split()[1]

    async def end(self) -> None:
        if self.world.is_up:
            self.world.spool.dies = None
        else:
            await self._restart()
        self._release()
        for client in (*self.senders, *self.members):
            client.mute = False
            client.answer_all()
            if client.link is None or self.has_died:
                await self._connect(client)
        for member in self.members:
            self._let_write(member, True)
        await turn(LEAD_S + 60)

    def check(self) -> None:
        world = self.world
        assert not world.fatal
        given: dict[bytes, list[str]] = {}
        for name, payload in self.told:
            given.setdefault(payload, []).append(name)
        for sender, topic, payload, qos in self.sent:
            names = given.get(payload, [])
            assert payload in self.senders[sender].acknowledged or not qos
            if topic.startswith("@"):
                assert set(names) <= {topic[1:]}
            if qos == 1 or (qos == 2 and self.keeps):
                assert names, f"{payload!r} to {topic} at QoS {qos} is lost"
            if qos == 2 or not (qos or self.has_died) or self.is_calm:
                assert len(names) <= 1, f"{payload!r} to {topic} at QoS {qos} went to {names}"
        self._check_order()
        assert self.has_died or self.members[1].most_in_flight <= 2
        assert world.relinquished() == world.instructions()
        assert world.completed() == set(world.published())
        for shard in world.context.shards:
            for session in shard.sessions.values():
                assert session.queued == session.queued_bytes == 0
                assert not any((session.in_flight, session.put_back, session.replayed, session.restored))
                if isinstance(session, ShareGroup):
                    assert not any((session.lent, session.stranded, session.recalled, session.sending))
                elif session.borrower is not None:
                    assert not any((session.borrower.lent, session.borrower.recalled, session.borrower.on_wire))
        assert world.spool_rows() == 0

    def _check_order(self) -> None:
        """R8: what one member gets of one sender through one group is in order, but for what was another's before."""
        found = [self.world.broker.partitions[self.world.topics.ingress, p] for p in range(PARTITIONS)]
        offsets = {record.value(): record.offset() for records in found for record in reversed(records)}
        for member in self.members:
            firsts, others = [], set()
            for name, payload in self.told:
                if name == member.name and payload not in others and payload not in firsts:
                    firsts.append(payload)
                elif name != member.name:
                    others.add(payload)
            for number in range(2):
                for group in ("x/#", "y/+", "@m1"):
                    mine = {p for s, topic, p, _ in self.sent if s == number and matches(group, topic)}
                    order = [offsets[p] for p in firsts if p in mine and p not in self.moved]
                    assert order == sorted(order), f"{member.name} got {firsts}"

    def _publish(self, number: int, qos: int) -> None:
        sender, topic = number % 2, TOPICS[number // 2]
        payload = b"%d" % len(self.sent)
        self.sent.append((sender, topic, payload, qos))
        self.senders[sender].publish(topic, payload, qos)

    def _let_write(self, member: Member, writable: bool) -> None:
        if member.link is not None:
            member.link.writable = writable
            if writable:
                self.world.home.writable(member.attached.session, member.link)

    async def _restart(self) -> None:
        self.has_died, self.is_calm = True, False
        await self.world.start()
        for client in self.senders:
            await self._connect(client)

    async def _connect(self, client: Client) -> None:
        self._release()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(client.connect(), 1)

    def _release(self) -> None:
        self.world.bus.held_acks.clear()
        self.world.bus.held_stores.clear()
        self.world.bus.release()


async def play(steps: list[Step], *, wait_s: float, keeps: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        story = Story(await World(Path(directory), held_back_messages=30).start(), keeps)
        take_back, crash = ShareGroup.take_back, story.world.crash

        def noting(group: ShareGroup, loans: list) -> None:  # type: ignore[type-arg]
            story.moved |= {loan.entry.held.message.payload for loan in loans}
            take_back(group, loans)

        def noting_crash(stored: int = 0) -> None:
            for shard in story.world.context.shards:
                for session in shard.sessions.values():
                    if isinstance(session, ShareGroup):
                        story.moved |= {loan.entry.held.message.payload for loan in session.lent.values()}
            crash(stored)

        with patch.object(ShareGroup, "take_back", noting), patch.object(story.world, "crash", noting_crash):
            story.world.spool.die = noting_crash
            await story.begin(wait_s)
            for word, number, more in steps:
                await story.perform(word, number, more)
            await story.end()
            story.check()
        story.world.crash()


quick = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
waits = st.sampled_from([0.0, 15.0, LEAD_S + 5])


@quick
@given(steps=st.lists(calm, min_size=10, max_size=70), wait_s=waits)
def test_each_message_goes_to_one_member_in_order(steps: list[Step], wait_s: float) -> None:
    """R6, R8, R4: members join and leave, and answer late or not at all."""
    run(play(steps, wait_s=wait_s, keeps=True))


@quick
@given(steps=st.lists(lively, min_size=10, max_size=70), wait_s=waits, keeps=st.booleans())
def test_nothing_is_lost_or_doubled_as_connections_break(steps: list[Step], wait_s: float, keeps: bool) -> None:
    """R6, G9, MQTT 5.0 4.8.2: what a member has not got goes to others, but for what it was sent at QoS 2."""
    run(play(steps, wait_s=wait_s, keeps=keeps))


@quick
@given(steps=st.lists(deadly, min_size=10, max_size=70), wait_s=waits, keeps=st.booleans())
def test_nothing_is_lost_or_doubled_by_crashes(steps: list[Step], wait_s: float, keeps: bool) -> None:
    """R6, G8, Q1, R4: the home is killed at any moment."""
    run(play(steps, wait_s=wait_s, keeps=keeps))
