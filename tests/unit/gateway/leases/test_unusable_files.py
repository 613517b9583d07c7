"""A shard whose file cannot be used keeps no other shard from its start (Q7)."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from gateway.errors import SpoolError
from gateway.memory_bus import MemoryBus
from gateway.shard.recovery import Recovery
from gateway.shard.session_recovery import SessionRecovery
from gateway.shard.shard_home import ShardHome
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


def test_a_standby_opens_its_file_once_that_can_be_opened(tmp_path: Path) -> None:
    """Q9: else it would be warm no more, and get the shard neither by balancing nor by an operator."""

    async def scenario() -> None:
        site = await Site(tmp_path).start(1)
        opens, refused = ClusterGateway._open, list[int]()

        async def open_file(gateway: ClusterGateway, number: int) -> SpoolThread:
            if gateway.name == "gateway-1" and not refused:
                refused.append(number)
                raise SpoolError("too many open files")
            return await opens(gateway, number)

        with patch.object(ClusterGateway, "_open", open_file):
            other = await site.join("gateway-1")
            await turn(60)
        [number] = refused
        assert number in other.home.shards or number in other.shards.standbys.followed()
        assert other.home.shards, "shards are balanced"

    run(scenario())


def test_a_start_of_which_all_shards_have_failed_reads_nothing_more(tmp_path: Path) -> None:
    """While it read, it would make progress by its heartbeats, and others would leave the shard to it (Q7)."""

    async def scenario() -> None:
        site = await Site(tmp_path).start(1)
        sender = await site.client("sender")
        for number in range(30):
            sender.publish("a/x", b"%d" % number, 1)
        await turn(40)  # all shards are behind all of it
        [gateway] = site.members
        begin, read, starts = SessionRecovery.begin, MemoryBus.read, list[dict[int, int]]()

        async def begins(recovery: SessionRecovery, home: ShardHome, *rest: Any) -> None:
            if home.number == 0 and home.spool.epoch > 1:
                raise SpoolError("disk I/O error")
            await begin(recovery, home, *rest)

        async def reads(bus: MemoryBus, topic: str, start: dict[int, int], take: Any) -> dict[int, int]:
            if topic == site.topics.ingress:
                starts.append(dict(start))
            return await read(bus, topic, start, take)

        with patch.object(SessionRecovery, "begin", begins), patch.object(MemoryBus, "read", reads):
            gateway.control.superseded(0, gateway.control.owned(0), 5)
            await turn(3)
        assert 0 not in gateway.home.shards, "its start has failed"
        assert starts == []

    run(scenario())
