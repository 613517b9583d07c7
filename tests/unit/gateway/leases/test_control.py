"""Gateways share shards, and take over those of lost ones (G4, G6, G14, Q7)."""

import asyncio
from pathlib import Path

import pytest

from gateway.cluster.lease_table import Lease
from gateway.errors import ClusterError
from schemas.leases import Claim, LeaseKey, encode_lease
from tests.unit.gateway.leases.site import SETTLED_S, Site
from tests.unit.gateway.shard.home_harness import LEAD_S, SHARDS, turn
from tests.unit.gateway.shard.test_shard_moves import Load, named
from tests.unit.gateway.shard.virtual_time import run

BALANCED_S = 10.0
"""Longer than it takes until each gateway has its share."""


def test_every_shard_has_one_owner_which_serves(tmp_path: Path) -> None:
    """G4, G14: whoever joins gets its share."""

    async def scenario() -> None:
        site = await Site(tmp_path).start()
        assert all(site.owner(shard) is not None for shard in range(SHARDS))
        for gateway in site.members:
            for shard in range(SHARDS):
                lease = gateway.control.table[shard]
                assert lease.is_fenced
                assert lease.owner is not None
                assert lease.owner.name == site.owner_of(shard).name

    run(scenario())


def test_others_take_over_the_shards_of_a_lost_gateway(tmp_path: Path) -> None:
    """Q7: nothing acknowledged is lost, and nothing at QoS 2 comes twice."""

    async def scenario() -> None:
        site = await Site(tmp_path).start()
        load = Load(site)
        await load.begin()
        for _ in range(4):
            load.publish(40)
            await turn(0.02)
            site.owner_of(0).kill()
            await turn(SETTLED_S)
            await site.reconnect()
            load.publish(20)
            await turn(0.5)
            await site.join(f"gateway-{len(site.members)}")
        await site.settle()
        load.check(killed=True)

    run(scenario())


def test_a_shard_moves_to_the_gateway_that_an_operator_names(tmp_path: Path) -> None:
    """G14: it moves once that gateway is warm; what cannot be is refused with the reason."""

    async def scenario() -> None:
        site = await Site(tmp_path).start()
        load = Load(site)
        await load.begin()
        load.publish(40)
        source = site.owner_of(0)
        target = next(g for g in site.members if g is not source)
        for shard, to, why in [
            (0, source.name, "at gateway-. already"),
            (0, "nobody", "not a gateway that can own shards now"),
            (SHARDS, target.name, "there is no shard"),
        ]:
            with pytest.raises(ClusterError, match=why):
                source.control.move(shard, to)
        with pytest.raises(ClusterError, match="is not this gateway's"):
            target.control.move(0, source.name)
        source.control.move(0, target.name)
        await turn(1)
        assert site.owner_of(0) is target
        await site.settle()
        load.check(killed=False)

    run(scenario())


def test_a_gateway_that_is_drained_gives_up_its_shards_in_order(tmp_path: Path) -> None:
    """R5: nothing comes twice, whatever its QoS."""

    async def scenario() -> None:
        site = await Site(tmp_path).start()
        load = Load(site)
        await load.begin()
        load.publish(40)
        await turn(0.02)
        leaving = site.owner_of(0)
        leaving.control.drain()
        await asyncio.wait_for(leaving.control.drained(), 5)
        assert not leaving.home.shards
        await turn(SETTLED_S)
        assert all(site.owner(shard) not in (None, leaving) for shard in range(SHARDS))
        await site.settle()
        load.check(killed=False)

    run(scenario())


def test_nobody_moves_shards_to_a_gateway_that_was_drained(tmp_path: Path) -> None:
    """R5, G14: it has none and the other has all, which would be a reason to balance them. It is no standby either."""

    async def scenario() -> None:
        site = await Site(tmp_path).start(2)
        await turn(BALANCED_S)
        drained = site.owner_of(0)
        (other,) = [member for member in site.members if member is not drained]
        drained.control.drain()
        await asyncio.wait_for(drained.control.drained(), 5)
        await turn(SETTLED_S)
        before = [other.control.table[shard].epoch for shard in range(SHARDS)]
        await turn(30)
        after = [other.control.table[shard] for shard in range(SHARDS)]
        assert [lease.epoch for lease in after] == before
        assert {lease.owner for lease in after} == {other.control.me}
        assert not any(lease.standbys for lease in after)

    run(scenario())


def test_shards_stay_at_a_drained_gateway_until_another_one_can_take_them(tmp_path: Path) -> None:
    """R5, G14: two are drained at the same moment, when each still takes the other for up. A third one joins later."""

    async def scenario() -> None:
        site = await Site(tmp_path).start(2)
        await turn(BALANCED_S)
        load = Load(site)
        await load.begin()
        for member in site.members:
            member.control.drain()
        await turn(BALANCED_S)
        assert all(site.owner(shard) is not None for shard in range(SHARDS)), "nobody serves a shard"
        load.publish(40)
        drained, third = list(site.members), await site.join("gateway-2")
        for member in drained:
            await asyncio.wait_for(member.control.drained(), 10)
        await turn(SETTLED_S)
        assert set(third.home.shards) == set(range(SHARDS))
        await site.settle()
        load.check(killed=False)

    run(scenario())


def test_the_last_gateway_can_be_stopped(tmp_path: Path) -> None:
    """Nobody takes its shards over; the next one that starts finds everything on Kafka."""

    async def scenario() -> None:
        site = await Site(tmp_path).start(1)
        load = Load(site)
        await load.begin()
        load.publish(40)
        await turn(0.02)
        last = site.members[0]
        last.control.leave()
        await asyncio.wait_for(last.control.drained(), 5)
        last.kill()
        await site.join("gateway-1")
        await site.settle()
        load.check(killed=False)

    run(scenario())


def test_an_owner_that_is_superseded_writes_and_sends_nothing_more(tmp_path: Path) -> None:
    """G6: another gateway claims its shard although it is alive."""

    async def scenario() -> None:
        site = await Site(tmp_path).start()
        load = Load(site)
        await load.begin()
        load.publish(40)
        owner = site.owner_of(0)
        thief = next(g for g in site.members if g is not owner)
        key = LeaseKey("c", 0, owner.control.owned(0) + 1, thief.control.me)
        thief.bus.produce(site.topics.leases, 0, key.encode(), encode_lease(Claim()), None, lambda *_: None)
        await turn(0.2)  # later it may move back, for balance
        assert 0 not in owner.home.shards
        assert site.owner_of(0) is thief
        await site.settle()
        load.check(killed=True)

    run(scenario())


def test_what_is_retained_at_one_gateway_is_there_for_a_subscriber_at_another(tmp_path: Path) -> None:
    """vernemq#2251: from the moment of its acknowledgement. It comes once; live, if the subscriber's gateway has read
    that only now."""

    async def scenario() -> None:
        site = await Site(tmp_path).start(1)
        await site.join("gateway-1")
        await turn(1)
        first = site.members[0]
        first.control.move(1, "gateway-1")
        await turn(SETTLED_S)
        assert site.owner_of(0) is not site.owner_of(1)
        sender, receiver = await site.client(named(0)[0]), await site.client(named(1)[0])
        site.owner_of(1).lag_s = 0.05
        for n in range(20):
            sender.publish(f"r{n}/x", b"%d" % n, 1, retain=True)
            while b"%d" % n not in sender.acknowledged:
                await asyncio.sleep(0)
            await receiver.subscribe(f"r{n}/x")
            if n % 2:
                await turn(LEAD_S + 5)  # the reader of `ingress` rests
        await turn(10)
        assert sorted(receiver.payloads, key=int) == [b"%d" % n for n in range(20)]

    run(scenario())


def test_a_standby_that_is_lost_is_followed_by_another(tmp_path: Path) -> None:
    """Q8: nobody's shard stays without one while there is a gateway to be one."""

    async def scenario() -> None:
        site = await Site(tmp_path).start()
        await turn(5)
        owner = site.owner_of(0)
        [standby] = owner.control.table[0].standbys
        lost = next(member for member in site.members if member.name == standby)
        lost.kill()
        await turn(SETTLED_S)
        [other] = owner.control.table[0].standbys
        assert other not in (standby, owner.name)
        assert site.owner_of(0) is owner

    run(scenario())


def test_a_gateway_that_returns_is_warm_before_it_serves(tmp_path: Path) -> None:
    """Q9: it gets its share of the shards by planned moves, one after the other, without its disk."""

    async def scenario() -> None:
        site = await Site(tmp_path).start(2)
        load = Load(site)
        await load.begin()
        lost = site.owner_of(0)
        lost.kill()
        load.publish(40)
        await turn(SETTLED_S)
        assert site.owner_of(0) is site.owner_of(1)
        await site.reconnect()
        load.publish(40)
        back = await site.join(lost.name)
        moved: list[tuple[bool, bool]] = []

        def note(before: Lease, after: Lease) -> None:
            if after.owner == back.control.me and before.owner != after.owner:
                moved.append((before.released_by is not None, after.shard in back.shards.standbys.warm()))

        back.control.listeners.append(note)
        await turn(20)
        assert len(back.home.shards) == 1
        assert moved == [(True, True)], "released for it, once it was warm"
        await site.settle()
        load.check(killed=True)

    run(scenario())
