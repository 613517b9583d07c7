"""Delivery over bearers in virtual time: presence, claims, receipts, and all that goes wrong (M3, M4, M10-M13)."""

import asyncio

import pytest

from edge.client.errors import DiskFull
from edge.uplink.delivery_plan import PlanLimits
from edge.uplink.errors import GatewayProblem
from schemas.mesh_api import BundleResult
from schemas.states import Claim
from tests.unit.bundles.keys import bundle
from tests.unit.edge.uplink.fake_holder import FakeHolder
from tests.unit.edge.uplink.fake_platform import (
    FakeGateway,
    FakePlatform,
    deliverer,
    link,
    now,
    run_until,
    wall_us,
)
from tests.unit.gateway.shard.virtual_time import VirtualLoop, run

PRESENCE_OUT = GatewayProblem(503, "kafka_error", "message presence is out of reach")


def test_own_messages_go_at_once_in_sequence_in_batches() -> None:
    """M1, M11: nothing is asked, claimed or reported for messages that nobody else has."""

    async def scenario() -> None:
        platform, holder = FakePlatform(), FakeHolder()
        gateway = FakeGateway(platform, "a")
        holder.hold(*(bundle(number) for number in range(1, 601)))
        ended = await run_until(lambda: not holder.store, deliverer(holder, link(gateway)))
        assert ended < 3
        assert platform.order == [("a", number) for number in range(1, 601)]
        assert gateway.posts == [500, 100]
        assert not platform.asked
        assert not platform.events
        assert holder.uplinks == [True]
        assert holder.meshes == 1

    run(scenario())


def test_what_others_may_have_is_claimed_delivered_and_reported() -> None:
    """M11, M12."""

    async def scenario() -> None:
        platform, holder = FakePlatform(), FakeHolder("carrier")
        messages = [bundle(number) for number in range(1, 301)]
        holder.hold(*messages)
        await run_until(
            lambda: not holder.store and not len(holder.reports),
            deliverer(holder, link(FakeGateway(platform, "carrier"))),
        )
        everything = [("carrier", one.message_id) for one in messages]
        for kind in ("attempting", "claimed", "delivered"):
            assert sorted(platform.reported(kind)) == sorted(everything)
        assert set(platform.taken.values()) == {1}
        event = next(event for _, event in platform.events if event.event == "delivered")
        assert (event.origin, event.peer) == ("a", "gateway")

    run(scenario())


def test_the_originator_learns_what_became_of_its_message() -> None:
    """M13: delivered by a peer: settled by the receipt and retired, without another delivery; not yet: delivered."""

    async def scenario() -> None:
        platform, messages = FakePlatform(), [bundle(number) for number in range(1, 4)]
        holder = FakeHolder(propagated=[one.message_id for one in messages[1:]])
        holder.hold(*messages)
        other = FakeHolder("carrier")
        other.hold(messages[1])
        await run_until(
            lambda: not other.store and not len(other.reports), deliverer(other, link(FakeGateway(platform, "carrier")))
        )
        await run_until(
            lambda: not holder.store and not len(holder.reports), deliverer(holder, link(FakeGateway(platform, "a")))
        )
        assert set(holder.receipts) == {one.message_id for one in messages}
        assert set(platform.taken.values()) == {1}
        assert platform.retired == {one.message_id for one in messages[1:]}
        assert platform.delivered == {messages[1].message_id: "carrier", messages[2].message_id: "a"}

    run(scenario())


def test_of_two_agents_with_the_same_message_one_delivers() -> None:
    """M11."""

    async def scenario() -> None:
        platform = FakePlatform()
        holders = [FakeHolder(name) for name in ("b", "c")]
        messages = [bundle(number) for number in range(1, 51)]
        for holder in holders:
            holder.hold(*messages)
        agents = [deliverer(holder, link(FakeGateway(platform, holder.name))) for holder in holders]
        await run_until(lambda: not any(holder.store for holder in holders), *agents)
        assert set(platform.taken.values()) == {1}
        assert sum(agent.status().claims_granted for agent in agents) == len(messages)

    run(scenario())


def test_what_an_answer_of_presence_leaves_out_is_asked_for_again() -> None:
    """M11, M12: it is known to presence, so it must not be taken for what nobody has reported."""

    async def scenario() -> None:
        platform, holder = FakePlatform(), FakeHolder("carrier")
        platform.states_max = 1
        messages = [bundle(number) for number in range(1, 5)]
        platform.delivered = {one.message_id: "other" for one in messages}
        holder.hold(*messages)
        ids = {one.message_id for one in messages}
        await run_until(lambda: platform.told == ids, deliverer(holder, link(FakeGateway(platform, "carrier"))))
        assert not platform.reported("claimed")

    run(scenario())


def test_the_claim_of_an_agent_that_died_expires() -> None:
    """M11."""

    async def scenario() -> None:
        platform, holder, message = FakePlatform(), FakeHolder("b"), bundle()
        holder.hold(message)
        until_ms = wall_us() // 1000 + 60_000
        platform.claims[message.message_id] = Claim(agent="dead", at_us=0, until_ms=until_ms)
        ended = await run_until(lambda: not holder.store, deliverer(holder, link(FakeGateway(platform, "b"))))
        assert 60 <= ended < 65
        assert platform.taken[message.message_id] == 1

    run(scenario())


def test_without_presence_it_waits_delivers_and_reports_later() -> None:
    """M10."""

    async def scenario() -> None:
        platform, holder = FakePlatform(), FakeHolder("b")
        platform.presence_problem = PRESENCE_OUT
        own = bundle(1, "b")
        holder.hold(bundle(), own)
        agent = deliverer(holder, link(FakeGateway(platform, "b")), limits=PlanLimits(patience_s=300))
        assert await run_until(lambda: own.message_id not in holder.store, agent) < 3, (
            "one without a claim goes at once"
        )
        ended = await run_until(lambda: not holder.store, agent)
        assert 300 <= ended < 310
        assert holder.reports.is_pending
        assert not platform.events
        assert agent.status().reports_pending
        platform.presence_problem = None
        await run_until(lambda: not holder.reports.is_pending, agent)
        assert platform.reported("delivered") == [("b", bundle().message_id)]

    run(scenario())


def test_claims_that_are_not_judged_hold_nothing_back_for_ever() -> None:
    """M10: a gateway answers queries from memory while it cannot store claims."""

    async def scenario() -> None:
        platform, holder = FakePlatform(), FakeHolder("b")
        platform.claim_problem = PRESENCE_OUT
        holder.hold(bundle())
        agent = deliverer(holder, link(FakeGateway(platform, "b")), limits=PlanLimits(patience_s=300))
        assert 300 <= await run_until(lambda: not holder.store, agent) < 400

    run(scenario())


def test_short_contacts_add_up_to_patience() -> None:
    """M10: an agent that never has a gateway for long."""

    async def scenario() -> None:
        platform, holder = FakePlatform(), FakeHolder("b")
        platform.presence_problem = PRESENCE_OUT
        gateway = FakeGateway(platform, "b")
        holder.hold(bundle())
        agent = deliverer(holder, link(gateway), limits=PlanLimits(patience_s=300))
        await run_until(lambda: now() > 60, agent)
        gateway.fault = lambda: "refused"
        platform.presence_problem = None
        await run_until(lambda: now() > 400, agent)
        assert holder.uplinks == [True, False]
        assert holder.store
        gateway.fault, platform.presence_problem = lambda: None, PRESENCE_OUT
        agent.network_changed()
        await run_until(lambda: not holder.store, agent, most_s=10)

    run(scenario())


def test_a_delivery_that_nobody_has_signed_costs_a_duplicate_at_most() -> None:
    """M8: any enrolled agent may report anything; the message is held back for a while, and never dropped."""

    async def scenario() -> None:
        platform, holder, message = FakePlatform(), FakeHolder("b"), bundle()
        holder.hold(message)
        platform.delivered[message.message_id] = "liar"
        agent = deliverer(holder, link(FakeGateway(platform, "b")), limits=PlanLimits(withheld_s=900))
        assert 900 <= await run_until(lambda: not holder.store, agent) < 925
        assert len(platform.asked) < 60

    run(scenario())


@pytest.mark.parametrize("fault", ["refused", "login page", "hang", "problem", "answer lost", "wrong receipts"])
def test_nothing_is_settled_without_a_receipt_and_all_is_in_the_end(fault: str) -> None:
    """M3: also not by a login page, a truncated answer, or a receipt for another message."""

    async def scenario() -> int:
        platform, holder = FakePlatform(), FakeHolder()
        gateway = FakeGateway(platform, "a")
        agent = deliverer(holder, link(gateway))
        await run_until(lambda: holder.uplinks == [True], agent)
        gateway.fault = lambda: fault
        holder.hold(*(bundle(number) for number in range(1, 20)))
        asyncio.get_running_loop().call_later(600, setattr, gateway, "fault", lambda: None)
        before = gateway.requests
        await run_until(lambda: now() > 590, agent)
        assert len(holder.store) == 19
        assert not holder.receipts
        assert gateway.requests - before < 120, "no request without a pause"
        await run_until(lambda: not holder.store, agent, most_s=900)
        turns = asyncio.get_running_loop()
        assert isinstance(turns, VirtualLoop)
        return turns.turns

    assert run(scenario()) < 30_000, "no task spins"


def test_a_single_lost_answer_costs_a_second() -> None:
    """The bearer is probed soon, not when the next probe was due."""

    async def scenario() -> None:
        platform, holder = FakePlatform(), FakeHolder()
        gateway = FakeGateway(platform, "a")
        agent = deliverer(holder, link(gateway))
        await run_until(lambda: now() > 5, agent)
        faults = ["answer lost"]
        gateway.fault = lambda: faults.pop() if faults else None
        holder.hold(bundle())
        assert await run_until(lambda: not holder.store, agent) < 5 + 4
        assert platform.taken[bundle().message_id] == 2

    run(scenario())


def test_what_the_platform_refuses_is_reported_to_the_originator() -> None:
    async def scenario() -> None:
        platform, holder = FakePlatform(), FakeHolder()
        gateway = FakeGateway(platform, "a")
        own, others = bundle(1), bundle(1, "b")
        for one in (own, others):
            platform.outcomes[one.message_id] = BundleResult("refused", "no such destination")
        holder.hold(own, others, bundle(2))
        agent = deliverer(holder, link(gateway))
        await run_until(lambda: now() > 300, agent)
        assert holder.failed == [(own.message_id, "no such destination")]
        assert set(holder.store) == {others.message_id}, "another's stays, for other ways"
        assert agent.status().refused == {others.message_id: "no such destination"}
        assert platform.reported("refused") == [("a", others.message_id)], "this ends the claim"
        assert sum(gateway.posts) == 3, "and none is tried here again"

    run(scenario())


def test_a_full_disk_is_waited_for() -> None:
    async def scenario() -> None:
        platform, holder = FakePlatform(), FakeHolder()
        holder.disk_problem = DiskFull("there is no space for a commit")
        agent = deliverer(holder, link(FakeGateway(platform, "a")))
        holder.hold(bundle())
        await run_until(lambda: now() > 60, agent)
        assert holder.store
        assert agent.status().last_problem == "there is no space for a commit"
        assert platform.taken[bundle().message_id] < 62, "tried again, with a pause"
        holder.disk_problem = None
        await run_until(lambda: not holder.store, agent)

    run(scenario())
