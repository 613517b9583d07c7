"""The fold over `routes`: what a home remembers of its routes after a restart (R6, R7)."""

import asyncio

from gateway.memory_bus import MemoryBroker, MemoryBus
from gateway.record import Record
from gateway.shard.routes import ROUTE_LINGER_S, ShardRoutes
from schemas.events import RouteEvent, decode
from tests.unit.gateway.shard.virtual_time import EPOCH, run


def test_the_fold_after_a_restart_is_the_state_before(tmp_path: object) -> None:
    """R6, R7: added once however many use it, dropped when nobody has for a while, added anew with a new time."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        broker = MemoryBroker(lambda: EPOCH + loop.time())
        bus = MemoryBus(broker, loop)

        def both() -> list[ShardRoutes]:
            return [ShardRoutes(bus, "routes", shard, 25_000) for shard in (0, 1)]

        async def folded() -> list[ShardRoutes]:
            again = both()

            def fold(record: Record) -> None:
                event = decode(RouteEvent, record.value() or b"")
                again[event.shard].recover(event, record.timestamp()[1])

            await bus.read("routes", {0: 0}, fold)
            return again

        routes, other = both()
        await asyncio.gather(*(routes.use("a") for _ in range(3)), other.use("a"), routes.use("b"))
        assert len(broker.partitions["routes", 0]) == 3
        effective = routes.effective_ms("a")
        assert effective == int(EPOCH * 1000) + 25_000
        for _ in range(3):
            routes.leave("a", 100.0)
        routes.drop_unused(100.0 + ROUTE_LINGER_S)
        await routes.use("a")
        routes.leave("a", 200.0)
        routes.drop_unused(200.0 + ROUTE_LINGER_S)
        assert (await folded())[0].effective_ms("a") == effective
        routes.drop_unused(200.1 + ROUTE_LINGER_S)
        assert routes.effective_ms("a") is None
        await asyncio.sleep(5)
        after = await folded()
        assert after[0].effective_ms("a") is None
        assert after[1].effective_ms("a") == after[0].effective_ms("b") == effective
        again = await routes.use("a")
        assert again.effective_ms == effective + 5_000
        after = await folded()
        after[1].recount("a")
        for shard in after:
            shard.begin(0.0)
            shard.drop_unused(ROUTE_LINGER_S + 0.1)
        found = [after[0].effective_ms("a"), after[1].effective_ms("a"), after[0].effective_ms("b")]
        assert [effective_ms is None for effective_ms in found] == [True, False, True]

    run(scenario())
