"""A shard moves from one gateway to another under load, and gateways are killed meanwhile (R6, R8, G8; design
"State of a shard")."""

import asyncio
import contextlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import NotAdmitted, SpoolError
from gateway.shard.arrivals import Arrival
from gateway.shard.messages import GROUP_MARK
from schemas.identity import shard_of
from tests.draw import some
from tests.unit.gateway.shard.home_client import Client, ClientLink
from tests.unit.gateway.shard.home_harness import LEAD_S, SHARDS, turn
from tests.unit.gateway.shard.two_gateways import TwoGateways, done_or_killed
from tests.unit.gateway.shard.virtual_time import VirtualLoop, run

GROUPS = ("$share/g/a/#", "$share/h/a/#", "$share/k/b/+")


class Load:
    """Two senders and four members of three groups, which also have subscriptions and inboxes of their own."""

    def __init__(self, harness: TwoGateways) -> None:
        self.harness = harness
        self.sent: list[tuple[str, bytes, int]] = []
        self.senders: list[Client] = []
        self.members: list[Client] = []

    async def begin(self) -> None:
        self.senders = [await self.harness.client(f"sender{n}") for n in range(2)]
        self.members = [await self.harness.client(f"member{n}", receive_maximum=20) for n in range(4)]
        for n, member in enumerate(self.members):
            await member.subscribe(*GROUPS[: 2 + n % 2], "c/#")
        await turn(LEAD_S + 5)

    def publish(self, count: int) -> None:
        """To a group or two, to everybody, or to one's inbox, at QoS 1 and 2 in turn."""
        for _ in range(count):
            n = len(self.sent)
            topic = ("a/x", "b/y", "c/z", f"@member{n % 4}")[n % 4 if n % 8 < 4 else (n + 1) % 4]
            sender, payload, qos = self.senders[n % 2], b"%d" % n, 1 + n // 2 % 2
            if sender.link is not None:
                self.sent.append((topic, payload, qos))
                sender.publish(topic, payload, qos)
            else:
                self.sent.append(("", payload, qos))

    def check(self, *, killed: bool) -> None:
        harness = self.harness
        assert not harness.fatal
        got = Counter(payload for member in self.members for payload in member.payloads)
        for topic, payload, qos in self.sent:
            if not topic:
                continue
            assert any(payload in sender.acknowledged for sender in self.senders), f"{payload!r} is not acknowledged"
            wanted = {"a/x": 2, "b/y": 1, "c/z": 4}.get(topic, 1)
            assert got[payload] >= wanted, f"{topic} {payload!r} came {got[payload]} times, not {wanted}"
            if qos == 2 or not killed:
                assert got[payload] == wanted or qos == 1, f"{topic} {payload!r} came {got[payload]} times"
        for member in self.members:
            for sender in range(2):
                own = [int(p) for p in dict.fromkeys(member.payloads) if self.sent[int(p)][0] == "c/z"]
                mine = [n for n in own if n % 2 == sender]
                assert mine == sorted(mine), f"{member.name} got {mine}"
        assert harness.relinquished() == harness.instructions()
        assert harness.completed() == set(harness.published())
        assert harness.spool_rows() == 0


def test_shards_move_to_and_fro_under_load(tmp_path: Path) -> None:
    """Others go on; sessions, queues, groups and exchanges at QoS 2 go on where the shard is."""

    async def scenario() -> None:
        harness = await TwoGateways(tmp_path).start()
        load = Load(harness)
        await load.begin()
        one, other = harness.gateways
        for number, source, target in [(0, one, other), (1, other, one), (0, other, one), (1, one, other)]:
            load.members[number].mute = True
            load.publish(40)
            await turn(0.02)
            await source.hand_over(number)
            load.publish(20)
            await target.start_shard(number)
            await harness.reconnect()
            load.publish(40)
            await turn(1)
            load.members[number].mute = False
            load.members[number].answer_all()
        await harness.settle()
        load.check(killed=False)

    run(scenario())


@pytest.mark.parametrize("who", ["source", "target"])
@pytest.mark.parametrize("rounds", some(range(1, 200, 3), 6, "rounds of a move"))
def test_killed_at_each_step_of_a_move(tmp_path: Path, who: str, rounds: int) -> None:
    """G8: whoever is left takes the shards up, from Kafka alone."""

    async def scenario() -> None:
        harness = await TwoGateways(tmp_path).start()
        load = Load(harness)
        await load.begin()
        source, target = harness.gateways
        load.members[0].mute = load.members[3].mute = True
        load.publish(60)
        await turn(0.02)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.call_at_turn(loop.turns + rounds, (source if who == "source" else target).kill)

        async def move() -> None:
            await source.hand_over(0)
            await target.start_shard(0)
            await harness.reconnect()

        await done_or_killed(move(), 5, KeyError, SpoolError)  # the files of a killed one are closed
        load.publish(20)
        await turn(1)
        (source if who == "source" else target).kill()
        await harness.take_up()
        await harness.reconnect()
        load.publish(20)
        await harness.settle()
        load.check(killed=True)

    run(scenario())


def test_a_client_whose_shard_is_elsewhere_is_refused(tmp_path: Path) -> None:
    """0x9C; its session is not made here."""

    async def scenario() -> None:
        harness = await TwoGateways(tmp_path).start()
        client = await harness.client("client")
        number = client.attached.session.shard
        wrong = harness.gateways[1 - number]
        arrival = Arrival("client", False, 10, None, 10, "peer", "mqtt5")
        with pytest.raises(NotAdmitted, match="another gateway has the client's shard"):
            await wrong.home.attach(arrival, ClientLink(client))
        assert wrong.home.session("client") is None

    run(scenario())


def named(number: int) -> list[str]:
    """Clients of one shard."""
    return [name for name in map("client{}".format, range(20)) if shard_of(name, SHARDS) == number]


def group_in(number: int) -> str:
    """A group of one shard."""
    names = (f"$share/g{n}/a/#" for n in range(20))
    return next(name for name in names if shard_of(GROUP_MARK + name, SHARDS) == number)


async def apart(harness: TwoGateways, *, members: int = 1, **options: Any) -> tuple[Client, list[Client], str]:
    """A sender, members with one gateway, and their group with the other, which also has the sender."""
    sender = await harness.client(named(0)[0])
    found = [await harness.client(name, **options) for name in named(1)[:members]]
    for member in found:
        await member.subscribe(group_in(0))
    await turn(LEAD_S + 5)
    return sender, found, group_in(0)


def test_a_group_moves_while_its_member_stays_connected(tmp_path: Path) -> None:
    """R6: it is asked for again; what it has in hand it completes with the next home of the group."""

    async def scenario() -> None:
        harness = await TwoGateways(tmp_path).start()
        sender, [member], group = await apart(harness)
        one, other = harness.gateways
        member.mute = True
        for n in range(10):
            sender.publish("a", b"%d" % n, 1 + n % 2)
        await turn(0.2)
        assert len(member.got) == 10
        await one.hand_over(0)
        member.mute = False
        member.answer_all()
        await turn(0.2)
        await other.start_shard(0)
        await sender.connect()
        for n in range(10, 20):
            sender.publish("a", b"%d" % n, 1 + n % 2)
        await turn(1)
        counts = Counter(member.payloads)
        assert set(counts) == {b"%d" % n for n in range(20)}
        assert all(counts[b"%d" % n] == 1 for n in range(1, 20, 2)), "QoS 2 once"
        await member.unsubscribe(group)
        await turn(20)
        assert not list(other.home.shards[0].shares.groups)
        assert harness.relinquished() == harness.instructions()
        assert harness.spool_rows() == 0

    run(scenario())


@pytest.mark.parametrize("qos", [1, 2])
def test_the_gateway_of_a_member_is_killed(tmp_path: Path, qos: int) -> None:
    """[MQTT-4.8.2-4], G8: at QoS 1 what it had in hand waits again, at QoS 2 it is sent to that session again."""

    async def scenario() -> None:
        harness = await TwoGateways(tmp_path).start()
        sender, [member, other], _ = await apart(harness, members=2, mute=True)
        for n in range(10):
            sender.publish("a", b"%d" % n, qos)
        await turn(0.3)
        assert len(member.got) == len(other.got) == 5
        harness.gateways[1].kill()
        await harness.take_up()
        other.mute = False
        await other.connect()
        await turn(1)
        assert len(set(other.payloads)) == (10 if qos == 1 else 5)
        await harness.settle()
        everything = Counter(member.payloads + other.payloads)
        assert set(everything) == {b"%d" % n for n in range(10)}
        assert qos == 1 or set(everything.values()) == {1}
        assert harness.relinquished() == harness.instructions()

    run(scenario())


def test_assignments_of_before_a_start_are_void(tmp_path: Path) -> None:
    """Q1: `egress` has them still, but the session has forgotten that they are over."""

    async def scenario() -> None:
        harness = await TwoGateways(tmp_path).start()
        sender, [member], _ = await apart(harness)
        for n in range(20):
            sender.publish("a", b"%d" % n, 2)
            await turn(0.01)
        await turn(0.1)
        harness.gateways[1].kill()
        await harness.take_up()
        await harness.settle()
        assert member.payloads == [b"%d" % n for n in range(20)]
        assert harness.relinquished() == harness.instructions()

    run(scenario())


def test_who_subscribes_while_the_group_is_nowhere_is_answered_later(tmp_path: Path) -> None:
    """G8: the request is sent again to the home that starts."""

    async def scenario() -> None:
        harness = await TwoGateways(tmp_path).start()
        sender, [member], group = await apart(harness)
        other = await harness.client(named(1)[1])
        harness.gateways[0].kill()
        subscribing = asyncio.create_task(other.subscribe(group))
        leaving = asyncio.create_task(member.unsubscribe(group))
        await turn(5)
        assert not subscribing.done()
        assert not leaving.done()
        await harness.take_up()
        await turn(1)
        assert subscribing.done()
        assert leaving.done()
        await sender.connect()
        sender.publish("a", b"one", 2)
        await turn(LEAD_S)
        assert (member.payloads, other.payloads) == ([], [b"one"])

    run(scenario())


def test_a_member_whose_end_the_group_has_missed_is_none(tmp_path: Path) -> None:
    """R6: a group must not give to sessions that are over."""

    async def scenario() -> None:
        harness = await TwoGateways(tmp_path).start()
        sender, [gone, other], _ = await apart(harness, members=2)
        harness.gateways[0].kill()
        gone.disconnect(expiry_s=0)
        await turn(1)
        await harness.take_up()
        await turn(1)
        [found] = harness.gateways[1].home.shards[0].shares.groups
        assert set(found.members) == {other.name}
        await sender.connect()
        for n in range(4):
            sender.publish("a", b"%d" % n, 1)
        await turn(1)
        assert other.payloads == [b"%d" % n for n in range(4)]

    run(scenario())


def test_what_a_leaver_has_in_hand_stays_with_it_though_its_gateway_is_killed(tmp_path: Path) -> None:
    """[MQTT-3.10.4-3], [MQTT-4.8.2-5]: at QoS 2, and others are in the group."""

    async def scenario() -> None:
        harness = await TwoGateways(tmp_path).start()
        sender, [leaver, other], group = await apart(harness, members=2)
        leaver.mute = True
        for n in range(6):
            sender.publish("a", b"%d" % n, 2)
        await turn(0.3)
        await leaver.unsubscribe(group)
        harness.gateways[1].kill()
        await harness.take_up()
        await other.connect()
        await turn(1)
        await harness.settle()
        assert sorted(leaver.payloads + other.payloads) == [b"%d" % n for n in range(6)]
        assert len(leaver.payloads) == len(other.payloads) == 3
        assert harness.relinquished() == harness.instructions()

    run(scenario())


def test_who_gives_up_subscribing_is_no_member(tmp_path: Path) -> None:
    """Also the first one, whose group is only about to begin."""

    async def scenario() -> None:
        harness = await TwoGateways(tmp_path).start()
        client = await harness.client(named(1)[0])
        harness.gateways[0].bus.held_acks = {harness.topics.routes}
        subscribing = asyncio.create_task(client.subscribe(group_in(0)))
        await turn(1)
        subscribing.cancel()
        await turn(1)
        harness.gateways[0].bus.held_acks = set()
        harness.gateways[0].bus.release()
        await turn(1)
        assert not list(harness.gateways[0].home.shards[0].shares.groups)

    run(scenario())


def test_what_a_shard_could_not_spool_counts_no_more_once_it_has_moved(tmp_path: Path) -> None:
    """Else the shards that stay would stop reading, as long as the process lives."""

    async def scenario() -> None:
        harness = await TwoGateways(tmp_path).start()
        one = harness.gateways[0]
        client = next(name for name in (f"away{n}" for n in range(9)) if shard_of(name, SHARDS) == 0)
        receiver = await harness.client(client)
        await receiver.subscribe("a/x")
        await turn(LEAD_S + 5)
        receiver.lose()
        one.spools.fill_disk()
        sender = await harness.client("sender0")
        for _ in range(50):
            sender.publish("a/x", b"." * 2000, 1)
        await turn(20)
        assert one.node.unspooled.reaches(1, 1)
        with contextlib.suppress(SpoolError):
            await one.hand_over(0)
        assert not one.node.unspooled.reaches(1, 1)

    run(scenario())
