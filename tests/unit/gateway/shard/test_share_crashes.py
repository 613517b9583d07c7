"""Shared subscriptions: homes that are killed, and what members have in hand then (MQTT 5.0, 4.8.2; R6, G8)."""

import asyncio
from pathlib import Path

import pytest

from gateway.memory_bus import MemoryRecord
from gateway.shard.share_group import ShareGroup
from schemas.session_log import GroupRecord, LentRecord, SessionKey, SettledRecord, encode
from tests.unit.gateway.shard.home_harness import LEAD_S, PARTITIONS, HomeHarness, turn
from tests.unit.gateway.shard.share_harness import NAME, group_of, with_members
from tests.unit.gateway.shard.virtual_time import run


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("clean", [False, True], ids=["persistent", "clean"])
@pytest.mark.parametrize("aged", [False, True])
def test_after_a_crash_qos_2_goes_to_nobody_else(tmp_path: Path, qos: int, clean: bool, aged: bool) -> None:
    """G8, [MQTT-4.8.2-5]: also if the member's session ended with the gateway."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        silent = await harness.client("m0", mute=True, expiry_s=0 if clean else 3600)
        await silent.subscribe(NAME)
        await turn(LEAD_S + 5)
        sender.publish("a", b"one", qos)
        await turn(1)
        other = await harness.client("m1")
        await other.subscribe(NAME)
        await turn(10 if aged else 0.3)
        assert silent.payloads == [b"one"]
        await harness.restart()
        await sender.connect()
        await other.connect()
        await turn(10)
        assert other.payloads == ([b"one"] if qos == 1 else [])
        silent.mute = False
        await silent.connect()
        await turn(10)
        assert silent.payloads == [b"one"]
        assert harness.relinquished() == harness.instructions()
        assert harness.completed() == set(harness.published())
        group = group_of(harness)
        assert not any((group.assigned_before, group.assigned, group.queued, group.settled_before))

    run(scenario())


@pytest.mark.parametrize("has_left", [False, True])
def test_what_was_logged_and_moved_keeps_no_packet_id_after_a_crash(tmp_path: Path, has_left: bool) -> None:
    """4.8.2, 2.2.1: the gateway was killed before the session log said that the member was not sent the message, and
    after it said so of the group."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, [first, second] = await with_members(harness, "m0", "m1")
        second.lose()
        harness.bus.held_acks = {harness.topics.sessions}
        sender.publish("a", b"one", 2)
        await turn(1)
        harness.bus.held_acks = set()
        harness.bus.release()  # the group's record is durable
        while not first.attached.session.assigning().open:
            await asyncio.sleep(0)
        harness.bus.held_acks = {harness.topics.sessions}
        await turn(1)
        log = harness.topics.sessions, first.attached.session.shard
        exchange = harness.broker.partitions[log][-1]
        assert exchange.key() == SessionKey("m0", "w").encode(), "it has the packet id"
        first.lose()
        harness.bus.held_acks = set()
        harness.bus.release()
        await turn(1)
        harness.crash()
        harness.broker.append(MemoryRecord(log, exchange.key(), exchange.value(), exchange.headers()))
        await harness.start()
        await second.connect()
        await first.connect()
        if has_left:
            await first.unsubscribe(NAME)
        await turn(10)
        assert (first.payloads, second.payloads) == ([], [b"one"])
        assert not first.attached.session.assigning().packet_ids()
        assert harness.relinquished() == harness.instructions()

    run(scenario())


def test_what_nobody_was_there_for_at_qos_0_waits_for_nobody_after_a_crash(tmp_path: Path) -> None:
    """R8, R6: its member, to which an earlier message goes again, would get it behind that."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, [member] = await with_members(harness, "m0")
        member.lose()
        await turn(1)
        sender.publish("a", b"at QoS 0", 0)
        sender.publish("a", b"later", 2)
        await turn(0.1)
        await member.connect()
        while not member.payloads:
            await asyncio.sleep(0)
        assert harness.relinquished() < harness.instructions(), "no checkpoint has been made meanwhile"
        await harness.restart()
        await turn(1)
        await member.connect()
        await turn(10)
        assert member.payloads == [b"later"]
        assert harness.relinquished() == harness.instructions()

    run(scenario())


def test_an_open_exchange_of_before_a_restart_ends_with_its_session(tmp_path: Path) -> None:
    """[MQTT-4.8.2-5]: a clean start before the member has it in hand again."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, [silent, other] = await with_members(harness, "m0", "m1")
        silent.mute = True
        sender.publish("a", b"one", 2)
        await turn(10)
        await harness.restart()
        await turn(1)
        await silent.connect(clean_start=True)
        await other.connect()
        await turn(5)
        assert other.payloads == []
        assert harness.outcomes("m0") == ["ended"]
        assert harness.relinquished() == harness.instructions()

    run(scenario())


@pytest.mark.parametrize("aged", [False, True], ids=["in memory", "in the spool"])
@pytest.mark.parametrize("others", [False, True], ids=["the last member", "others stay"])
def test_what_was_sent_at_qos_2_is_completed_after_leaving_and_a_crash(
    tmp_path: Path, aged: bool, others: bool
) -> None:
    """[MQTT-3.10.4-3], G8: the group keeps it for the session that has it, though that is no member any more."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, [leaving] = await with_members(harness, "m0")
        leaving.mute = True
        for n in range(3):
            sender.publish("a", b"%d" % n, 2)
        await turn(20 if aged else 1)
        if others:
            other = await harness.client("m1")
            await other.subscribe(NAME)
        await leaving.unsubscribe(NAME)
        harness.crash()
        await harness.start()
        await turn(10)
        await sender.connect()
        sender.publish("a", b"more", 2)
        await leaving.connect()
        await turn(1)
        assert len(leaving.got) == 3, "with the packet ids from before"
        leaving.mute = False
        leaving.answer_all()
        await turn(10)
        assert leaving.payloads == [b"0", b"1", b"2"]
        if others:
            await other.connect()
            await turn(5)
            assert other.payloads == [b"more"]
        assert harness.outcomes("m0") == ["delivered"] * 3
        assert harness.relinquished() == harness.instructions()
        assert harness.spool_rows() == 0
        groups = [s for shard in harness.home.states for s in shard.sessions.values() if isinstance(s, ShareGroup)]
        assert len(groups) == others

    run(scenario())


@pytest.mark.parametrize("released", [False, True])
def test_what_earlier_versions_had_assigned_goes_on(tmp_path: Path, released: bool) -> None:
    """G8: version 1 of the group's record had the packet id; the session's own record has it now."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, [member, other] = await with_members(harness, "m0", "m1")
        for client in (member, other):
            client.lose()
        sender.publish("a", b"one", 2)
        await turn(0.1)
        group, session = group_of(harness), member.attached.session
        kept = [harness.broker.partitions[harness.topics.ingress, p] for p in range(PARTITIONS)]
        [ingress] = [record for records in kept for record in records]
        lent = LentRecord(50_000, ingress.partition(), ingress.offset(), released, client="m0", born_us=session.born_us)
        record = GroupRecord(SettledRecord(), [], [], group.born_us, lent=[lent], version=1)
        key = SessionKey(group.client, "g").encode()
        harness.bus.produce(harness.topics.sessions, group.shard, key, encode(record), None, lambda *_: None)
        await turn(0.1)
        harness.crash()
        await harness.start()
        await other.connect()
        member.mute = True
        await member.connect()
        await turn(5)
        assert other.payloads == []
        assert list(member.attached.session.in_flight) == ([] if released else [50_000])
        assert len(member.got) == (not released)
        member.mute = False
        member.answer_all()
        await turn(5)
        assert harness.outcomes("m0") == ["delivered"]
        assert harness.relinquished() == harness.instructions()
        assert not member.attached.session.in_flight

    run(scenario())


def test_what_waits_before_an_exchange_of_before_a_restart_is_not_settled_with_it(tmp_path: Path) -> None:
    """G8, Q1: the exchange ends first, the group writes its record, and there is another crash."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, [gone, other] = await with_members(harness, "m0", "m1")
        other.lose()
        gone.mute = True
        sender.publish("a", b"one", 1)
        sender.publish("a", b"two", 2)
        await turn(20)
        await harness.restart()
        await turn(1)
        await gone.connect(clean_start=True)
        await turn(1)
        harness.home.shards[group_of(harness).shard].writer.windows(group_of(harness), lambda: None)
        await turn(1)
        await harness.restart()
        await other.connect()
        await turn(5)
        assert other.payloads == [b"one"]
        assert harness.relinquished() == harness.instructions()

    run(scenario())
