"""A dispatcher that starts while Kafka is away waits for it, and then knows all (R1)."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from gateway.dispatch import following
from gateway.dispatch.choice import Choice
from gateway.errors import BusError
from gateway.memory_bus import MemoryBroker, MemoryBus, MemoryRecord
from gateway.record import Record
from schemas.events import encode
from schemas.identity import shard_of
from schemas.leases import Claim, Claimant, LeaseKey, encode_lease
from schemas.settings import load_settings
from schemas.topics import Topics
from tests.unit.gateway.members.heartbeat_records import heartbeat
from tests.unit.gateway.shard.virtual_time import EPOCH, run

ENVIRONMENT: Final = {"WAYSTATION_GATEWAY__CLUSTER__ENABLED": "true"}
SETTINGS: Final = load_settings([Path("conf/base.toml")], ENVIRONMENT)
TOPICS: Final = Topics(SETTINGS.kafka.prefix)
CLIENT: Final = "alice"
SHARD: Final = shard_of(CLIENT, SETTINGS.kafka.shards)


class AwayBus(MemoryBus):
    """Kafka does not answer for the first `away` reads, and each of these brings a part of the records."""

    away = 0

    async def read(self, topic: str, start: dict[int, int], on_record: Callable[[Record], None]) -> dict[int, int]:
        ends = await super().read(topic, start, on_record)
        if self.away:
            self.away -= 1
            raise BusError("Kafka does not answer")
        return ends


@pytest.mark.parametrize("away", [0, 1, 2, 7])
def test_it_reads_both_topics_however_long_kafka_is_away(away: int) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        broker = MemoryBroker(lambda: EPOCH + loop.time())
        bus = AwayBus(broker, loop)
        bus.away = away

        def claims(epoch: int, name: str) -> None:
            key = LeaseKey("c", SHARD, epoch, Claimant(name, 1)).encode()
            broker.append(MemoryRecord((TOPICS.leases, 0), key, encode_lease(Claim()), None))

        def beats(name: str, seq: int) -> None:
            broker.append(MemoryRecord((TOPICS.members, 0), name.encode(), encode(heartbeat(name, seq=seq)), None))

        beats("a", 1)
        claims(1, "a")
        choice = await following.follow(SETTINGS, bus, Counter())
        assert first(choice) == "a"
        claims(2, "b")
        beats("b", 1)
        await asyncio.sleep(0.1)
        assert first(choice) == "b", "what comes later follows"
        assert set(choice.order(None, lambda name: False)) == {"a", "b"}
        assert len(bus._followers) == 2, "one of each topic, also after attempts that failed"

    run(scenario())


def first(choice: Choice) -> str:
    return next(iter(choice.order(CLIENT, lambda name: False)))
