"""Shared subscriptions: members that leave or are lost (MQTT 5.0, 4.8.2; R6, G8)."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gateway.shard import egress_consumer, offering
from gateway.shard.messages import GROUP_MARK, Message
from gateway.shard.share_group import ShareGroup
from gateway.shard.share_messages import Assign
from tests.unit.gateway.shard.home_harness import HomeHarness, turn
from tests.unit.gateway.shard.share_harness import NAME, with_members
from tests.unit.gateway.shard.virtual_time import run


@pytest.mark.parametrize("how", ["lose", "end"])
def test_what_a_lost_member_has_not_acknowledged_goes_to_others_at_qos_1_only(tmp_path: Path, how: str) -> None:
    """[MQTT-4.8.2-4], [MQTT-4.8.2-5]: what was sent at QoS 2 stays with it, or ends with its session."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, [silent, other] = await with_members(harness, "m0", "m1")
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
        assert Counter(harness.outcomes("m0")) == Counter(delivered=2) if how == "lose" else Counter(ended=2)
        assert harness.relinquished() == harness.instructions()

    run(scenario())


def test_a_member_that_is_alone_gets_it_again_with_dup(tmp_path: Path) -> None:
    """[MQTT-4.4.0-1]: as long as nobody else was there to get it."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, [first, second] = await with_members(harness, "m0", "m1")
        second.lose()
        first.mute = True
        sender.publish("a", b"one", 1)
        sender.publish("a", b"two", 1)
        await turn(10)
        ids = sorted(first.attached.session.in_flight)
        first.lose()
        await first.connect()
        await turn(1)
        assert [(got.payload, got.dup) for got in first.got[2:]] == [(b"one", True), (b"two", True)]
        assert sorted(first.attached.session.in_flight) == ids
        first.lose()
        await turn(10)
        await second.connect()
        await turn(1)
        assert [(got.payload, got.dup) for got in second.got] == [(b"one", False), (b"two", False)]
        await first.connect()
        await turn(1)
        assert len(first.got) == 4
        assert harness.relinquished() == harness.instructions()

    run(scenario())


def test_a_message_logged_for_a_member_but_never_sent_to_it_moves(tmp_path: Path) -> None:
    """4.8.2: the connection breaks while the session log is written."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, [first, second] = await with_members(harness, "m0", "m1")
        second.lose()
        harness.bus.held_acks = {harness.topics.sessions}
        sender.publish("a", b"one", 2)
        await turn(1)
        joining = asyncio.create_task(second.connect())
        await turn(1)
        assert first.got == []
        first.lose()
        harness.bus.held_acks = set()
        harness.bus.release()
        await joining
        await turn(1)
        assert second.payloads == [b"one"]
        await first.connect()
        await turn(1)
        assert first.got == []
        assert harness.relinquished() == harness.instructions()

    run(scenario())


@pytest.mark.parametrize("offline", [False, True])
def test_a_group_ends_with_its_last_member(tmp_path: Path, offline: bool) -> None:
    """R4: what waits ends, and names the group; another group of the same name starts afresh."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, members = await with_members(harness, "m0", "m1", mute=True, receive_maximum=2)
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
        ended = [outcome for name in (NAME, "m0", "m1") for outcome in harness.outcomes(name)]
        assert ended == ["ended"] * 10
        assert len(harness.outcomes(NAME)) >= 6, "what no member had"
        assert harness.relinquished() == harness.instructions()
        assert not any(isinstance(s, ShareGroup) for shard in harness.home.states for s in shard.sessions.values())
        members[0].answer_all()
        members[0].mute = False
        await members[0].subscribe(NAME)
        sender.publish("a", b"new", 2)
        await turn(1)
        assert members[0].payloads[-1] == b"new"
        await harness.restart()
        await turn(10)
        await members[0].connect()
        await turn(1)
        assert members[0].payloads.count(b"new") == 1
        assert harness.spool_rows() == 0

    run(scenario())


@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_sent_before_unsubscribing_is_still_completed(tmp_path: Path, qos: int) -> None:
    """[MQTT-3.10.4-3]: whether others are left in the group or not; and sent again on a new connection."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, [leaving, staying] = await with_members(harness, "m0", "m1")
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
        assert harness.outcomes("m0") == ["delivered"]
        await turn(1)
        assert harness.outcomes("m1") == (["ended"] if qos == 1 else []), "with the group, though not for the member"
        staying.lose()
        await staying.connect()
        await turn(1)
        assert len(staying.got) == (2 if qos == 1 else 1)
        for client in (leaving, staying):
            assignments = client.attached.session.assignments
            assert assignments is not None
            assert not assignments.open
        assert harness.outcomes("m1") == (["ended"] if qos == 1 else ["delivered"])
        assert harness.relinquished() == harness.instructions()

    run(scenario())


def test_what_comes_back_from_several_is_in_order_for_the_next(tmp_path: Path) -> None:
    """R8."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, [first, second, third] = await with_members(harness, "m0", "m1", "m2", receive_maximum=4)
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


@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_on_its_way_to_a_session_that_ends_goes_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qos: int
) -> None:
    """G8, [MQTT-4.8.2-5]: a session that never had a message takes nothing with it."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        short = await harness.client("m0", expiry_s=0)
        await short.subscribe(NAME)
        sender, [other] = await with_members(harness, "m1")
        members, on_way = short.attached.home.shares.members, list[Assign]()
        with monkeypatch.context() as patch:
            patch.setattr(members, "assign", on_way.append)
            for n in range(4):
                sender.publish("a", b"%d" % n, qos)
            await turn(1)
            short.lose()
        for message in on_way:
            members.assign(message)
        await turn(1)
        assert any(message.client == "m0" for message in on_way)
        assert sorted(other.payloads) == [b"0", b"1", b"2", b"3"]
        assert harness.relinquished() == harness.instructions()

    run(scenario())


def test_the_last_member_leaves_while_a_message_is_offered_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does that matches thousands of subscriptions: the group gets it no more."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, [member] = await with_members(harness, "m0", mute=True)
        for number in range(30):
            await (await harness.client(f"other{number}")).subscribe("a/#")
        sender.publish("a", b"one", 2)
        await turn(1)
        assert member.payloads == [b"one"]
        monkeypatch.setattr(egress_consumer, "LARGE", 0)
        monkeypatch.setattr(offering, "SLICE", 1)
        monkeypatch.setattr(harness.node.work, "spend", lambda units: True)
        add_shares, leaving = offering.add_shares, list[asyncio.Future[Any]]()

        def adds(shares: Any, message: Message, subscriptions: Any, sessions: Any) -> None:
            is_for_group = any(subscription.client == GROUP_MARK + NAME for subscription in subscriptions)
            if not leaving and message.payload == b"two" and is_for_group:
                leaving.append(asyncio.ensure_future(member.unsubscribe(NAME)))
            add_shares(shares, message, subscriptions, sessions)

        monkeypatch.setattr(offering, "add_shares", adds)
        sender.publish("a", b"two", 1)
        await turn(2)
        await leaving[0]
        member.mute = False
        member.answer_all()
        await turn(30)
        assert not harness.fatal
        assert harness.relinquished() == harness.instructions()

    run(scenario())
