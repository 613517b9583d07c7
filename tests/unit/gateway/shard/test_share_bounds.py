"""Shared subscriptions: what is limited, what is on record, and what the spool holds (MQTT 5.0, 4.8.2; R6)."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gateway.shard.messages import Delivery, Message
from gateway.shard.share_group import GROUP_MARK
from gateway.shard.spool import Spool
from mqtt.codes import ReasonCode
from schemas.session_log import GroupRecord, SessionKey, SettledRecord, encode
from tests.unit.gateway.shard.home_client import Client
from tests.unit.gateway.shard.home_harness import LEAD_S, PARTITIONS, HomeHarness, turn
from tests.unit.gateway.shard.share_harness import NAME, group_of, spread, with_members
from tests.unit.gateway.shard.virtual_time import run


def test_what_is_too_large_for_the_chosen_member_is_dropped(tmp_path: Path) -> None:
    """[MQTT-3.1.2-25]: it counts as sent to that member, as 4.8.2 leaves open."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, [small] = await with_members(harness, "m0")
        link = small.link
        assert link is not None

        def refuse(message: Message, delivery: Delivery) -> bool:
            asyncio.get_running_loop().call_soon(small.attached.home.undeliverable, small.attached.session, delivery)
            return False

        deliver, link.deliver = link.deliver, refuse  # type: ignore[method-assign]
        for qos in (0, 1, 2):
            sender.publish("a", b"large", qos)
        await turn(1)
        link.deliver = deliver  # type: ignore[method-assign]
        sender.publish("a", b"small", 2)
        await turn(1)
        assert small.payloads == [b"small"]
        assert Counter(harness.outcomes("m0")) == Counter(dropped=3, delivered=1)
        assert harness.relinquished() == harness.instructions()

    run(scenario())


def test_a_refused_message_is_done(tmp_path: Path) -> None:
    """4.3.3: PUBREC with an error ends the exchange."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, [member] = await with_members(harness, "m0", mute=True)
        sender.publish("a", b"one", 2)
        await turn(1)
        session = member.attached.session
        [packet_id] = session.in_flight
        member.attached.home.received(member.attached.session, packet_id, ReasonCode.QUOTA_EXCEEDED)
        await turn(1)
        assert not session.in_flight
        assert session.assignments is not None
        assert not session.assignments.open
        assert harness.relinquished() == harness.instructions()

    run(scenario())


def test_what_members_have_in_hand_is_limited(tmp_path: Path) -> None:
    """`limits.share_in_flight`: all members together; the rest waits, and comes as they acknowledge."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path, share_in_flight=6).start()
        sender, members = await with_members(harness, "m0", "m1", mute=True)
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
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        member = await harness.client("\U0001f600" * 5_000, mute=True)
        await member.subscribe(NAME)
        for n in range(300):
            sender.publish("a", b"%d" % n, 2)
        await turn(1)
        records = [r for p in (0, 1) for r in harness.broker.partitions[harness.topics.sessions, p]]
        assert max(len(r.value() or b"") for r in records) < 1_000_000
        assert 10 < len(member.got) < 300
        member.mute = False
        member.answer_all()
        await turn(3)
        assert len(member.payloads) == 300

    run(scenario())


def test_a_session_remembers_assignments_only_as_long_as_the_group_does(tmp_path: Path) -> None:
    """G8: what a group's record may still name after a crash must be known; a long session does not grow by it."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, [member] = await with_members(harness, "m0")
        for n in range(40):
            sender.publish("a", b"%d" % n, 2)
            await turn(0.1)
        assignments, group = member.attached.session.assignments, group_of(harness)
        assert assignments is not None
        assert {record.offset for record in assignments.records()} >= {number for _, number in group.closing}
        sender.publish("a", b"last", 2)
        await turn(1)
        assert len(assignments.records()) <= 2, "of the last exchanges, whose end is not written yet"

    run(scenario())


def test_first_members_of_one_group_at_the_same_time(tmp_path: Path) -> None:
    """One group comes of it, with one route; a session that ends meanwhile is no member."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        members = [await harness.client(f"m{n}", expiry_s=0) for n in range(3)]
        joining = [asyncio.create_task(member.subscribe(NAME)) for member in members]
        await asyncio.sleep(0)
        members[0].lose()
        await asyncio.gather(*joining)
        group = group_of(harness)
        assert set(group.members) == {"m1", "m2"}
        for n in range(10):
            sender.publish("a", b"%d" % n, 1)
        await turn(1)
        assert len(spread(members)) == 10
        for member in members[1:]:
            member.lose()
        await turn(LEAD_S + 70)
        [route] = [harness.broker.partitions[harness.topics.routes, 0]]
        assert len(route) == 2, "added once, and dropped once unused"

    run(scenario())


def test_records_of_groups_that_nobody_is_in_are_cleared(tmp_path: Path) -> None:
    """After a crash that lost their tombstone; one of an earlier group of the same name means nothing."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, [member] = await with_members(harness, "m0")
        stale = encode(GroupRecord(SettledRecord({0: 1 << 40, 1: 1 << 40}), [], [], born_us=1))
        for name in (NAME, "$share/gone/a"):
            key = SessionKey(GROUP_MARK + name, "g").encode()
            shard = harness.home.home_of(GROUP_MARK + name).number
            harness.bus.produce(harness.topics.sessions, shard, key, stale, None, lambda *_: None)
        await turn()
        sender.publish("a", b"one", 2)
        harness.bus.held_stores = {harness.topics.sessions}
        await turn(1)
        await harness.restart()
        await turn(1)
        await member.connect()
        await turn(1)
        assert member.payloads == [b"one"]
        tombs = [
            r.key()
            for p in (0, 1)
            for r in harness.broker.partitions[harness.topics.sessions, p]
            if r.value() is None and b"$share" in (r.key() or b"")
        ]
        assert tombs == [SessionKey(GROUP_MARK + "$share/gone/a", "g").encode()]

    run(scenario())


@pytest.mark.parametrize("returned", [False, True], ids=["in hand", "given back"])
def test_what_is_unacknowledged_below_what_is_settled_comes_again_after_a_crash(tmp_path: Path, returned: bool) -> None:
    """G8, Q1: the cursor of a group says that all before it is done, but for what its record lists as open."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, [silent, other] = await with_members(harness, "m0", "m1")
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
            assert group_of(harness).put_back
        harness.home.shards[group_of(harness).shard].writer.windows(group_of(harness), lambda: None)
        await turn(0.05)
        harness.crash()
        await harness.start()
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
        harness = await HomeHarness(tmp_path).start()
        sender, [silent, other] = await with_members(harness, "m0", "m1", receive_maximum=3)
        silent.mute = True
        other.lose()
        for n in range(9):
            sender.publish("a", b"%d" % n, 1 + n % 2)
        await turn(20)
        assert harness.spool_rows() == 9
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
        assert harness.spool_rows() == 0

    run(scenario())


def test_rows_are_loaded_around_what_a_member_has_in_hand(tmp_path: Path) -> None:
    """G9: a queue that was dropped from memory, before and behind it."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, [silent, other] = await with_members(harness, "m0", "m1", receive_maximum=3)
        silent.mute = other.mute = True
        other.lose()
        for n in range(9):
            sender.publish("a", b"%d" % n, 1 + n % 2)
        await turn(20)
        silent.disconnect()
        await turn()
        assert group_of(harness).backlog == 8
        other.mute = False
        await other.connect()
        await turn(5)
        assert other.payloads == [b"0", b"2", b"3", b"4", b"5", b"6", b"7", b"8"]

    run(scenario())


FIVE = [b"0", b"1", b"2", b"3", b"4"]


def publish_five(sender: Client) -> None:
    for payload in FIVE:
        sender.publish("a", payload, 1)


def test_a_group_goes_on_behind_a_page_of_expired_messages(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, [member] = await with_members(harness, "m0")
        member.lose()
        for _ in range(600):
            sender.publish("a", b"old", 1, properties={"message_expiry_interval": 63})
        publish_five(sender)
        while group_of(harness).backlog < 605:
            await turn(1)
        ingress = [harness.broker.partitions[harness.topics.ingress, p] for p in range(PARTITIONS)]
        last_ms = max(record.timestamp()[1] for records in ingress for record in records)
        while harness.clock() * 1000 < last_ms + 63_000:  # they have expired, and are not swept yet
            await turn(0.01)
        await member.connect()
        await turn(5)
        assert member.payloads == FIVE

    run(scenario())


def test_a_group_that_begins_again_gets_what_is_published_from_then_on(tmp_path: Path) -> None:
    """R4: while what it had in the spool still ends, for the disk takes its time."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, [first] = await with_members(harness, "m0", receive_maximum=1)
        second = await harness.client("m1")
        first.mute = True
        for _ in range(1_500):
            sender.publish("a", b"old", 2)
        await turn(1)
        first.lose()
        while group_of(harness).backlog < 1_400:
            await turn(1)
        await first.connect()
        group = group_of(harness)
        for file in harness.spool.files.values():

            async def slow(method: Any, *arguments: Any, call: Any = file.call) -> Any:
                if method is Spool.load:
                    await asyncio.sleep(4)
                return await call(method, *arguments)

            file.call = slow  # type: ignore[method-assign]
        await first.unsubscribe(NAME)
        await second.subscribe(NAME)
        assert group_of(harness) is group
        second.lose()
        publish_five(sender)
        await turn(60)
        await second.connect()
        await turn(60)
        assert second.payloads == FIVE

    run(scenario())


def test_what_offline_members_have_in_hand_does_not_stop_the_others(tmp_path: Path) -> None:
    """R6: the limit holds for those that are connected, also once the others are back, or gone for good."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path, share_in_flight=6).start()
        sender, [away, here] = await with_members(harness, "m0", "m1")
        here.lose()
        away.mute = True
        for number in range(6):
            sender.publish("a", b"%d" % number, 2)
        await turn(1)
        assert len(away.payloads) == 6
        away.lose()
        await here.connect()
        here.mute = True
        for number in range(10):
            sender.publish("a", b"next %d" % number, 1)
        await turn(1)
        assert len(here.payloads) == 6, "full, by its own"
        here.mute = False
        here.answer_all()
        await turn(1)
        assert here.payloads == [b"next %d" % number for number in range(10)]
        await away.connect()
        sender.publish("a", b"last", 1)
        await turn(1)
        assert b"last" not in (*here.payloads, *away.payloads), "full again"
        away.mute = False
        away.answer_all()
        await turn(1)
        assert b"last" in (*here.payloads, *away.payloads)
        assert group_of(harness)._in_hand == 0

    run(scenario())
