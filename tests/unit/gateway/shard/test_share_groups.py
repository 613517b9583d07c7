"""Shared subscriptions: who gets what, and what waits (MQTT 5.0, 4.8.2; R6: one receiver of several, load balanced)."""

from collections import Counter
from pathlib import Path

import pytest

from mqtt.codes import ReasonCode
from mqtt.packets import Subscription
from tests.unit.gateway.shard.home_harness import LEAD_S, HomeHarness, turn
from tests.unit.gateway.shard.share_harness import NAME, group_of, spread, with_members
from tests.unit.gateway.shard.virtual_time import run

each_qos = pytest.mark.parametrize("qos", [0, 1, 2])
effective = pytest.mark.parametrize("wait_s", [0.0, LEAD_S + 5], ids=["before the route", "by the route"])


@each_qos
@effective
def test_members_get_each_message_once_among_them_and_in_turn(tmp_path: Path, qos: int, wait_s: float) -> None:
    """R6, R4, M14: load balanced; relinquished once; the ledger names who got it. Subscribing is instant."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        members = [await harness.client(f"m{n}") for n in range(3)]
        for member in members:
            await member.subscribe(NAME)
        await turn(wait_s)
        for n in range(30):
            sender.publish("a/x", b"%d" % n, qos)
        await turn(1)
        assert spread(members) == Counter(b"%d" % n for n in range(30))
        assert [len(member.got) for member in members] == [10, 10, 10]
        assert all(got.qos == qos and not got.dup for member in members for got in member.got)
        for member in members:
            assert harness.outcomes(member.name) == ["delivered" if qos else "sent"] * 10
        await turn(30)
        assert harness.relinquished() == harness.instructions()
        assert harness.completed() == set(harness.published())

    run(scenario())


def test_one_member_of_a_group_gets_all_in_order(tmp_path: Path) -> None:
    """R8."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, [member] = await with_members(harness, "m0", receive_maximum=7)
        sent = [b"%d" % n for n in range(500)]
        for n, payload in enumerate(sent):
            sender.publish(f"a/{n % 3}", payload, 1 + n % 2)
        await turn(3)
        assert member.payloads == sent
        assert member.most_in_flight <= 7

    run(scenario())


def test_a_message_goes_to_each_group_and_to_ordinary_subscriptions(tmp_path: Path) -> None:
    """4.8.2: once to each group that matches, though they share members; an ordinary subscription is apart."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, client = await harness.client("sender"), await harness.client("client")
        await client.subscribe("a/#", identifier=1)
        await client.subscribe("$share/g/a/#", identifier=2)
        await client.subscribe("$share/h/a/#", identifier=3)
        await client.subscribe("$share/h/a/+", identifier=4)
        await turn(LEAD_S + 5)
        sender.publish("a/x", b"one", 2)
        await turn()
        assert sorted(got.identifiers for got in client.got) == [(1,), (2,), (3,), (4,)]
        assert harness.relinquished() == harness.instructions()
        assert not client.attached.session.in_flight

    run(scenario())


def test_a_member_gets_it_by_its_own_subscription(tmp_path: Path) -> None:
    """[MQTT-4.8.2-3], 3.3.2.3.8: QoS, subscription identifier and retain as published are those of the chosen member;
    subscribing again changes them."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        low, high = await harness.client("low"), await harness.client("high")
        await low.subscribe(Subscription(NAME, 0, retain_handling=2), identifier=5)
        await high.subscribe(Subscription(NAME, 1, retain_as_published=True), identifier=6)
        for n in range(4):
            sender.publish("a", b"%d" % n, 2, retain=True)
        await turn(1)
        assert [(g.qos, g.retain, g.identifiers) for g in low.got] == [(0, False, (5,))] * 2
        assert [(g.qos, g.retain, g.identifiers) for g in high.got] == [(1, True, (6,))] * 2
        await high.unsubscribe(NAME)
        assert await low.subscribe(Subscription(NAME, 2)) == [2]
        sender.publish("a", b"4", 2)
        await turn(1)
        assert (low.got[-1].qos, low.got[-1].identifiers) == (2, ())
        assert Counter(harness.outcomes("low")) == Counter(sent=2, delivered=1)

    run(scenario())


def test_retained_messages_are_not_sent_to_shared_subscriptions(tmp_path: Path) -> None:
    """3.8.4: but they are to an ordinary one in the same SUBSCRIBE."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, member = await harness.client("sender"), await harness.client("member")
        sender.publish("a", b"kept", 1, retain=True)
        await turn(1)
        await member.subscribe(NAME)
        await turn(1)
        assert member.got == []
        await member.subscribe(NAME, "a")
        await turn(1)
        assert [(got.payload, got.retain) for got in member.got] == [(b"kept", True)]

    run(scenario())


def test_an_inbox_cannot_be_shared(tmp_path: Path) -> None:
    """0x87, also for one's own."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        client = await harness.client("client")
        refused = ReasonCode.NOT_AUTHORIZED
        assert await client.subscribe("$share/g/@client", "$share/g/@other") == [refused, refused]

    run(scenario())


def test_members_with_room_come_first(tmp_path: Path) -> None:
    """R6, R9: a silent member gets what its window takes, and holds up nobody; nothing waits with it."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, [silent, *others] = await with_members(harness, "m0", "m1", "m2", receive_maximum=5)
        silent.mute = True
        for n in range(60):
            sender.publish("a", b"%d" % n, 1 + n % 2)
        await turn(1)
        assert len(silent.got) == 5
        assert len(spread(others)) == 55
        link = others[0].link
        assert link is not None
        link.writable = False
        for n in range(60, 80):
            sender.publish("a", b"%d" % n, 1)
        await turn(1)
        assert len(spread(others)) == 75
        others[1].lose()
        sender.publish("a", b"80", 1)
        await turn(1)
        assert group_of(harness).queued == 1
        link.writable = True
        others[0].attached.home.writable(others[0].attached.session, link)
        await turn(1)
        assert others[0].payloads[-1] == b"80"

    run(scenario())


@pytest.mark.parametrize("window", [1, 2, 50])
def test_a_member_takes_turns_between_its_group_and_its_own(tmp_path: Path, window: int) -> None:
    """R9: neither of two long queues waits for the end of the other."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, [member] = await with_members(harness, "m0", receive_maximum=window, mute=True)
        for n in range(400):
            sender.publish("a", b"shared %d" % n, 1 + n % 2)
            sender.publish("@m0", b"own %d" % n, 1 + n % 2)
        await turn(1)
        while len(member.got) < 300:
            member.answer_all()
            await turn()
        kinds = Counter(payload.split()[0] for payload in member.payloads[:300])
        assert min(kinds[b"shared"], kinds[b"own"]) > 20, kinds
        assert member.most_in_flight <= window
        member.mute = False
        member.answer_all()
        await turn(3)
        assert len(member.payloads) == 800

    run(scenario())


def test_qos_0_goes_to_connected_members_only(tmp_path: Path) -> None:
    """4.8.2: and to nobody if there is none."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, [gone, here] = await with_members(harness, "m0", "m1")
        gone.lose()
        sender.publish("a", b"one", 0)
        sender.publish("a", b"two", 0)
        await turn()
        assert here.payloads == [b"one", b"two"]
        here.lose()
        sender.publish("a", b"three", 0)
        sender.publish("a", b"four", 1)
        await turn(10)
        await gone.connect()
        await turn(1)
        assert gone.payloads == [b"four"]
        assert harness.relinquished() == harness.instructions()

    run(scenario())


@pytest.mark.parametrize("offline_s", [1, 60], ids=["in memory", "in the spool"])
@pytest.mark.parametrize("restarting", [False, True])
def test_what_nobody_is_there_for_waits_for_whoever_comes_first(
    tmp_path: Path, offline_s: float, restarting: bool
) -> None:
    """G9, R4: the queue is the group's, as long as it has a member with a session."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, members = await with_members(harness, "m0", "m1")
        for member in members:
            member.lose()
        sent = [b"%d" % n for n in range(1_200)]
        for n, payload in enumerate(sent):
            sender.publish("a", payload, 1 + n % 2)
        await turn(offline_s)
        assert harness.relinquished() == set()
        if restarting:
            await harness.restart()
            await sender.connect()
        await members[1].connect()
        await turn(5)
        assert members[1].payloads == sent
        assert harness.relinquished() == harness.instructions()
        assert harness.spool_rows() == 0

    run(scenario())


@pytest.mark.parametrize("choice", ["drop_newest", "drop_oldest", "disconnect"])
@pytest.mark.parametrize("ending", ["", "aged", "restart"])
def test_a_full_queue_drops_what_limits_say_and_names_the_group(tmp_path: Path, choice: str, ending: str) -> None:
    """R6: limits of a session are those of a group; what is dropped does not come back."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path, queue_messages=5, queue_full=choice).start()
        sender, [member] = await with_members(harness, "m0")
        member.lose()
        for n in range(8):
            sender.publish("a", b"%d" % n, 1 + n % 2)
            await turn(3 if ending == "aged" else 0.01)
        await turn(20 if ending == "aged" else 1)
        assert harness.outcomes(NAME) == ["dropped"] * 3
        if ending == "restart":
            await harness.restart()
        await member.connect()
        await turn(5)
        kept = range(3, 8) if choice == "drop_oldest" else range(5)
        assert member.payloads == [b"%d" % n for n in kept]
        assert harness.relinquished() == harness.instructions()

    run(scenario())


def test_a_batch_larger_than_the_queue_is_not_dropped_while_members_take_it(tmp_path: Path) -> None:
    """R6: members are not slow because many messages come at once."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path, queue_messages=5).start()
        sender, members = await with_members(harness, "m0", "m1")
        for n in range(100):
            sender.publish("a", b"%d" % n, 1)
        await turn(1)
        assert len(spread(members)) == 100

    run(scenario())


@pytest.mark.parametrize("offline_s", [2, 60], ids=["in memory", "in the spool"])
def test_a_message_expires_in_the_queue_of_a_group(tmp_path: Path, offline_s: float) -> None:
    """3.3.2.3.3: outcome `expired`."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, [member] = await with_members(harness, "m0")
        member.lose()
        for n in range(10):
            sender.publish("a", b"%d" % n, 1, properties={"message_expiry_interval": 1})
        sender.publish("a", b"last", 2)
        await turn(offline_s)
        await member.connect()
        await turn(3)
        assert member.payloads == [b"last"]
        assert harness.outcomes(NAME) == ["expired"] * 10
        assert harness.relinquished() == harness.instructions()

    run(scenario())
