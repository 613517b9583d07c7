"""Shared subscriptions, rule by rule (MQTT 5.0, 4.8.2; R6: one of the registered receivers, load balanced)."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from gateway.home.messages import Entry, Message
from gateway.home.share_group import GROUP_MARK, ShareGroup
from gateway.mqtt.codes import ReasonCode
from gateway.mqtt.packets import Subscription
from schemas.session_log import GroupRecord, SessionKey, SettledRecord, encode
from tests.unit.home.home_client import Client
from tests.unit.home.home_world import LEAD_S, World, turn
from tests.unit.home.virtual_time import run

NAME = "$share/g/a/#"

each_qos = pytest.mark.parametrize("qos", [0, 1, 2])
effective = pytest.mark.parametrize("wait_s", [0.0, LEAD_S + 5], ids=["before the route", "by the route"])


async def with_members(world: World, *names: str, **options: int) -> tuple[Client, list[Client]]:
    """A sender, and members of the group whose route is in effect."""
    sender = await world.client("sender")
    members = [await world.client(name, **options) for name in names]
    for member in members:
        assert await member.subscribe(NAME) == [ReasonCode.GRANTED_QOS_2]
    await turn(LEAD_S + 5)
    return sender, members


def group_of(world: World) -> ShareGroup:
    [group] = [s for shard in world.context.shards for s in shard.sessions.values() if isinstance(s, ShareGroup)]
    return group


def spread(members: list[Client]) -> Counter[bytes]:
    return Counter(payload for member in members for payload in member.payloads)


@each_qos
@effective
def test_members_get_each_message_once_among_them_and_in_turn(tmp_path: Path, qos: int, wait_s: float) -> None:
    """R6, R4, M14: load balanced; relinquished once; the ledger names who got it. Subscribing is instant."""

    async def scenario() -> None:
        world = await World(tmp_path).start()
        sender = await world.client("sender")
        members = [await world.client(f"m{n}") for n in range(3)]
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
            assert world.outcomes(member.name) == ["delivered" if qos else "sent"] * 10
        await turn(30)
        assert world.relinquished() == world.instructions()
        assert world.completed() == set(world.published())

    run(scenario())


def test_one_member_of_a_group_gets_all_in_order(tmp_path: Path) -> None:
    """R8."""

    async def scenario() -> None:
        world = await World(tmp_path).start()
        sender, [member] = await with_members(world, "m0", receive_maximum=7)
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
        world = await World(tmp_path).start()
        sender, client = await world.client("sender"), await world.client("client")
        await client.subscribe("a/#", identifier=1)
        await client.subscribe("$share/g/a/#", identifier=2)
        await client.subscribe("$share/h/a/#", identifier=3)
        await client.subscribe("$share/h/a/+", identifier=4)
        await turn(LEAD_S + 5)
        sender.publish("a/x", b"one", 2)
        await turn()
        assert sorted(got.identifiers for got in client.got) == [(1,), (2,), (3,), (4,)]
        assert world.relinquished() == world.instructions()
        assert not client.attached.session.in_flight

    run(scenario())


def test_a_member_gets_it_by_its_own_subscription(tmp_path: Path) -> None:
    """[MQTT-4.8.2-3], 3.3.2.3.8: QoS, subscription identifier and retain as published are those of the chosen member;
    subscribing again changes them."""

    async def scenario() -> None:
        world = await World(tmp_path).start()
        sender = await world.client("sender")
        low, high = await world.client("low"), await world.client("high")
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
        assert Counter(world.outcomes("low")) == Counter(sent=2, delivered=1)

    run(scenario())


def test_retained_messages_are_not_sent_to_shared_subscriptions(tmp_path: Path) -> None:
    """3.8.4: but they are to an ordinary one in the same SUBSCRIBE."""

    async def scenario() -> None:
        world = await World(tmp_path).start()
        sender, member = await world.client("sender"), await world.client("member")
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
        world = await World(tmp_path).start()
        client = await world.client("client")
        refused = ReasonCode.NOT_AUTHORIZED
        assert await client.subscribe("$share/g/@client", "$share/g/@other") == [refused, refused]

    run(scenario())


def test_members_with_room_come_first(tmp_path: Path) -> None:
    """R6, R9: a silent member gets what its window takes, and holds up nobody; nothing waits with it."""

    async def scenario() -> None:
        world = await World(tmp_path).start()
        sender, [silent, *others] = await with_members(world, "m0", "m1", "m2", receive_maximum=5)
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
        assert group_of(world).queued == 1
        link.writable = True
        world.home.writable(others[0].attached.session, link)
        await turn(1)
        assert others[0].payloads[-1] == b"80"

    run(scenario())


@pytest.mark.parametrize("window", [1, 2, 50])
def test_a_member_takes_turns_between_its_group_and_its_own(tmp_path: Path, window: int) -> None:
    """R9: neither of two long queues waits for the end of the other."""

    async def scenario() -> None:
        world = await World(tmp_path).start()
        sender, [member] = await with_members(world, "m0", receive_maximum=window, mute=True)
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
        world = await World(tmp_path).start()
        sender, [gone, here] = await with_members(world, "m0", "m1")
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
        assert world.relinquished() == world.instructions()

    run(scenario())


@pytest.mark.parametrize("offline_s", [1, 60], ids=["in memory", "in the spool"])
@pytest.mark.parametrize("restarting", [False, True])
def test_what_nobody_is_there_for_waits_for_whoever_comes_first(
    tmp_path: Path, offline_s: float, restarting: bool
) -> None:
    """G9, R4: the queue is the group's, as long as it has a member with a session."""

    async def scenario() -> None:
        world = await World(tmp_path).start()
        sender, members = await with_members(world, "m0", "m1")
        for member in members:
            member.lose()
        sent = [b"%d" % n for n in range(1_200)]
        for n, payload in enumerate(sent):
            sender.publish("a", payload, 1 + n % 2)
        await turn(offline_s)
        assert world.relinquished() == set()
        if restarting:
            await world.restart()
            await sender.connect()
        await members[1].connect()
        await turn(5)
        assert members[1].payloads == sent
        assert world.relinquished() == world.instructions()
        assert world.spool_rows() == 0

    run(scenario())


@pytest.mark.parametrize("choice", ["drop_newest", "drop_oldest", "disconnect"])
@pytest.mark.parametrize("ending", ["", "aged", "restart"])
def test_a_full_queue_drops_what_limits_say_and_names_the_group(tmp_path: Path, choice: str, ending: str) -> None:
    """Q2: limits of a session are those of a group; what is dropped does not come back."""

    async def scenario() -> None:
        world = await World(tmp_path, queue_messages=5, queue_full=choice).start()
        sender, [member] = await with_members(world, "m0")
        member.lose()
        for n in range(8):
            sender.publish("a", b"%d" % n, 1 + n % 2)
            await turn(3 if ending == "aged" else 0.01)
        await turn(20 if ending == "aged" else 1)
        assert world.outcomes(NAME) == ["dropped"] * 3
        if ending == "restart":
            await world.restart()
        await member.connect()
        await turn(5)
        kept = range(3, 8) if choice == "drop_oldest" else range(5)
        assert member.payloads == [b"%d" % n for n in kept]
        assert world.relinquished() == world.instructions()

    run(scenario())


def test_a_batch_larger_than_the_queue_is_not_dropped_while_members_take_it(tmp_path: Path) -> None:
    """Q2: members are not slow because many messages come at once."""

    async def scenario() -> None:
        world = await World(tmp_path, queue_messages=5).start()
        sender, members = await with_members(world, "m0", "m1")
        for n in range(100):
            sender.publish("a", b"%d" % n, 1)
        await turn(1)
        assert len(spread(members)) == 100

    run(scenario())


@pytest.mark.parametrize("offline_s", [2, 60], ids=["in memory", "in the spool"])
def test_a_message_expires_in_the_queue_of_a_group(tmp_path: Path, offline_s: float) -> None:
    """3.3.2.3.3: outcome `expired`."""

    async def scenario() -> None:
        world = await World(tmp_path).start()
        sender, [member] = await with_members(world, "m0")
        member.lose()
        for n in range(10):
            sender.publish("a", b"%d" % n, 1, properties={"message_expiry_interval": 1})
        sender.publish("a", b"last", 2)
        await turn(offline_s)
        await member.connect()
        await turn(3)
        assert member.payloads == [b"last"]
        assert world.outcomes(NAME) == ["expired"] * 10
        assert world.relinquished() == world.instructions()

    run(scenario())


@pytest.mark.parametrize("how", ["lose", "end"])
def test_what_a_lost_member_has_not_acknowledged_goes_to_others_at_qos_1_only(tmp_path: Path, how: str) -> None:
    """[MQTT-4.8.2-4], [MQTT-4.8.2-5]: what was sent at QoS 2 stays with it, or ends with its session."""

    async def scenario() -> None:
        world = await World(tmp_path).start()
        sender, [silent, other] = await with_members(world, "m0", "m1")
        silent.mute = True
        for n in range(8):
            sender.publish("a", b"%d" % n, 1 + n // 2 % 2)  # 0, 1 at QoS 1; 2, 3 at QoS 2; in turn
        await turn(1)
        assert silent.payloads == [b"0", b"2", b"4", b"6"]
        if how == "lose":
            silent.lose()
        else:
            silent.disconnect(expiry_s=0)
        await turn(1)
        assert other.payloads == [b"1", b"3", b"5", b"7", b"0", b"4"]
        assert not any(got.dup for got in other.got)
        silent.mute = False
        await silent.connect()
        await turn(1)
        assert silent.payloads == [b"0", b"2", b"4", b"6"], "QoS 2 is sent again with its packet id"
        assert Counter(world.outcomes("m0")) == Counter(delivered=2) if how == "lose" else Counter(ended=2)
        assert world.relinquished() == world.instructions()

    run(scenario())


def test_a_member_that_is_alone_gets_it_again_with_dup(tmp_path: Path) -> None:
    """[MQTT-4.4.0-1]: as long as nobody else was there to get it."""

    async def scenario() -> None:
        world = await World(tmp_path).start()
        sender, [first, second] = await with_members(world, "m0", "m1")
        second.lose()
        first.mute = True
        sender.publish("a", b"one", 1)
        sender.publish("a", b"two", 1)
        await turn(10)
        first.lose()
        await first.connect()
        await turn(1)
        assert [(got.payload, got.dup) for got in first.got[2:]] == [(b"one", True), (b"two", True)]
        first.lose()
        await turn(10)
        await second.connect()
        await turn(1)
        assert [(got.payload, got.dup) for got in second.got] == [(b"one", False), (b"two", False)]
        await first.connect()
        await turn(1)
        assert len(first.got) == 4
        assert world.relinquished() == world.instructions()

    run(scenario())


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("clean", [False, True], ids=["persistent", "clean"])
@pytest.mark.parametrize("aged", [False, True])
def test_after_a_crash_qos_2_goes_to_nobody_else(tmp_path: Path, qos: int, clean: bool, aged: bool) -> None:
    """G8, [MQTT-4.8.2-5]: also if the member's session ended with the gateway."""

    async def scenario() -> None:
        world = await World(tmp_path).start()
        sender = await world.client("sender")
        silent = await world.client("m0", mute=True, expiry_s=0 if clean else 3600)
        await silent.subscribe(NAME)
        await turn(LEAD_S + 5)
        sender.publish("a", b"one", qos)
        await turn(1)
        other = await world.client("m1")
        await other.subscribe(NAME)
        await turn(10 if aged else 0.3)
        assert silent.payloads == [b"one"]
        await world.restart()
        await sender.connect()
        await other.connect()
        await turn(10)
        assert other.payloads == ([b"one"] if qos == 1 else [])
        silent.mute = False
        await silent.connect()
        await turn(10)
        assert silent.payloads == [b"one"]
        assert world.relinquished() == world.instructions()
        assert world.completed() == set(world.published())
        group = group_of(world)
        assert not any((group.recalled, group.lent, group.queued, group.replayed))

    run(scenario())


def test_a_message_logged_for_a_member_but_never_sent_to_it_moves(tmp_path: Path) -> None:
    """4.8.2: the connection breaks while the session log is written."""

    async def scenario() -> None:
        world = await World(tmp_path).start()
        sender, [first, second] = await with_members(world, "m0", "m1")
        second.lose()
        world.bus.held_acks = {world.topics.sessions}
        sender.publish("a", b"one", 2)
        await turn(1)
        joining = asyncio.create_task(second.connect())
        await turn(1)
        assert first.got == []
        first.lose()
        world.bus.held_acks = set()
        world.bus.release()
        await joining
        await turn(1)
        assert second.payloads == [b"one"]
        await first.connect()
        await turn(1)
        assert first.got == []
        assert world.relinquished() == world.instructions()

    run(scenario())


@pytest.mark.parametrize("offline", [False, True])
def test_a_group_ends_with_its_last_member(tmp_path: Path, offline: bool) -> None:
    """R4: what waits ends, and names the group; another group of the same name starts afresh."""

    async def scenario() -> None:
        world = await World(tmp_path).start()
        sender, members = await with_members(world, "m0", "m1", mute=True, receive_maximum=2)
        for n in range(10):
            sender.publish("a", b"%d" % n, 1)
        await turn(1)
        for member in members:
            if offline:
                member.lose()
        await turn(20 if offline else 0)
        for member in members:
            if offline:
                await member.connect(clean_start=True)
            else:
                await member.unsubscribe(NAME)
        await turn(1)
        ended = [outcome for name in (NAME, "m0", "m1") for outcome in world.outcomes(name)]
        assert ended == ["ended"] * 10
        assert len(world.outcomes(NAME)) >= 6, "what no member had"
        assert world.relinquished() == world.instructions()
        assert not any(isinstance(s, ShareGroup) for shard in world.context.shards for s in shard.sessions.values())
        members[0].answer_all()
        members[0].mute = False
        await members[0].subscribe(NAME)
        sender.publish("a", b"new", 2)
        await turn(1)
        assert members[0].payloads[-1] == b"new"
        await world.restart()
        await turn(10)
        await members[0].connect()
        await turn(1)
        assert members[0].payloads.count(b"new") == 1
        assert world.spool_rows() == 0

    run(scenario())


@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_sent_before_unsubscribing_is_still_completed(tmp_path: Path, qos: int) -> None:
    """[MQTT-3.10.4-3]: whether others are left in the group or not; and sent again on a new connection."""

    async def scenario() -> None:
        world = await World(tmp_path).start()
        sender, [leaving, staying] = await with_members(world, "m0", "m1")
        leaving.mute = staying.mute = True
        sender.publish("a", b"one", qos)
        sender.publish("a", b"two", qos)
        await turn(1)
        for client in (leaving, staying):
            await client.unsubscribe(NAME)
            client.mute = False
            if client is leaving:
                client.answer_all()
                await turn(1)
        assert world.outcomes("m0") == ["delivered"]
        await turn(1)
        assert world.outcomes("m1") == ["ended"], "with the group, though not for the member"
        staying.lose()
        await staying.connect()
        await turn(1)
        assert len(staying.got) == (2 if qos == 1 else 1)
        for client in (leaving, staying):
            borrower = client.attached.session.borrower
            assert borrower is not None
            assert not borrower.lent
        assert world.relinquished() == world.instructions()

    run(scenario())


def test_what_is_too_large_for_the_chosen_member_is_dropped(tmp_path: Path) -> None:
    """[MQTT-3.1.2-25]: it counts as sent to that member, as 4.8.2 leaves open."""

    async def scenario() -> None:
        world = await World(tmp_path).start()
        sender, [small] = await with_members(world, "m0")
        link = small.link
        assert link is not None

        def refuse(message: Message, entry: Entry) -> bool:
            asyncio.get_running_loop().call_soon(world.home.undeliverable, small.attached.session, entry)
            return False

        deliver, link.deliver = link.deliver, refuse  # type: ignore[method-assign]
        for qos in (0, 1, 2):
            sender.publish("a", b"large", qos)
        await turn(1)
        link.deliver = deliver  # type: ignore[method-assign]
        sender.publish("a", b"small", 2)
        await turn(1)
        assert small.payloads == [b"small"]
        assert Counter(world.outcomes("m0")) == Counter(dropped=3, delivered=1)
        assert world.relinquished() == world.instructions()

    run(scenario())


def test_a_refused_message_is_done(tmp_path: Path) -> None:
    """4.3.3: PUBREC with an error ends the exchange."""

    async def scenario() -> None:
        world = await World(tmp_path).start()
        sender, [member] = await with_members(world, "m0", mute=True)
        sender.publish("a", b"one", 2)
        await turn(1)
        borrower = member.attached.session.borrower
        assert borrower is not None
        [packet_id] = borrower.lent
        world.home.received(member.attached.session, packet_id, ReasonCode.QUOTA_EXCEEDED)
        await turn(1)
        assert not borrower.lent
        assert world.relinquished() == world.instructions()

    run(scenario())


def test_what_members_have_in_hand_is_limited(tmp_path: Path) -> None:
    """`limits.share_in_flight`: all members together; the rest waits, and comes as they acknowledge."""

    async def scenario() -> None:
        world = await World(tmp_path, share_in_flight=6).start()
        sender, members = await with_members(world, "m0", "m1", mute=True)
        for n in range(20):
            sender.publish("a", b"%d" % n, 1 + n % 2)
        await turn(1)
        assert [len(member.got) for member in members] == [3, 3]
        members[0].lose()
        await turn(1)
        assert len(spread(members)) <= 6 + 3
        for member in members:
            member.mute = False
            member.answer_all()
        await turn(1)
        await members[0].connect()
        await turn(1)
        assert len(spread(members)) == 20

    run(scenario())


def test_the_record_of_a_group_is_bounded_whatever_members_are_called(tmp_path: Path) -> None:
    """G8: a record of the session log stays far below the broker's limit."""

    async def scenario() -> None:
        world = await World(tmp_path).start()
        sender = await world.client("sender")
        member = await world.client("\U0001f600" * 5_000, mute=True)
        await member.subscribe(NAME)
        for n in range(300):
            sender.publish("a", b"%d" % n, 2)
        await turn(1)
        records = [r for p in (0, 1) for r in world.broker.partitions[world.topics.sessions, p]]
        assert max(len(r.value() or b"") for r in records) < 1_000_000
        assert 10 < len(member.got) < 300
        member.mute = False
        member.answer_all()
        await turn(3)
        assert len(member.payloads) == 300

    run(scenario())


def test_packet_ids_are_used_again_only_when_no_record_names_them(tmp_path: Path) -> None:
    """G8: a group's record and that of another are not written together."""

    async def scenario() -> None:
        world = await World(tmp_path).start()
        sender, [member] = await with_members(world, "m0")
        for n in range(40):
            sender.publish("a", b"%d" % n, 2)
            await turn(0.1)
        borrower, group = member.attached.session.borrower, group_of(world)
        assert borrower is not None
        assert borrower.ids == {packet_id for _, packet_id in group.closing}
        sender.publish("a", b"last", 2)
        await turn(1)
        assert len(borrower.ids) == 1, "only that of the last exchange, whose end is not written yet"

    run(scenario())


def test_first_members_of_one_group_at_the_same_time(tmp_path: Path) -> None:
    """One group comes of it, with one route; a session that ends meanwhile is no member."""

    async def scenario() -> None:
        world = await World(tmp_path).start()
        sender = await world.client("sender")
        members = [await world.client(f"m{n}", expiry_s=0) for n in range(3)]
        joining = [asyncio.create_task(member.subscribe(NAME)) for member in members]
        await asyncio.sleep(0)
        members[0].lose()
        await asyncio.gather(*joining)
        group = group_of(world)
        assert set(group.members) == {"m1", "m2"}
        for n in range(10):
            sender.publish("a", b"%d" % n, 1)
        await turn(1)
        assert len(spread(members)) == 10
        for member in members[1:]:
            member.lose()
        await turn(LEAD_S + 70)
        [route] = [world.broker.partitions[world.topics.routes, 0]]
        assert len(route) == 2, "added once, and dropped once unused"

    run(scenario())


def test_records_of_groups_that_nobody_is_in_are_cleared(tmp_path: Path) -> None:
    """After a crash that lost their tombstone; one of an earlier group of the same name means nothing."""

    async def scenario() -> None:
        world = await World(tmp_path).start()
        sender, [member] = await with_members(world, "m0")
        stale = encode(GroupRecord([], SettledRecord({0: 1 << 40, 1: 1 << 40}), [], [], born_us=1))
        for name in (NAME, "$share/gone/a"):
            key = SessionKey(GROUP_MARK + name, "g").encode()
            shard = world.context.shard_for(GROUP_MARK + name).number
            world.bus.produce(world.topics.sessions, shard, key, stale, None, lambda *_: None)
        await turn()
        sender.publish("a", b"one", 2)
        world.bus.held_stores = {world.topics.sessions}
        await turn(1)
        await world.restart()
        await turn(1)
        await member.connect()
        await turn(1)
        assert member.payloads == [b"one"]
        tombs = [
            r.key()
            for p in (0, 1)
            for r in world.broker.partitions[world.topics.sessions, p]
            if r.value() is None and b"$share" in (r.key() or b"")
        ]
        assert tombs == [SessionKey(GROUP_MARK + "$share/gone/a", "g").encode()]

    run(scenario())


@pytest.mark.parametrize("returned", [False, True], ids=["in hand", "given back"])
def test_what_is_unacknowledged_below_what_is_settled_comes_again_after_a_crash(tmp_path: Path, returned: bool) -> None:
    """G8, Q1: the cursor of a group says that all before it is done, but for what its record lists as open."""

    async def scenario() -> None:
        world = await World(tmp_path).start()
        sender, [silent, other] = await with_members(world, "m0", "m1")
        silent.mute = True
        for n in range(40):
            sender.publish("a", b"%d" % n, 1 if n % 2 == 0 else 2)  # in turn: QoS 1 is the silent one's
        await turn(0.2)
        if returned:  # and nobody takes it
            link = other.link
            assert link is not None
            link.writable = False
            silent.lose()
            sender.publish("a", b"more", 2)
            await turn(0.2)
            assert group_of(world).put_back
        world.home._writer.windows(group_of(world), lambda: None)
        await turn(0.05)
        world.crash()
        await world.start()
        silent.mute = False
        await silent.connect()
        await turn(10)
        assert {b"%d" % n for n in range(0, 40, 2)} <= set(silent.payloads[20 if not returned else 0 :])
        assert other.payloads == [b"%d" % n for n in range(1, 40, 2)]
        assert not {b"%d" % n for n in range(1, 40, 2)} & set(silent.payloads), "QoS 2 is settled"

    run(scenario())


def test_what_a_member_has_in_hand_is_not_loaded_from_the_spool_again(tmp_path: Path) -> None:
    """G9: its row is there until it is acknowledged."""

    async def scenario() -> None:
        world = await World(tmp_path).start()
        sender, [silent, other] = await with_members(world, "m0", "m1", receive_maximum=3)
        silent.mute = True
        other.lose()
        for n in range(9):
            sender.publish("a", b"%d" % n, 1 + n % 2)
        await turn(20)
        assert world.spool_rows() == 9
        silent.lose()
        link = (await other.connect()).link
        await turn(1)
        assert link is not None
        assert other.payloads == [b"0", b"2", b"3", b"4", b"5", b"6", b"7", b"8"], "what was sent at QoS 2 stays"
        await silent.connect()
        silent.mute = False
        silent.answer_all()
        await turn(5)
        assert silent.payloads == [b"0", b"1", b"2"]
        assert world.spool_rows() == 0

    run(scenario())


def test_rows_are_loaded_around_what_a_member_has_in_hand(tmp_path: Path) -> None:
    """G9: a queue that was dropped from memory, before and behind it."""

    async def scenario() -> None:
        world = await World(tmp_path).start()
        sender, [silent, other] = await with_members(world, "m0", "m1", receive_maximum=3)
        silent.mute = other.mute = True
        other.lose()
        for n in range(9):
            sender.publish("a", b"%d" % n, 1 + n % 2)
        await turn(20)
        silent.disconnect()
        world.home._lender._take_back(group_of(world), list(group_of(world).stranded.values()))
        group_of(world).forget_spooled(world.context.committed_row)
        assert group_of(world).backlog == 8
        other.mute = False
        await other.connect()
        await turn(5)
        assert other.payloads == [b"0", b"2", b"3", b"4", b"5", b"6", b"7", b"8"]

    run(scenario())


def test_an_open_exchange_of_before_a_restart_ends_with_its_session(tmp_path: Path) -> None:
    """[MQTT-4.8.2-5]: a clean start before the group has come to it again."""

    async def scenario() -> None:
        world = await World(tmp_path).start()
        sender, [silent, other] = await with_members(world, "m0", "m1")
        silent.mute = True
        sender.publish("a", b"one", 2)
        await turn(10)
        await world.restart()
        await turn(1)
        assert group_of(world).backlog == 1
        await silent.connect(clean_start=True)
        await other.connect()
        await turn(5)
        assert other.payloads == []
        assert world.outcomes(NAME) == ["ended"]
        assert world.relinquished() == world.instructions()

    run(scenario())


def test_what_comes_back_from_several_is_in_order_for_the_next(tmp_path: Path) -> None:
    """R8."""

    async def scenario() -> None:
        world = await World(tmp_path).start()
        sender, [first, second, third] = await with_members(world, "m0", "m1", "m2", receive_maximum=4)
        third.lose()
        first.mute = second.mute = True
        sent = [b"%d" % n for n in range(12)]
        for payload in sent:
            sender.publish("a", payload, 1)
        await turn(1)
        first.lose()
        second.lose()
        await third.connect()
        await turn(1)
        assert third.payloads == sent

    run(scenario())
