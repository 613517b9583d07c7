"""What an owner that has lost its shard still says about share groups counts for nobody (G6, Q7, R6).

Its Kafka client sends what it had queued once it reaches the broker again. Other homes know by then that the shard has
another owner.
"""

from collections import Counter
from pathlib import Path

import pytest

from gateway.memory_bus import MemoryRecord
from gateway.shard.messages import GROUP_MARK
from gateway.shard.share_messages import Returned, Sender, encode
from mqtt.codes import ReasonCode
from schemas.identity import shard_of
from tests.unit.gateway.shard.clustered import Clustered
from tests.unit.gateway.shard.home_client import Client
from tests.unit.gateway.shard.home_harness import LEAD_S, SHARDS, turn
from tests.unit.gateway.shard.two_gateways import Gateway
from tests.unit.gateway.shard.virtual_time import run

NAME = "$share/g/a/#"
OF_GROUP = shard_of(GROUP_MARK + NAME, SHARDS)
OF_MEMBERS = 1 - OF_GROUP
"""The group is in one shard, its members are in the other one."""


async def begin(directory: Path, members: int) -> tuple[Clustered, Client, list[Client]]:
    """A sender in the group's shard, and members whose route is in effect."""
    harness = await Clustered(directory).start()
    sender = await harness.client(harness.names(OF_GROUP)[0])
    joined = [await harness.client(name) for name in harness.names(OF_MEMBERS)[:members]]
    for member in joined:
        assert await member.subscribe(NAME) == [ReasonCode.GRANTED_QOS_2]
    await turn(LEAD_S + 5)
    return harness, sender, joined


async def superseded(harness: Clustered, number: int) -> Gateway:
    """An owner that is cut off loses its shard, and its clients go to the next owner."""
    zombie = harness.cut_off(number)
    for client in harness.clients:
        if client.link is not None and client.attached.home is zombie.home.shards[number]:
            client.lose()
    zombie.is_up = False
    await harness.take_over(number, harness.gateways[2])
    await harness.reconnect()
    await turn(1)
    return zombie


def test_a_member_that_has_gone_to_the_next_owner_is_not_taken_for_away(tmp_path: Path) -> None:
    """emqx#12257, tbmq#181: the earlier owner sees its client's connection end, and says so late."""

    async def scenario() -> None:
        harness, sender, [member] = await begin(tmp_path, 1)
        zombie = await superseded(harness, OF_MEMBERS)
        harness.wake(zombie)
        await turn(1)
        for number in range(4):
            sender.publish("a", b"%d" % number, 1 + number % 2)
        await turn(20)
        assert member.payloads == [b"0", b"1", b"2", b"3"]
        assert not harness.fatal

    run(scenario())


def test_members_are_named_to_the_next_owner_and_not_to_an_earlier_one_here(tmp_path: Path) -> None:
    """Q7: a gateway hears from the next owner of a shard before it reads the claim. Until then its own home of that
    shard is there, but what its other shards say is for the next owner."""

    async def scenario() -> None:
        harness, sender, [member] = await begin(tmp_path, 1)
        both = harness.owner(OF_MEMBERS)
        first = harness.cut_off(OF_GROUP)
        assert both is not None
        sender.lose()
        first.is_up = False
        await harness.take_over(OF_GROUP, both)
        await harness.reconnect()
        await turn(1)
        await harness.take_over(OF_GROUP, harness.gateways[2])
        await turn(1)
        sender.lose()
        await both.home.abandon(OF_GROUP)
        await harness.reconnect()
        sender.publish("a", b"one", 1)
        await turn(20)
        assert member.payloads == [b"one"]
        assert not harness.fatal

    run(scenario())


def test_a_result_that_is_not_logged_is_not_sent_to_the_next_owner_either(tmp_path: Path) -> None:
    """G8, MQTT 5.0, 2.2.1: the group would forget the exchange. If the member's gateway is lost before PUBREC is in the
    session log, the next one would take the packet id for free, and the client another message for a copy."""

    async def scenario() -> None:
        harness, sender, [member] = await begin(tmp_path, 1)
        member.mute = True
        sender.publish("a", b"one", 2)
        await turn(1)
        assert member.payloads == [b"one"]
        owner = harness.owner(OF_MEMBERS)
        assert owner is not None
        owner.bus.held_stores = {harness.topics.sessions}
        member.mute = False
        member.answer_all()
        await turn(1)
        await superseded(harness, OF_GROUP)
        owner.bus.held_stores = {name for name in vars(harness.topics).values() if name}
        await superseded(harness, OF_MEMBERS)
        sender.publish("a", b"two", 2)
        await turn(20)
        assert member.payloads == [b"one", b"two"]
        assert not harness.fatal

    run(scenario())


def test_an_assignment_that_is_over_does_not_come_again(tmp_path: Path) -> None:
    """vernemq#38, emqx#8433: the next owner has sent it too, the member has it, and its session has forgotten it."""

    async def scenario() -> None:
        harness, sender, [member] = await begin(tmp_path, 1)
        zombie = harness.owner(OF_GROUP)
        assert zombie is not None
        zombie.bus.held_stores = {harness.topics.egress}
        sender.publish("a", b"first", 2)
        await turn(1)
        assert not member.payloads, "it is assigned, and the assignment is not stored"
        await superseded(harness, OF_GROUP)
        assert member.payloads == [b"first"]
        for number in range(8):
            sender.publish("a", b"%d" % number, 2)
            await turn(1)
        harness.wake(zombie)
        await turn(20)
        assert member.payloads == [b"first", *(b"%d" % number for number in range(8))]
        assert not harness.fatal

    run(scenario())


@pytest.mark.parametrize("epoch", [1, 2], ids=["the earlier owner", "the owner"])
def test_what_the_next_owner_has_sent_is_not_given_back_by_the_earlier_one(tmp_path: Path, epoch: int) -> None:
    """vernemq#38: nobody else gets a message at QoS 2 that a member has in hand."""

    async def scenario() -> None:
        harness, sender, [member, other] = await begin(tmp_path, 2)
        other.lose()
        member.mute = True
        sender.publish("a", b"one", 2)
        await turn(1)
        await superseded(harness, OF_MEMBERS)
        await turn(1)
        assert member.payloads == [b"one"]
        owner = harness.owner(OF_GROUP)
        assert owner is not None
        numbers = [*owner.home.shards[OF_GROUP].shares.dispatcher._assigned]
        value, headers = encode(Returned([(number, 0) for number in numbers]), Sender(OF_MEMBERS, epoch))
        harness.broker.append(MemoryRecord((harness.topics.egress, OF_GROUP), b"", value, headers))
        await turn(20)
        assert member.payloads + other.payloads == ([b"one"] if epoch == 1 else [b"one", b"one"])
        assert not harness.fatal

    run(scenario())


@pytest.mark.parametrize("sending", [0, 1, 2], ids=["an earlier sending", "the last sending", "no sending"])
def test_what_was_sent_again_is_not_given_back_by_an_earlier_answer(tmp_path: Path, sending: int) -> None:
    """A session without a connection gives an assignment back. It is sent again meanwhile, and the session has a
    connection by then: nobody else gets it at QoS 2. Earlier versions do not say which sending they give back."""

    async def scenario() -> None:
        harness, sender, [member, other] = await begin(tmp_path, 2)
        other.lose()
        member.mute = True
        sender.publish("a", b"one", 2)
        await turn(1)
        assert member.payloads == [b"one"]
        owner = harness.owner(OF_GROUP)
        assert owner is not None
        numbers = [*owner.home.shards[OF_GROUP].shares.dispatcher._assigned]
        await other.connect()
        sendings = [] if sending == 2 else [(harness.epochs[OF_GROUP], sending) for _ in numbers]
        value, headers = encode(Returned([(number, 0) for number in numbers], sendings), Sender(OF_MEMBERS, 1))
        harness.broker.append(MemoryRecord((harness.topics.egress, OF_GROUP), b"", value, headers))
        await turn(20)
        assert member.payloads + other.payloads == ([b"one"] if sending == 0 else [b"one", b"one"])
        assert not harness.fatal

    run(scenario())


def test_a_session_gives_back_the_last_sending(tmp_path: Path) -> None:
    """What was assigned twice to a session is one assignment, and it goes to another member when that is lost."""

    async def scenario() -> None:
        harness, sender, [member, other] = await begin(tmp_path, 2)
        other.lose()
        member.mute = True
        sender.publish("a", b"one", 1)
        await turn(1)
        owner = harness.owner(OF_GROUP)
        assert owner is not None
        dispatcher = owner.home.shards[OF_GROUP].shares.dispatcher
        dispatcher._send([*dispatcher._assigned.values()])
        await turn(1)
        assert member.payloads == [b"one"]
        await other.connect()
        member.lose()
        await turn(5)
        assert other.payloads == [b"one"]
        assert not harness.fatal

    run(scenario())


def test_what_waits_again_is_not_sent_when_the_group_has_written_its_record(tmp_path: Path) -> None:
    """The member's home has started meanwhile: others get it now, at QoS 0 and 1."""

    async def scenario() -> None:
        harness, sender, members = await begin(tmp_path, 1)
        here = await harness.client(harness.names(OF_GROUP)[1])
        await here.subscribe(NAME)
        await turn(5)
        bus = harness.owner(OF_GROUP).bus
        bus.held_stores = {harness.topics.sessions}
        sender.publish("a", b"at QoS 2", 2)
        for number in range(6):
            sender.publish("a", b"%d" % number, 0)
        await turn(0.5)
        await superseded(harness, OF_MEMBERS)
        await turn(1)
        bus.held_stores = set()
        bus.release()
        await turn(30)
        got = Counter(payload for member in (*members, here) for payload in member.payloads)
        assert max(got.values()) == 1

    run(scenario())
