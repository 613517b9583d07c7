"""Delivery in virtual time on days on which much goes wrong, drawn from a seed (M3, M4, M10, M11)."""

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from edge.uplink.bearers import Bearer
from edge.uplink.delivery_plan import PlanLimits
from edge.uplink.errors import GatewayProblem
from tests import draw
from tests.unit.bundles.keys import bundle
from tests.unit.edge.uplink.fake_holder import FakeHolder
from tests.unit.edge.uplink.fake_platform import FakeGateway, FakePlatform, deliverer, link, now, run_until
from tests.unit.gateway.shard.virtual_time import VirtualLoop, run

PRESENCE_OUT = GatewayProblem(503, "kafka_error", "message presence is out of reach")


def test_agents_that_have_never_met_learn_each_other_s_certificates() -> None:
    """M5, M17: a message waits at its originator only as long as its recipient has had no uplink."""

    async def scenario() -> None:
        platform, one, other = FakePlatform(), FakeHolder("a"), FakeHolder("b")
        one.missing = ["b", "c"]
        asker = deliverer(one, link(FakeGateway(platform, "a")))
        await run_until(lambda: now() > 30, asker)
        assert one.missing == ["b", "c"]
        await run_until(lambda: one.missing == ["c"], asker, deliverer(other, link(FakeGateway(platform, "b"))))
        assert platform.announced == {b"a", b"b"}

    run(scenario())


FAULTS = ["refused", "hang", "problem", "answer lost", "wrong receipts"]


def bad_day(seed: str) -> Coroutine[Any, Any, int]:
    """Three agents, each with two bearers, the same and other messages, presence that comes and goes."""

    async def scenario() -> int:
        random, platform = Random(seed), FakePlatform()
        names = ["a", "b", "c"]
        messages = [bundle(number, name) for name in names for number in range(1, 15)]
        holders, agents = [], []
        is_over = False
        shared = {one.message_id for one in messages if random.random() < 0.5}

        def fault() -> str | None:
            return random.choice(FAULTS) if not is_over and random.random() < 0.25 else None

        def presence_fault() -> str | None:
            return random.choice(FAULTS) if not is_over and random.random() < 0.1 else None

        def watch(agent: str, message_id: str, out_s: float) -> None:
            if message_id in shared and out_s < 100:
                assert platform.claimant(message_id) == agent, "sent without a claim"

        platform.watch = watch
        for name in names:
            holder = FakeHolder(name, propagated=shared)
            for one in messages:
                is_own = one.header.originator == name
                if is_own or (one.message_id in shared and random.random() < 0.7):
                    holder.hold(one, since=float(random.randrange(200)))
            gateways = [FakeGateway(platform, name, delay_s=random.choice([0.05, 1.0])) for _ in range(2)]
            for gateway in gateways:
                gateway.fault = fault
                gateway.presence_fault = presence_fault
            bearers = Bearer("lan", "http://one"), Bearer("lte", "http://two", priority=1, after_s=30)
            holders.append(holder)
            links = [link(gateway, bearer) for gateway, bearer in zip(gateways, bearers, strict=True)]
            agents.append(deliverer(holder, *links, limits=PlanLimits(patience_s=100, withheld_s=3_000)))

        async def outages() -> None:
            nonlocal is_over
            await asyncio.sleep(random.randrange(120))
            platform.presence_problem = PRESENCE_OUT
            await asyncio.sleep(random.randrange(300))
            platform.presence_problem = None
            await asyncio.sleep(600)
            is_over = True

        outage = asyncio.create_task(outages())
        is_done = lambda: not any(holder.store or len(holder.reports) for holder in holders)  # noqa: E731
        await run_until(is_done, *agents)
        outage.cancel()
        assert set(platform.taken) == {one.message_id for one in messages}
        for holder in holders:
            assert {one.message_id for one in messages if one.header.originator == holder.name} <= set(holder.receipts)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        return loop.turns

    return scenario()


@pytest.mark.parametrize("number", range(draw.times(3, 200)))
def test_what_was_accepted_is_delivered_whatever_goes_wrong(number: int) -> None:
    """M3, M4, M10, M11: and nothing is sent without a claim while presence is in reach."""
    assert run(bad_day(f"{draw.SEED} {number}")) < 200_000
