"""A shard that another gateway takes just when its home begins: the start ends, for it and for those beside it (G6)."""

import asyncio
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from gateway.errors import ShardLost
from gateway.shard.recovery import Recovery
from gateway.shard.shard_home import ShardHome
from schemas.identity import shard_of
from tests.unit.gateway.leases.site import Site
from tests.unit.gateway.leases.test_fences_without_claims import serving, write_fence
from tests.unit.gateway.shard.fenced_gateways import FencedGateways
from tests.unit.gateway.shard.home_harness import SHARDS, turn
from tests.unit.gateway.shard.two_gateways import opened
from tests.unit.gateway.shard.virtual_time import run

SHARD = 0


class LostAtTheEnd:
    """The last step of the recovery is done, and the home has not begun, when a higher fence is read; once."""

    def __init__(self, site: Site | FencedGateways) -> None:
        self.site = site
        self.resume, self.is_done = Recovery._resume_catch_up, False

    def entered(self) -> Any:
        async def resumes(recovery: Recovery, home: ShardHome, ends: Any) -> None:
            await self.resume(recovery, home, ends)
            if home.number == SHARD and not self.is_done:
                self.is_done = True
                write_fence(self.site, SHARD, home.spool.epoch + 1)
                await turn(0.02)
                assert home.promises.is_lost

        return patch.object(Recovery, "_resume_catch_up", resumes)


@pytest.mark.parametrize("gateways", [1, 3])
def test_a_shard_is_served_though_a_fence_of_nobody_is_read_as_it_begins(tmp_path: Path, gateways: int) -> None:
    """Q7: nobody else would claim it: its owner lives, and would have said that it serves."""

    async def scenario() -> None:
        site = Site(tmp_path)
        lost = LostAtTheEnd(site)
        with lost.entered():
            await site.start(gateways)
            await turn(60)
        assert lost.is_done
        assert len(serving(site, SHARD)) == 1

    run(scenario())


def test_a_start_ends_though_one_of_its_shards_is_lost_as_it_begins(tmp_path: Path) -> None:
    """That one has something to report that is finished, and must not wait for what is stored no more."""

    async def scenario() -> None:
        site = await FencedGateways(tmp_path).start()
        name = next(n for n in map("c{}".format, range(50)) if shard_of(n, SHARDS) == SHARD)
        client = await site.client(name, mute=True)
        await client.subscribe("a/#")
        sender = await site.client("sender")
        await turn(30)
        sender.publish("a/x", b"1", 1)
        await turn(60)  # it is in the spool
        owner, other = site.at(0), site.at(1)

        async def never() -> None:
            await asyncio.get_running_loop().create_future()

        owner.home.shards[SHARD]._checkpointer.relinquish_finished = never  # type: ignore[method-assign]
        client.mute = False
        client.answer_all()
        await turn(20)
        owner.kill()
        with LostAtTheEnd(site).entered():
            files = opened({number: other._spool(number) for number in range(SHARDS)})
            epochs = dict.fromkeys(range(SHARDS), 2)
            start = asyncio.ensure_future(other.home.start_shards(epochs, files, lambda *_: True))
            await asyncio.wait({start}, timeout=300)
        assert start.done()
        started = start.result()
        assert started.serving == [number for number in range(SHARDS) if number != SHARD]
        assert isinstance(started.failed[SHARD], ShardLost)

    run(scenario())


def test_a_shard_that_is_lost_as_its_clients_go_on_is_no_matter_of_others(tmp_path: Path) -> None:
    """R5: they have moved here, and their subscriptions may end just then."""

    class Moved:
        def leaving(self, home: ShardHome, to: str) -> None:
            return None

        async def arrive(self, home: ShardHome) -> None: ...

        async def go_on(self, home: ShardHome) -> None:
            if home.number == SHARD:
                raise ShardLost(SHARD)

    async def scenario() -> None:
        site = await FencedGateways(tmp_path).start()
        site.at(0).kill()
        other = site.at(1)
        other.home.moved_clients = Moved()  # type: ignore[assignment]
        files = opened({number: other._spool(number) for number in range(SHARDS)})
        started = await other.home.start_shards(dict.fromkeys(range(SHARDS), 2), files, lambda *_: True)
        assert started.serving == [number for number in range(SHARDS) if number != SHARD]
        assert list(started.failed) == [SHARD]

    run(scenario())
