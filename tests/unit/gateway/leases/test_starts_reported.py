"""Which starts a heartbeat says make progress (Q7)."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, cast

from gateway.leases.owned_shards import OwnedShards
from gateway.shard.home import Home
from gateway.shard.node import Node
from gateway.shard.start_steps import Started, Steps
from schemas.members import MOST_STARTING
from tests.unit.gateway.shard.virtual_time import run

SHARDS = 2 * MOST_STARTING + 10


class Starting:
    """A home whose shards read their state, record by record, until they are let go."""

    def __init__(self) -> None:
        self.steps: Steps
        self.over = asyncio.Event()
        self.shards: dict[int, Any] = {}
        self.on_superseded: Callable[[int, int, int], None]
        self.hold = self
        self.is_warm = lambda shard: False

    def begin(self, now: Callable[[], float]) -> None:
        """Of the hold."""

    async def start_shards(self, epochs: Mapping[int, int], _files: object, _is_owned: object, steps: Steps) -> Started:
        self.steps = steps
        await self.over.wait()
        return Started(list(epochs), {})


def test_of_more_starts_than_a_heartbeat_names_each_is_named_in_turn() -> None:
    """Whoever is not named for seconds is taken for stuck, and its shard is claimed."""

    async def scenario() -> None:
        home = Starting()
        owned = OwnedShards(cast(Node, home), cast(Home, home), cast(Any, None), lambda _: cast(Any, home))
        starts = asyncio.create_task(owned.start_shards(dict.fromkeys(range(SHARDS), 1), lambda *_: True))
        await asyncio.sleep(0)
        for _ in range(3):
            named = list[int]()
            for _ in range(3):
                home.steps.done += 1
                some = owned.starting()
                assert len(some) == MOST_STARTING
                named += some
            assert set(named) == set(range(SHARDS))
        for _ in range(3):
            owned.starting()
        assert owned.starting() == [], "nothing was read since each was named"
        home.over.set()
        await starts

    run(scenario())
