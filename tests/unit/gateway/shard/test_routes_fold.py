"""The fold over `routes`: what a home remembers of its routes after a restart (R6, R7)."""

import asyncio

from gateway.memory_bus import MemoryBroker, MemoryBus
from gateway.shard.routes import ROUTE_LINGER_S, RouteInterest
from tests.unit.gateway.shard.virtual_time import EPOCH, run


def test_the_fold_after_a_restart_is_the_state_before(tmp_path: object) -> None:
    """R6, R7: added once however many use it, dropped when nobody has for a while, added anew with a new time."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        broker = MemoryBroker(lambda: EPOCH + loop.time())
        bus = MemoryBus(broker, loop)

        async def folded() -> RouteInterest:
            again = RouteInterest(bus, "routes", 25_000)
            await bus.read("routes", {0: 0}, again.recover)
            return again

        routes = RouteInterest(bus, "routes", 25_000)
        await asyncio.gather(*(routes.use(0, "a") for _ in range(3)), routes.use(1, "a"), routes.use(0, "b"))
        assert len(broker.partitions["routes", 0]) == 3
        effective = routes.effective_ms(0, "a")
        assert effective == int(EPOCH * 1000) + 25_000
        for _ in range(3):
            routes.leave(0, "a", 100.0)
        routes.drop_unused(100.0 + ROUTE_LINGER_S)
        await routes.use(0, "a")
        routes.leave(0, "a", 200.0)
        routes.drop_unused(200.0 + ROUTE_LINGER_S)
        assert (await folded()).effective_ms(0, "a") == effective
        routes.drop_unused(200.1 + ROUTE_LINGER_S)
        assert routes.effective_ms(0, "a") is None
        await asyncio.sleep(5)
        after = await folded()
        assert after.effective_ms(0, "a") is None
        assert after.effective_ms(1, "a") == after.effective_ms(0, "b") == effective
        again = await routes.use(0, "a")
        assert again.effective_ms == effective + 5_000
        after = await folded()
        after.recount(1, "a")
        after.begin(0.0)
        after.drop_unused(ROUTE_LINGER_S + 0.1)
        assert [after.effective_ms(*place) is None for place in ((0, "a"), (1, "a"), (0, "b"))] == [True, False, True]

    run(scenario())
