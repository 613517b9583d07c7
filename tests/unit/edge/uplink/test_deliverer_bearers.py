"""Which bearer delivers, and when the next one does, in virtual time (M3, M4)."""

import asyncio

from edge.client.connect_points import ConnectPoint
from edge.uplink.bearers import Bearer
from tests.unit.bundles.keys import bundle
from tests.unit.edge.uplink.fake_holder import FakeHolder
from tests.unit.edge.uplink.fake_platform import (
    FakeGateway,
    FakePlatform,
    deliverer,
    link,
    now,
    run_until,
)
from tests.unit.gateway.shard.virtual_time import run


def test_a_bearer_with_too_much_latency_is_not_reachable() -> None:
    """M3: round trips of 3 s, with a threshold of 2 s, and then below it."""

    async def scenario() -> None:
        platform, holder = FakePlatform(), FakeHolder()
        gateway = FakeGateway(platform, "a", delay_s=3.0)
        holder.hold(bundle())
        agent = deliverer(holder, link(gateway, latency_s=2.0))
        await run_until(lambda: now() > 300, agent)
        assert holder.store
        assert not holder.uplinks
        assert "round trip" in agent.status().bearers[0].last_problem
        gateway.delay_s = 1.0
        await run_until(lambda: not holder.store, agent, most_s=120)
        assert holder.uplinks == [True]

    run(scenario())


def test_the_next_bearer_takes_over_in_its_time() -> None:
    """M4: satellite only for what has waited for a minute, or is urgent."""

    async def scenario() -> None:
        platform, holder = FakePlatform(), FakeHolder()
        gateways = [FakeGateway(platform, "a") for _ in range(3)]
        lan, lte, _ = gateways
        lan.fault = lambda: "refused"
        bearers = [
            Bearer("lan", "http://gateway"),
            Bearer("lte", "http://gateway", priority=1),
            Bearer("satellite", "http://gateway", priority=2, after_s=60),
        ]
        links = [link(gateway, bearer) for gateway, bearer in zip(gateways, bearers, strict=True)]
        agent = deliverer(holder, *links, is_urgent=lambda header: header.destination == "alarms")
        holder.hold(bundle(1))
        await run_until(lambda: not holder.store, agent)
        assert [sum(one.posts) for one in gateways] == [0, 1, 0]
        lte.fault = lan.fault
        await run_until(lambda: now() > 60, agent)
        began = now()
        holder.hold(bundle(2), bundle(3, destination="alarms"), since=began)
        assert await run_until(lambda: len(holder.store) == 1, agent) < began + 5
        assert await run_until(lambda: not holder.store, agent) >= began + 60
        assert [sum(one.posts) for one in gateways] == [0, 1, 2]
        lan.fault = lambda: None
        agent.network_changed()
        await run_until(lambda: agent.status().bearers[0].is_up, agent, most_s=10)
        holder.hold(bundle(4), since=now())
        await run_until(lambda: not holder.store, agent)
        assert [sum(one.posts) for one in gateways] == [1, 1, 2]

    run(scenario())


def test_bearers_of_one_rank_are_used_together() -> None:
    """M4: each uploads for ten seconds, and both are done after little more."""

    async def scenario() -> None:
        platform, holder = FakePlatform(), FakeHolder()
        gateways = [FakeGateway(platform, "a") for _ in range(2)]
        links = [
            link(gateway, Bearer(name, "http://gateway"))
            for gateway, name in zip(gateways, ("lan", "wifi"), strict=True)
        ]
        agent = deliverer(holder, *links)
        await run_until(lambda: all(one.is_up for one in agent.status().bearers), agent)
        began = now()
        for gateway in gateways:
            gateway.upload_s = 10
        size = 700_000  # one fills a request
        holder.hold(*(bundle(at, destination=f"to/{at}", size=size) for at in (1, 2)), since=began)
        assert await run_until(lambda: not holder.store, agent) < began + 15
        assert [gateway.posts for gateway in gateways] == [[1], [1]]

    run(scenario())


def test_gateways_come_and_go() -> None:
    """G14: the access point says which there are; the next one is used when one fails."""

    async def scenario() -> None:
        platform, holder = FakePlatform(), FakeHolder()
        front, one, two = (FakeGateway(platform, "a") for _ in range(3))
        front.points = [ConnectPoint("http", "one", 80), ConnectPoint("http", "two", 80)]
        links = link(
            {"http://front:80": front, "http://one:80": one, "http://two:80": two}, Bearer("lan", "http://front")
        )
        agent = deliverer(holder, links)
        holder.hold(bundle(1))
        await run_until(lambda: not holder.store, agent)
        assert (one.posts, two.posts) == ([1], [])
        one.fault = lambda: "refused"
        holder.hold(bundle(2))
        await run_until(lambda: not holder.store, agent)
        assert (one.posts[:1], two.posts, front.posts) == ([1], [1], [])

    run(scenario())


def test_a_slow_transfer_keeps_its_claim() -> None:
    """M11: the claim is renewed; another agent waits, and gets the receipt."""

    async def scenario() -> None:
        platform = FakePlatform()
        holders = [FakeHolder(name) for name in ("b", "c")]
        for holder in holders:
            holder.hold(bundle())
        slow = FakeGateway(platform, "b")
        slow.upload_s = 200
        one = deliverer(holders[0], link(slow))
        other = deliverer(holders[1], link(FakeGateway(platform, "c")))
        first = asyncio.create_task(one.run())
        await asyncio.sleep(5)
        await run_until(lambda: not any(holder.store for holder in holders), other)
        first.cancel()
        await asyncio.wait([first])
        assert platform.taken[bundle().message_id] == 1
        assert len(platform.reported("claimed")) > 3
        assert one.status().claims_granted == 1  # renewals do not count

    run(scenario())
