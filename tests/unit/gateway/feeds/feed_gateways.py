"""Gateways' services of feeds over one broker in memory, and the adapters' side of the topic."""

import asyncio
from collections import Counter
from random import Random
from typing import Any

import msgspec

from feeds.registry_records import AdministrativeResult, AnnouncementRecord, Assignment, RegistryKey, decode
from gateway.feeds.follower import FeedFollower
from gateway.feeds.service import FeedService
from gateway.memory_bus import MemoryBroker, MemoryBus
from schemas.events import Event, encode
from schemas.feed_settings import FeedsSettings
from schemas.feed_words import Slot
from schemas.settings import process_settings
from tests.unit.feeds.feed_beats import beat

TOPIC = "feeds"
FEED = "radar"
BEAT_S = 0.2


class FeedGateways:
    """`settings` are of `[feeds]`. Adapters are named as their slots."""

    def __init__(self, **settings: Any) -> None:
        self._loop = asyncio.get_running_loop()
        self.settings: FeedsSettings = msgspec.structs.replace(
            process_settings({}).feeds, **{"names": [FEED], **settings}
        )
        self.broker = MemoryBroker(self._loop.time)
        self.counts: list[Counter[str]] = []
        self._adapters = MemoryBus(self.broker, self._loop)
        self._followers: list[FeedFollower] = []
        self.fatal: list[Exception] = []
        self._seq = 0

    async def gateway(self) -> tuple[FeedService, MemoryBus]:
        bus, counts, number = MemoryBus(self.broker, self._loop), Counter[str](), len(self._followers)
        bus.start(lambda records: None)
        now = self._loop.time
        follower = FeedFollower(bus, TOPIC, self.settings, f"g{number}", now, now, counts, Random(number))
        await follower.start()
        self._followers.append(follower)
        self.counts.append(counts)
        return FeedService(follower, self.settings, "ws.", now, now), bus

    def beat(self, *slots: Slot, **fields: Any) -> None:
        """Of the adapters of these slots, each on a machine of its own."""
        self._seq += 1
        for slot in slots:
            record = beat(slot, 1, self._seq, **{"machine": f"m-{slot}", **fields})
            self.write(RegistryKey("adapter", FEED, slot), record)

    async def beats(self, seconds: float, *slots: Slot, **fields: Any) -> None:
        """Beats for so long, and time for others to see them."""
        until = self._loop.time() + seconds
        while self._loop.time() < until:
            self.beat(*slots, **fields)
            await asyncio.sleep(BEAT_S)

    def write(self, key: RegistryKey, record: Event | None) -> None:
        self.put(key.encode(), None if record is None else encode(record))

    def put(self, key: bytes, value: bytes | None) -> None:
        """Any record at all."""
        self._adapters.produce(TOPIC, 0, key, value, None, lambda *_: None)

    def result(self, name: str, outcome: Any) -> None:
        self.write(RegistryKey("result", FEED, name), AdministrativeResult(outcome=outcome, after=7, part=1))

    def announcement(self, name: str) -> None:
        """An adapter announces the message: it is sent after number 7."""
        record = AnnouncementRecord(stream="radar@1", after=7, part=1, payload=b"", adapter="active", boot=1)
        self.write(RegistryKey("announcement", FEED, name), record)

    def assignments(self) -> list[Assignment]:
        """All on the topic, in their order."""
        found = [decode(one.key(), one.value())[1] for one in self.broker.partitions[TOPIC, 0] if one.value()]
        return [one for one in found if isinstance(one, Assignment)]

    def keys(self) -> list[bytes]:
        """Of the records that compaction would keep, ordered."""
        last = {one.key() or b"": one.value() for one in self.broker.partitions[TOPIC, 0]}
        return sorted(key for key, value in last.items() if value is not None)

    def stop(self) -> None:
        for follower in self._followers:
            follower.stop()
