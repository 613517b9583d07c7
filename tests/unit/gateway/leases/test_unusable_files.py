"""A shard whose file cannot be used keeps no other shard from its start (Q7)."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from unittest.mock import patch

from gateway.errors import SpoolError
from gateway.shard.recovery import Recovery
from gateway.shard.shard_spool import SpoolThread
from tests.unit.gateway.leases.site import ClusterGateway, Site
from tests.unit.gateway.shard.home_harness import SHARDS, turn
from tests.unit.gateway.shard.virtual_time import run


def test_a_file_that_cannot_be_opened_is_no_matter_of_others(tmp_path: Path) -> None:
    """Its shard starts once the file can be opened."""

    async def scenario() -> None:
        opened = ClusterGateway._open
        broken = {0}

        async def open_file(gateway: ClusterGateway, number: int) -> SpoolThread:
            if number in broken:
                raise SpoolError("cannot open the spool: no space left on device")
            return await opened(gateway, number)

        with patch.object(ClusterGateway, "_open", open_file):
            site = await Site(tmp_path).start(1)
            [gateway] = site.members
            assert sorted(gateway.home.shards) == [*range(1, SHARDS)]
            assert gateway.control.phase(1) == "serving"
            epoch = gateway.control.owned(1)
            await turn(12)
            assert gateway.control.owned(1) == epoch
            broken.clear()
            await turn(12)
            assert sorted(gateway.home.shards) == [*range(SHARDS)]
        assert not site.fatal

    run(scenario())


def test_a_file_that_cannot_be_read_is_no_matter_of_others_either(tmp_path: Path) -> None:
    """Nobody knows whose file it was: the shards begin again, each by itself."""

    async def scenario() -> None:
        shards, broken = Recovery.shards, {0}

        async def read(
            recovery: Recovery, fence: Callable[[], Awaitable[None]] | None = None
        ) -> dict[tuple[str, int], int]:
            if broken & recovery._homes.keys():
                raise SpoolError("the spool cannot be read: disk I/O error")
            return await shards(recovery, fence)

        with patch.object(Recovery, "shards", read):
            site = await Site(tmp_path).start(1)
            [gateway] = site.members
            assert sorted(gateway.home.shards) == [*range(1, SHARDS)]
            broken.clear()
            await turn(12)
            assert sorted(gateway.home.shards) == [*range(SHARDS)]
        assert not site.fatal

    run(scenario())
