"""A shard that is given up (Q9): what waits for its last checkpoint, and for a file that cannot be read."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from gateway.errors import ShardLost, SpoolError
from gateway.record import Record
from gateway.shard.spool import Spool
from schemas.identity import shard_of
from tests.unit.gateway.shard.fenced_gateways import FencedGateways
from tests.unit.gateway.shard.home_harness import PARTITIONS, SHARDS, turn
from tests.unit.gateway.shard.virtual_time import run

OTHER = next(name for name in map("c{}".format, range(50)) if shard_of(name, SHARDS) == 1)
NAME = next(name for name in map("c{}".format, range(50)) if shard_of(name, SHARDS) == 0)


def test_no_checkpoint_follows_the_last_one(tmp_path: Path) -> None:
    """Whoever asks for one meanwhile is not told that it was made."""

    async def scenario() -> None:
        site = await FencedGateways(tmp_path).start()
        gateway = site.at(0)
        home = gateway.home.shards[0]
        await turn(1)
        client = await site.client(NAME)
        client.publish("a/x", b"1", 1)
        await turn(0.1)
        gateway.bus.held_acks = {site.topics.spool}
        frozen = asyncio.ensure_future(home.freeze())
        await turn(0.05)
        assert not frozen.done(), "Kafka takes its time for the last commit"
        covering = asyncio.ensure_future(home._checkpointer.cover())
        await turn(0.05)
        gateway.bus.held_acks = set()
        gateway.bus.release()
        with pytest.raises(ShardLost):
            await covering
        await frozen

    run(scenario())


def test_a_shard_is_given_up_though_its_file_cannot_be_read(tmp_path: Path) -> None:
    async def scenario() -> None:
        site = await FencedGateways(tmp_path).start()
        gateway = site.at(0)
        client = await site.client(NAME)
        await client.subscribe("a/#")
        sender = await site.client("sender")
        await turn(30)
        client.disconnect()
        for number in range(5):
            sender.publish("a/x", b"%d" % number, 1)
        await turn(60)  # they are in the spool

        def fails(*_: Any) -> Any:
            raise SpoolError("disk I/O error")

        with patch.object(Spool, "load", fails):
            await client.connect()
            await turn(0.05)
            moving = asyncio.ensure_future(gateway.home.hand_over(0))
            await asyncio.wait({moving}, timeout=0.5)
            assert moving.done()
        moving.result()

    run(scenario())


def test_the_next_home_reads_nothing_again_that_clients_of_other_gateways_have_published(tmp_path: Path) -> None:
    """R5: its clients would wait for all that the site has published for seconds."""

    async def scenario() -> None:
        site = await FencedGateways(tmp_path).start()
        former, other = site.at(0), site.at(1)
        await former.home.hand_over(1)
        await other.own(1, 2)
        sender = await site.client(OTHER)
        await turn(60)
        for number in range(50):
            sender.publish("a/x", b"%d" % number, 1)
        await turn(0.1)
        before = {p: len(site.broker.partitions[site.topics.ingress, p]) for p in range(PARTITIONS)}
        await former.home.hand_over(0)
        started: list[dict[int, int]] = []
        read = other.bus.read

        async def reading(topic: str, start: dict[int, int], on_record: Callable[[Record], None]) -> dict[int, int]:
            if topic == site.topics.ingress:
                started.append(start)
            return await read(topic, start, on_record)

        with patch.object(other.bus, "read", reading):
            await other.own(0, 2)
        assert started == [before]

    run(scenario())
