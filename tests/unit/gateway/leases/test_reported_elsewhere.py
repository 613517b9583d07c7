"""What clusters of other products have suffered, and several gateways here do not (G6, G8, G14, Q6, Q7, R8). Each test
names the report.

tests/acceptance/test_gateways_under_faults.py has all reports, and what shows the others with real processes.
"""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from gateway.cluster.life import LinkEnded, RedialResult
from gateway.shard.messages import GROUP_MARK
from schemas.identity import shard_of
from tests.unit.gateway.leases.site import SETTLED_S, ClusterGateway, Site
from tests.unit.gateway.shard.home_client import Client
from tests.unit.gateway.shard.home_harness import LEAD_S, SHARDS, turn
from tests.unit.gateway.shard.test_shard_moves import named
from tests.unit.gateway.shard.virtual_time import run

GROUP = "$share/g/a/#"
OF_GROUP = shard_of(GROUP_MARK + GROUP, SHARDS)
BALANCED_S = 10.0
SERVED_S = 1.0
"""Well above the time that a takeover takes."""


async def apart(directory: Path) -> Site:
    """The two shards are at two gateways, and there is a third one."""
    site = await Site(directory).start(3)
    await turn(BALANCED_S)
    assert site.owner_of(0) is not site.owner_of(1)
    return site


async def back(site: Site, client: Client) -> None:
    """The client connects again, whoever has its shard by now."""
    await turn(SETTLED_S)
    await site.reconnect()
    assert client.link is not None


def payloads(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def publish(sender: Client, wanted: list[bytes], topic: str = "a/x") -> None:
    """At QoS 1 and 2 in turn."""
    for number, payload in enumerate(wanted):
        sender.publish(topic, payload, 1 + number % 2)


def test_survivors_go_on_at_once(tmp_path: Path) -> None:
    """tbmq#181: clients of another gateway are served all the time, and those of the lost one after a second."""

    async def scenario() -> None:
        site = await apart(tmp_path)
        sender, receiver, moved = [await site.client(name) for name in (*named(0)[:2], named(1)[0])]
        await receiver.subscribe("a/#")
        await moved.subscribe("a/#")
        await turn(LEAD_S + 5)
        site.owner_of(1).kill()
        for number in range(10):
            publish(sender, [b"%d" % number])
            await turn(0.1)
            assert receiver.payloads == payloads(number + 1)
        await back(site, moved)
        await turn(SERVED_S)
        assert moved.payloads == payloads(10)
        assert not site.fatal

    run(scenario())


def test_a_queue_moves_while_its_client_comes_back(tmp_path: Path) -> None:
    """vernemq#2488: what waited for it, and what comes meanwhile, comes once and in order."""

    async def scenario() -> None:
        site = await apart(tmp_path)
        sender, away = await site.client(named(0)[0]), await site.client(named(1)[0])
        await away.subscribe("a/#")
        await turn(LEAD_S + 5)
        away.lose()
        sent = payloads(40)
        for payload in sent:
            sender.publish("a/x", payload, 2)
        await turn(20)  # it is in the spool
        owner = site.owner_of(1)
        target = next(member for member in site.members if member not in (owner, site.owner_of(0)))
        owner.control.move(1, target.name)
        more = payloads(40, first=40)
        for payload in more:
            sender.publish("a/x", payload, 2)
            await turn(0.005)
            if away.link is None:
                await site.reconnect()
        await turn(SETTLED_S)
        assert site.owner_of(1) is target
        await site.reconnect()
        await turn(20)
        assert away.payloads == sent + more
        assert not site.fatal

    run(scenario())


def test_a_packet_id_acknowledges_one_message_after_a_takeover(tmp_path: Path) -> None:
    """emqx#16296: what is in flight keeps its packet ids, new messages get others, and each PUBACK ends one."""

    async def scenario() -> None:
        site = await apart(tmp_path)
        sender = await site.client(named(0)[0])
        receiver = await site.client(named(1)[0], receive_maximum=4, mute=True)
        await receiver.subscribe("a/#")
        await turn(LEAD_S + 5)
        sent = payloads(12)
        for payload in sent:
            sender.publish("a/x", payload, 1)
        await turn(1)
        for _ in range(3):
            in_flight = receiver.attached.session.in_flight
            assert len(in_flight) == 4
            receiver._say("puback", next(iter(in_flight)))
            await turn(0.2)
            ids = [packet_id for _, packet_id in receiver._unanswered]
            assert len(receiver.attached.session.in_flight) == 4
            assert len(set(ids)) == len(ids), "two messages in one connection have the same packet id"
            site.owner_of(1).kill()
            await back(site, receiver)
            await site.join(f"gateway-{len(site.members)}")
            await turn(1)
        receiver.mute = False
        receiver.answer_all()
        await turn(20)
        assert list(dict.fromkeys(receiver.payloads)) == sent
        assert not site.fatal

    run(scenario())


def test_positions_never_pass_what_was_not_delivered(tmp_path: Path) -> None:
    """tbmq#320: one owner after the other is lost, some after their checkpoint, while the client is away."""

    async def scenario() -> None:
        site = await apart(tmp_path)
        sender, away = await site.client(named(0)[0]), await site.client(named(1)[0])
        await away.subscribe("a/#")
        await turn(LEAD_S + 5)
        away.lose()
        for number, pause_s in enumerate((0.02, 20.0, 0.3, 5.0)):
            publish(sender, payloads(10, first=10 * number))
            await turn(pause_s)
            site.owner_of(1).kill()
            await turn(SETTLED_S)
            if sender.link is None:
                await Client.connect(sender)
            await site.join(f"gateway-{len(site.members)}")
            await turn(1)
        await Client.connect(away)
        await turn(20)
        assert set(away.payloads) == set(payloads(40)) == sender.acknowledged
        assert not site.fatal

    run(scenario())


@pytest.mark.parametrize("lost", ["group", "members"])
def test_a_group_keeps_its_queue_and_gives_to_living_members(tmp_path: Path, lost: str) -> None:
    """vernemq#38, emqx#8433, emqx#12257: the group is at one gateway, its only members at another; either is lost."""

    async def scenario() -> None:
        site = await apart(tmp_path)
        sender = await site.client(named(OF_GROUP)[0])
        members = [await site.client(name) for name in named(1 - OF_GROUP)[:2]]
        for member in members:
            await member.subscribe(GROUP)
        await turn(LEAD_S + 5)
        members[0].mute = True
        publish(sender, payloads(20))
        await turn(0.05)
        site.owner_of(OF_GROUP if lost == "group" else 1 - OF_GROUP).kill()
        await turn(0.3)
        if sender.link is not None:
            publish(sender, payloads(20, first=20))
        await turn(SETTLED_S)
        members[0].mute = False
        await site.reconnect()
        publish(sender, payloads(20, first=40))
        await turn(20)
        got = Counter(payload for member in members for payload in member.payloads)
        assert set(got) >= sender.acknowledged
        assert len(sender.acknowledged) >= 40
        assert not [payload for payload in sender.acknowledged if int(payload) % 2 and got[payload] > 1], "QoS 2 twice"
        assert members[1].payloads, "a member that lives gets its share"
        assert not site.fatal

    run(scenario())


def test_lost_links_change_nothing(tmp_path: Path) -> None:
    """emqx#14248: all links end at once, and cannot be made again. All write to `members`: no shard changes its owner,
    no route is lost, and messages come."""

    async def scenario() -> None:
        site = await apart(tmp_path)
        sender, receiver = await site.client(named(0)[0]), await site.client(named(1)[0])
        await receiver.subscribe("a/#")
        await turn(LEAD_S + 5)
        owners, routes = [site.owner_of(shard) for shard in range(SHARDS)], _routes(site)
        for one in site.members:
            for other in (member for member in site.members if member is not one):
                one.control.about_life(LinkEnded(other.name))
                one.control.about_life(RedialResult(other.name, "timeout"))
        publish(sender, payloads(10))
        await turn(SETTLED_S)
        assert [site.owner_of(shard) for shard in range(SHARDS)] == owners
        assert _routes(site) == routes
        assert receiver.payloads == payloads(10)
        assert not site.fatal

    run(scenario())


def _routes(site: Site) -> list[int]:
    return [member.home.routes for member in site.members if isinstance(member, ClusterGateway)]


def test_nobody_is_sent_to_a_dead_owner(tmp_path: Path) -> None:
    """pulsar#23011: once another gateway has the shard, all name that one, for as long as they are asked."""

    async def scenario() -> None:
        site = await apart(tmp_path)
        dead = site.owner_of(0)
        dead.kill()
        await asyncio.sleep(SETTLED_S)
        for _ in range(20):
            for member in site.members:
                if member.is_up:
                    assert member.control.table[0].owner == site.owner_of(0).control.me
                    assert dead.name not in member.control.table[0].standbys
            await turn(0.5)

    run(scenario())
