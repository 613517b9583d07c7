"""The stand-in for the routers decides as the reference router does while it does not know the routes (R2, R3)."""

import asyncio

from hypothesis import given
from hypothesis.strategies import integers, one_of, text

from gateway.memory_bus import MemoryBroker, MemoryRecord
from harness.everyone_router import instructions
from schemas.envelope import INGRESS_HEADERS, Instruction
from schemas.topics import Topics
from tests.unit.gateway.shard.reference_router import ReferenceRouter

TOPICS = Topics("t.")


@given(one_of(text(), text().map("@{}".format)), integers(1, 16))
def test_it_decides_as_a_router_that_does_not_know_the_routes(destination: str, shards: int) -> None:
    async def reference() -> tuple[str, list[int]]:
        router = ReferenceRouter("active", MemoryBroker(lambda: 0.0), TOPICS, shards, 1, 0)
        router.stale = True
        headers = [(name, b"") for name in INGRESS_HEADERS]
        return router.decide(MemoryRecord((TOPICS.ingress, 0), destination.encode(), b"", headers))

    scope, wanted = asyncio.run(reference())
    found = [(shard, Instruction.decode(raw)) for shard, raw in instructions(destination, 1, 7, 1_000, shards)]
    assert [shard for shard, _ in found] == wanted
    assert [of.number for _, of in found] == list(range(len(wanted)))
    assert [of.limit for _, of in found] == [None] * (len(wanted) - 1) + [len(wanted)]
    assert {(of.partition, of.offset, of.appended, of.scope) for _, of in found} == {(1, 7, 1_000, scope)}
