"""How the deliverer shapes its requests, and what it does about objections (M6, M12)."""

from edge.uplink.errors import GatewayProblem
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

PRESENCE_OUT = GatewayProblem(503, "kafka_error", "message presence is out of reach")


def test_an_unknown_signer_is_looked_up() -> None:
    async def scenario() -> None:
        platform, holder = FakePlatform(), FakeHolder()
        agent = deliverer(holder, link(FakeGateway(platform, "a")))
        await run_until(lambda: now() > 60, agent)
        holder.strangers = {"gateway"}
        holder.hold(bundle())
        await run_until(lambda: not holder.store, agent)
        assert holder.meshes == 2
        assert platform.taken[bundle().message_id] == 1

    run(scenario())


def test_a_bundle_that_is_too_large_alone_is_refused_and_holds_up_nobody() -> None:
    """M7, R11: no smaller request has it, so it would be tried until its lifetime is over."""

    async def scenario() -> None:
        platform, holder = FakePlatform(), FakeHolder()
        gateway = FakeGateway(platform, "a")
        large = bundle(3, size=5_000)
        gateway.most_bytes = 4_000
        holder.hold(bundle(1), bundle(2), large, bundle(4))
        await run_until(lambda: not holder.store, deliverer(holder, link(gateway)), most_s=60)
        assert platform.order == [("a", number) for number in (1, 2, 4)]
        ((message_id, reason),) = holder.failed
        assert message_id == large.message_id
        assert "too large" in reason

    run(scenario())


def test_requests_become_smaller_when_a_gateway_objects() -> None:
    async def scenario() -> None:
        platform, holder = FakePlatform(), FakeHolder()
        gateway = FakeGateway(platform, "a")
        gateway.most = 40
        holder.hold(*(bundle(number) for number in range(1, 101)))
        await run_until(lambda: not holder.store, deliverer(holder, link(gateway)))
        assert max(gateway.posts) <= 40
        assert platform.order == [("a", number) for number in range(1, 101)]

    run(scenario())
