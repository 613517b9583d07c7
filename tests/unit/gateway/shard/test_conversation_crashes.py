"""Conversations in a share group whose home is killed or moves on (R6, G7, G8)."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from gateway.errors import SpoolError
from gateway.shard.session_records import conversation_key, conversation_of_key, group_record
from schemas.identity import shard_of
from schemas.session_log import GroupRecord, SessionKey, decode, encode
from tests.draw import some
from tests.unit.gateway.shard.conversation_harness import (
    conversations_of,
    holder,
    logged,
    of,
    say,
    tells,
    with_settings,
)
from tests.unit.gateway.shard.home_harness import LEAD_S, SHARDS, HomeHarness, turn
from tests.unit.gateway.shard.share_harness import NAME, group_of, with_members
from tests.unit.gateway.shard.two_gateways import TwoGateways, done_or_killed
from tests.unit.gateway.shard.virtual_time import VirtualLoop, run

PAYLOADS = [b"%d" % n for n in range(8)]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("waits", [False, True], ids=["idle", "under way"])
def test_the_next_home_goes_on_with_the_same_member(tmp_path: Path, qos: int, waits: bool) -> None:
    """G7: also with the other members there first."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, members = await with_members(harness, "m0", "m1", "m2")
        say(sender, "k", b"0", qos=qos)
        await turn(1)
        chosen = holder(members, b"0")
        if waits:
            chosen.mute = True
            say(sender, "k", *PAYLOADS[1:4], qos=max(qos, 1))
            await turn(1)
        await harness.restart()
        for client in (sender, *(member for member in members if member is not chosen)):
            await client.connect()
        say(sender, "k", *PAYLOADS[4:], qos=max(qos, 1))
        await turn(5)
        chosen.mute = False
        await chosen.connect()
        await turn(5)
        wanted = PAYLOADS if waits else [b"0", *PAYLOADS[4:]]
        assert list(dict.fromkeys(chosen.payloads)) == wanted
        assert not any(member.payloads for member in members if member is not chosen)
        if qos == 2:
            assert chosen.payloads == wanted
        await turn(30)
        assert harness.relinquished() == harness.instructions()
        assert not group_of(harness).put_back
        assert len(conversations_of(harness)) == len(logged(harness)) == 1

    run(scenario())


@pytest.mark.parametrize("turns", some(range(1, 60), 12, "rounds of the first message of a conversation"))
@pytest.mark.parametrize("qos", [1, 2])
def test_killed_while_the_first_message_is_on_its_way(tmp_path: Path, turns: int, qos: int) -> None:
    """R6, G8: whenever that is, all of it goes to one member, unless nobody had any of it."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, members = await with_members(harness, "m0", "m1")
        say(sender, "k", *PAYLOADS[:4], qos=qos)
        await turn(turns / 1_000)
        harness.crash(stored=turns % 4)
        await harness.start()
        for client in (members[1], members[0], sender):
            await client.connect()
        say(sender, "k", *PAYLOADS[4:], qos=qos)
        await turn(10)
        [got] = [member.payloads for member in members if member.payloads]
        assert list(dict.fromkeys(got)) == PAYLOADS
        assert qos == 1 or got == PAYLOADS
        await turn(30)
        assert harness.relinquished() == harness.instructions()
        assert harness.completed() == set(harness.published())

    run(scenario())


@pytest.mark.parametrize("moved", ["group", "member"])
def test_a_shard_moves(tmp_path: Path, moved: str) -> None:
    """Q7: that of the group, and that of the member."""

    async def scenario() -> None:
        harness = await TwoGateways(tmp_path).start()
        sender = await harness.client("sender")
        members = [await harness.client(name) for name in ("m0", "m1", "m2")]
        for member in members:
            await member.subscribe(NAME)
        await turn(LEAD_S + 5)
        say(sender, "k", *PAYLOADS[:3], qos=2)
        await turn(0.01)
        member_shard = shard_of(next(iter(members)).name, SHARDS)
        number = shard_of("\0" + NAME, SHARDS) if moved == "group" else member_shard
        source = harness.owner(number)
        assert source is not None
        await source.hand_over(number)
        [target] = [gateway for gateway in harness.gateways if gateway is not source]
        await target.start_shard(number)
        await harness.reconnect()
        say(sender, "k", *PAYLOADS[3:], qos=2)
        await harness.settle()
        assert [member.payloads for member in members if member.payloads] == [PAYLOADS]

    run(scenario())


def test_what_is_void_is_written_again(tmp_path: Path) -> None:
    """G7: the record of a conversation that somebody has overwritten who had lost the shard."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, [member] = await with_members(harness, "m0")
        say(sender, "k", b"0")
        await turn(1)
        before, group = logged(harness), group_of(harness)
        mender = harness.home.shards[group.shard].mender
        [key] = conversations_of(harness).keys
        raw = conversation_key(group, key).encode()
        harness.bus.produce(harness.topics.sessions, group.shard, raw, None, None, lambda *_: None)
        await turn(0.1)
        assert not logged(harness)
        mender.mend(raw)
        await turn(0.1)
        assert logged(harness) == before
        assert before["sender", "k"].client == member.name
        mender.mend(conversation_key(group, key._replace(id="unknown")).encode())
        await turn(0.1)
        assert logged(harness) == before

    run(scenario())


def test_records_that_belong_to_nothing_are_ended(tmp_path: Path) -> None:
    """Of a group that is no more, of an earlier one of the same name, and with conversations switched off."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, [member] = await with_members(harness, "m0")
        say(sender, "k", b"0")
        await turn(1)
        group, value = group_of(harness), logged(harness)["sender", "k"]
        stale = msgspec.structs.replace(group_record(group), born_us=1, assigned=[], conversation=value)
        for name in ("\0$share/none/a", group.client):
            key = SessionKey(f"{name}\0sender\0stale", "g").encode()
            harness.bus.produce(harness.topics.sessions, group.shard, key, encode(stale), None, lambda *_: None)
        await turn(1)
        await harness.restart()
        await turn(1)
        assert logged(harness) == {("sender", "k"): value}
        harness.crash()
        with_settings(harness, conversations=0)
        await harness.start()
        await turn(5)
        assert not logged(harness)
        await member.connect()
        await sender.connect()
        sender.publish("a/x", b"1", 1, properties=of("k"))
        await turn(1)
        assert member.payloads == [b"0", b"1"]

    run(scenario())


def test_an_earlier_release_takes_the_record_for_a_group_that_is_over(tmp_path: Path) -> None:
    """R5: it finds a group's record without assignments, whose group it does not know."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, _ = await with_members(harness, "m0")
        say(sender, "k", b"0")
        await turn(1)
        [key] = conversations_of(harness).keys
        name = conversation_key(group_of(harness), key)
        raw = [r.value() for r in harness.broker.partitions[harness.topics.sessions, group_of(harness).shard]
               if r.key() == name.encode()]  # fmt: skip
        known = msgspec.json.decode(raw[0] or b"", type=dict)
        del known["conversation"]
        record = decode("g", msgspec.json.encode(known))
        assert isinstance(record, GroupRecord)
        assert (record.assigned, record.open, record.conversation) == ([], [], msgspec.UNSET)
        assert b"conversation" not in encode(group_record(group_of(harness)))
        assert conversation_of_key(name) == (NAME, key)
        assert conversation_of_key(SessionKey(group_of(harness).client, "g")) is None

    run(scenario())


@pytest.mark.parametrize("who", ["source", "target"])
@pytest.mark.parametrize("rounds", some(range(1, 200, 3), 4, "rounds of a move with conversations"))
def test_killed_at_each_step_of_a_move(tmp_path: Path, who: str, rounds: int) -> None:
    """G8, Q7: of the group's shard, while messages of two conversations come."""

    async def scenario() -> None:
        harness = await TwoGateways(tmp_path).start()
        sender = await harness.client("sender")
        members = [await harness.client(name) for name in ("m0", "m1", "m2")]
        for member in members:
            await member.subscribe(NAME)
        await turn(LEAD_S + 5)
        number = shard_of("\0" + NAME, SHARDS)
        source = harness.owner(number)
        assert source is not None
        [target] = [gateway for gateway in harness.gateways if gateway is not source]
        for n in range(12):
            say(sender, "kl"[n % 2], b"%d" % n, qos=1 + n // 2 % 2)
        await turn(0.02)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        killed = source if who == "source" else target
        loop.call_at_turn(loop.turns + rounds, killed.kill)

        async def move() -> None:
            await source.hand_over(number)
            await target.start_shard(number)

        await done_or_killed(move(), 5, KeyError, SpoolError)  # the files of a killed one are closed
        killed.kill()
        for client in harness.clients:  # also of a shard that was just starting
            if not any(client.attached.home in up.home.shards.values() for up in harness.gateways if up.is_up):
                client.link = None
        await harness.settle()
        for n in range(12, 24):
            say(sender, "kl"[n % 2], b"%d" % n, qos=1 + n // 2 % 2)
        await harness.settle()
        assert not harness.fatal
        for conversation in range(2):
            sent = [b"%d" % n for n in range(conversation, 24, 2)]
            [got] = [mine for mine in ([p for p in m.payloads if p in sent] for m in members) if mine]
            assert list(dict.fromkeys(got)) == sent
            exact = [payload for payload in got if int(payload) // 2 % 2]
            assert exact == list(dict.fromkeys(exact))
        assert not any(told for member in members for told in tells(member))

    run(scenario())
