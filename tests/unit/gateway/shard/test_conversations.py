"""All messages of a conversation go to one member of a share group, in order (R6: continuous semaphore)."""

from collections import Counter
from pathlib import Path

import pytest

from tests.unit.gateway.shard.conversation_harness import conversations_of, holder, logged, of, say, with_settings
from tests.unit.gateway.shard.home_harness import HomeHarness, turn
from tests.unit.gateway.shard.share_harness import group_of, spread, with_members
from tests.unit.gateway.shard.virtual_time import run

each_qos = pytest.mark.parametrize("qos", [0, 1, 2])
PAYLOADS = [b"%d" % n for n in range(30)]


@each_qos
def test_a_conversation_goes_to_one_member_in_order(tmp_path: Path, qos: int) -> None:
    """R6, R8: however much others could take; what belongs to none goes on in turn."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, members = await with_members(harness, "m0", "m1", "m2", receive_maximum=30)
        for n, payload in enumerate(PAYLOADS):
            say(sender, "k", payload, qos=qos)
            sender.publish("a/y", b"other %d" % n, qos)
        await turn(5)
        got = holder(members, b"0")
        assert [payload for payload in got.payloads if b"other" not in payload] == PAYLOADS
        assert spread(members) == Counter([*PAYLOADS, *(b"other %d" % n for n in range(30))])
        assert all(len(member.payloads) >= 7 for member in members)
        assert got.properties[0]["user_property"] == [("conversation", "k")]
        await turn(30)
        assert harness.relinquished() == harness.instructions()
        assert harness.completed() == set(harness.published())
        assert not group_of(harness).put_back

    run(scenario())


def test_conversations_are_balanced_and_each_sender_has_its_own(tmp_path: Path) -> None:
    """R6: the first message of each goes to the next in turn."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, members = await with_members(harness, "m0", "m1", "m2")
        other = await harness.client("other")
        for n in range(5):
            for who in (sender, other):
                for conversation in "abc":
                    say(who, conversation, b"%s %s %d" % (who.name.encode(), conversation.encode(), n))
            await turn(1)
        ways = [{payload.rsplit(b" ", 1)[0] for payload in member.payloads} for member in members]
        assert [len(way) for way in ways] == [2, 2, 2]
        assert len(set.union(*ways)) == 6
        assert len(conversations_of(harness)) == len(logged(harness)) == 6

    run(scenario())


def test_nothing_is_kept_for_messages_of_no_conversation(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, _ = await with_members(harness, "m0", "m1")
        for n, payload in enumerate(PAYLOADS):
            sender.publish("a/x", payload, n % 3, properties={"user_property": [("conversations", "k")]})
        await turn(5)
        assert group_of(harness).conversations is None
        assert not logged(harness)

    run(scenario())


@each_qos
def test_the_choice_is_durable_before_anything_is_sent(tmp_path: Path, qos: int) -> None:
    """R6, G7: and what comes behind it waits too (R8)."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, members = await with_members(harness, "m0", "m1")
        harness.bus.held_acks = {harness.topics.sessions}
        say(sender, "k", b"first", qos=qos)
        sender.publish("a/x", b"behind", qos)
        await turn(1)
        assert not spread(members)
        harness.bus.held_acks = set()
        harness.bus.release()
        await turn(1)
        assert spread(members) == Counter([b"first", b"behind"])
        record = logged(harness)["sender", "k"]
        assert record.client == holder(members, b"first").name
        assert record.session == holder(members, b"first").attached.session.incarnation

    run(scenario())


@each_qos
def test_it_waits_for_a_member_that_is_busy_and_others_go_on(tmp_path: Path, qos: int) -> None:
    """R6: also beyond what is in memory, and across the spool."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, members = await with_members(harness, "m0", "m1", receive_maximum=2, mute=True)
        say(sender, "k", b"0", qos=max(qos, 1))
        await turn(1)
        busy = holder(members, b"0")
        [free] = [member for member in members if member is not busy]
        free.mute = False
        say(sender, "k", *PAYLOADS[1:], qos=qos)
        for n in range(30):
            sender.publish("a/y", b"other %d" % n, 1)
        await turn(20 if qos else 2)  # at QoS 0 it is dropped then, as for anybody who is slow
        assert busy.payloads[0] == b"0"
        assert set(PAYLOADS).isdisjoint(free.payloads)
        assert len(free.payloads) == 29 + (len(busy.payloads) == 1)
        busy.mute = False
        busy.answer_all()
        await turn(20)
        assert [payload for payload in busy.payloads if b"other" not in payload] == PAYLOADS
        await turn(20)
        assert harness.relinquished() == harness.instructions()
        assert harness.spool_rows() == 0

    run(scenario())


def test_so_many_may_wait_and_then_all_behind_them(tmp_path: Path) -> None:
    """`conversation_waiting`: the group's record, which names them, stays small."""

    async def scenario() -> None:
        harness = await with_settings(HomeHarness(tmp_path), conversation_waiting=3).start()
        sender, members = await with_members(harness, "m0", "m1", mute=True)
        say(sender, "k", b"0")
        await turn(1)
        busy = holder(members, b"0")
        [free] = [member for member in members if member is not busy]
        free.mute = False
        say(sender, "k", *PAYLOADS[1:4])
        sender.publish("a/y", b"passes", 2)
        await turn(1)
        assert len(group_of(harness).put_back) == 3
        say(sender, "k", *PAYLOADS[4:6])
        sender.publish("a/y", b"waits", 1)
        await turn(10)
        assert b"passes" in free.payloads or b"passes" in busy.payloads
        assert b"waits" not in [*free.payloads, *busy.payloads]
        assert len(group_of(harness).put_back) == 3
        busy.mute = False
        busy.answer_all()
        await turn(10)
        assert [payload for payload in busy.payloads if payload in PAYLOADS] == PAYLOADS[:6]
        assert spread(members)[b"waits"] == 1

    run(scenario())


def test_a_conversation_is_over_after_a_while(tmp_path: Path) -> None:
    """`conversation_s`: the next message goes to the next member in turn, and the log has the new one only."""

    async def scenario() -> None:
        harness = await with_settings(HomeHarness(tmp_path), conversation_s=60).start()
        sender, members = await with_members(harness, "m0", "m1")
        say(sender, "k", b"0")
        await turn(40)
        say(sender, "k", b"1")
        await turn(40)
        assert holder(members, b"1") is holder(members, b"0")
        await turn(30)
        assert not logged(harness)
        assert len(conversations_of(harness)) == 0
        say(sender, "k", b"2")
        await turn(1)
        assert holder(members, b"2") is not holder(members, b"0")
        assert logged(harness)["sender", "k"].client == holder(members, b"2").name

    run(scenario())


def test_the_oldest_idle_one_makes_room(tmp_path: Path) -> None:
    """`conversations`: one of which a member has a message does not; if all are such, a new one waits."""

    async def scenario() -> None:
        harness = await with_settings(HomeHarness(tmp_path), conversations=3).start()
        sender, members = await with_members(harness, "m0", "m1", "m2")
        for conversation in "abcb":
            say(sender, conversation, conversation.encode())
            await turn(2)
        for member in members:
            member.mute = True
        say(sender, "a", b"open")
        await turn(1)
        say(sender, "d", b"new")
        await turn(1)
        assert set(logged(harness)) == {("sender", of) for of in "abd"}
        say(sender, "b", b"open too")
        say(sender, "e", b"waits")
        await turn(5)
        assert set(logged(harness)) == {("sender", of) for of in "abd"}
        assert b"waits" not in spread(members)
        for member in members:
            member.mute = False
            member.answer_all()
        await turn(5)
        assert spread(members)[b"waits"] == 1
        assert len(logged(harness)) == len(conversations_of(harness)) == 3

    run(scenario())


def test_a_sender_with_many_ids_forgets_its_own(tmp_path: Path) -> None:
    """`conversations`: those of others stay, however long they were not used."""

    async def scenario() -> None:
        harness = await with_settings(HomeHarness(tmp_path), conversations=5).start()
        sender, _ = await with_members(harness, "m0", "m1")
        other = await harness.client("other")
        for conversation in "ab":
            say(other, conversation, conversation.encode())
        await turn(2)
        for n in range(10):
            say(sender, str(n), b"%d" % n)
            await turn(1)
        say(other, "c", b"c")
        await turn(1)
        assert set(logged(harness)) == {*(("other", of) for of in "abc"), ("sender", "8"), ("sender", "9")}

    run(scenario())


def test_records_end_with_the_group(tmp_path: Path) -> None:
    """Another group of the same name knows none of its conversations."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, [member] = await with_members(harness, "m0")
        for n in range(20):
            say(sender, str(n), b"%d" % n)
        await turn(1)
        assert len(logged(harness)) == 20
        await member.unsubscribe("$share/g/a/#")
        await turn(5)
        assert not logged(harness)
        await harness.restart()
        await turn(5)
        assert not logged(harness)

    run(scenario())


def test_a_message_that_expires_while_it_waits_is_not_delivered(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, members = await with_members(harness, "m0", "m1", mute=True)
        say(sender, "k", b"0")
        await turn(1)
        sender.publish("a/x", b"short", 1, properties=of("k", message_expiry_interval=5))
        say(sender, "k", b"1")
        await turn(10)
        for member in members:
            member.mute = False
            member.answer_all()
        await turn(5)
        assert spread(members) == Counter([b"0", b"1"])
        assert harness.relinquished() == harness.instructions()

    run(scenario())
