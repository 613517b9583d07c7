"""The fold over `routes`: what a home remembers of its routes after a restart (R6, R7)."""

import asyncio

from gateway.memory_bus import MemoryBroker, MemoryBus
from gateway.record import Record
from gateway.shard.known_routes import KnownRoutes
from gateway.shard.routes import ROUTE_LINGER_S, ShardRoutes
from schemas.events import RouteEvent, encode
from tests.unit.gateway.shard.virtual_time import EPOCH, run


def refuse(record: Record, reason: str) -> None:
    raise AssertionError(reason)


def test_the_fold_after_a_restart_is_the_state_before(tmp_path: object) -> None:
    """R6, R7: added once however many use it, dropped when nobody has for a while, added anew with a new time."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        broker = MemoryBroker(lambda: EPOCH + loop.time())
        bus = MemoryBus(broker, loop)

        def both() -> list[ShardRoutes]:
            return [ShardRoutes(bus, "routes", shard, 25_000) for shard in (0, 1)]

        async def folded() -> list[ShardRoutes]:
            again, fresh = both(), KnownRoutes(bus, "routes", 2, 25_000, refuse)
            read = await asyncio.gather(fresh.read_on(), known.read_on())
            for shard, routes in enumerate(again):
                assert fresh.of(shard) == known.of(shard), f"read on: {read}"
                routes.recover(fresh.of(shard), fresh.dropped(shard))
            return again

        known = KnownRoutes(bus, "routes", 2, 25_000, refuse)
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


def test_records_that_are_no_routes_are_passed_over() -> None:
    """A start goes on without what others have written there; routes of shards that there are not take no memory."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        broker = MemoryBroker(lambda: EPOCH + loop.time())
        bus, refused = MemoryBus(broker, loop), list[str]()
        known = KnownRoutes(bus, "routes", 2, 25_000, lambda record, reason: refused.append(reason))

        async def send(*values: bytes | None) -> int:
            for value in values:
                bus.produce("routes", 0, b"k", value, None, lambda *_: None)
            await asyncio.sleep(1)
            return await known.read_on()

        events = [RouteEvent(op="add", shard=shard, route_key="a") for shard in (1, 2, -1)]
        assert await send(b"no event", None, *map(encode, events), encode(RouteEvent(op="tick"))) == 6
        assert len(refused) == 1
        assert [dict(known.of(shard)).keys() for shard in (-1, 0, 1, 2)] == [set(), set(), {"a"}, set()]
        assert await send() == 0
        assert await send(encode(RouteEvent(op="drop", shard=1, route_key="a"))) == 1
        assert not known.of(1)
        broker.partitions["routes", 0].clear()
        assert await send(encode(RouteEvent(op="add", shard=0, route_key="b"))) == 1
        assert known.of(0).keys() == {"b"}, "the topic was made anew"

    run(scenario())
