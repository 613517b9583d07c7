"""A subscriber of redundant feeds on a real broker: gaps, switches, and latency beside that of a single feed (S3, S6)."""

import asyncio
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from confluent_kafka import Producer

from bench.figures import Figures, percentile
from edge.feed_subscriber.items import FeedDelivery, FeedItem, Gap, Lost, Recovered, Switched
from edge.feed_subscriber.limits import FeedLimits
from edge.feed_subscriber.subscriber import FeedSubscriber
from feeds.message import Feed, FeedMessage, encode, partition_of, stream_id, topic_of
from feeds.pairing import FeedSource, SourceFormat
from feeds.registry_records import SLOTS, AdapterBeat, RegistryKey
from jobs.stack.topics import admin_client, create_topics
from schemas.events import encode as encode_event
from schemas.topics import DAY_MS, Topics

NAME, PARTITIONS = "bench", 2
STREAM = stream_id("bench", 0)
RATE = 1_000
PAYLOAD = bytes(256)
BEAT_S = 0.2
REORDER_MS = 25.0
GAP = 5
GAP_EVERY = 250
"""Messages from the beginning of a gap to that of the next one."""
PATIENCE_S = 60.0
SOURCE = FeedSource(format=SourceFormat.MODE_S, name="bench", sequencer="bench")


class Feeds:
    """Two adapters of a source with `RATE` messages a second; `read_us` is when a message was sent. `skips` says which
    numbers a feed lacks. An adapter that is not alive is silent, and has nothing of what was sent meanwhile."""

    def __init__(
        self, bootstrap: str, prefix: str, feeds: tuple[Feed, ...], skips: Callable[[Feed, int], bool]
    ) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all", "log_level": 2})
        self._topic, self._registry = topic_of(prefix, NAME), Topics(prefix).feeds
        self._feeds, self._skips = feeds, skips
        self.alive = {feed: True for feed in feeds}
        self.missing: set[int] = set()
        """Numbers that no feed has written."""
        self.sent = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self.stop()

    def stop(self) -> None:
        """All that was sent is in the log; the last message on all feeds."""
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join()
            self._write(force=True)
            self._producer.flush(PATIENCE_S)

    def _run(self) -> None:
        began, beats = time.perf_counter(), 0
        while not self._stop.is_set():
            if time.perf_counter() - began >= beats * BEAT_S:
                beats += 1
                for feed in self._feeds:
                    if self.alive[feed]:
                        self._beat(feed, beats)
            self._write()
            pause = began + self.sent / RATE - time.perf_counter()
            if pause > 0:
                time.sleep(pause)

    def _write(self, *, force: bool = False) -> None:
        number, has_copy = self.sent, False
        for feed in self._feeds:
            if force or (self.alive[feed] and not self._skips(feed, number)):
                message = FeedMessage(STREAM, number, 0, number, time.time_ns() // 1000, f"a{int(feed)}", PAYLOAD)
                key, headers, value = encode(message)
                partition = partition_of(feed, STREAM, PARTITIONS)
                self._producer.produce(self._topic, value, key, partition, headers=headers)  # type: ignore[arg-type]
                has_copy = True
        self._producer.poll(0)
        if not has_copy:
            self.missing.add(number)
        self.sent += 1

    def _beat(self, feed: Feed, number: int) -> None:
        beat = AdapterBeat(
            boot=1, seq=number, slot=SLOTS[feed], state="up", at_us=0, machine=f"m{int(feed)}", source=SOURCE
        )
        key = RegistryKey("adapter", NAME, f"a{int(feed)}").encode()
        self._producer.produce(self._registry, encode_event(beat), key)


class Seen:
    """The items of a run, each with when it came (seconds of `time.time`)."""

    def __init__(self) -> None:
        self.items: list[tuple[float, FeedItem]] = []

    def deliveries(self) -> list[tuple[float, FeedDelivery]]:
        return [(at, one) for at, one in self.items if isinstance(one, FeedDelivery)]

    def latencies_ms(self) -> list[float]:
        return [at * 1e3 - one.read_us / 1e3 for at, one in self.deliveries()]

    def when(self, slot: str, what: str) -> float:
        """When the slot was first reported so."""
        return next(at for at, one in self.items if isinstance(one, Switched) and (one.slot, one.what) == (slot, what))


class SubscriberBench:
    """Each measurement has topics of its own on the broker at `bootstrap`, and takes `seconds`."""

    def __init__(self, bootstrap: str, figures: Figures, seconds: float) -> None:
        self._bootstrap, self._figures, self._seconds = bootstrap, figures, seconds

    def run(self) -> None:
        """Records `feed_latency_…`, `feed_single_latency_…`, `feed_gap_…`, `feed_switch_…`, `feed_cold_switch_ms`."""
        for name, feeds in (("feed_single_latency", (Feed.ACTIVE,)), ("feed_latency", (Feed.ACTIVE, Feed.BACKUP))):
            found = self._measure("warm", feeds, lambda feed, number: False)[0].latencies_ms()
            self._figures.latencies(name, found[RATE // 2 :])
        self._gaps()
        self._switches()
        self._cold_switches()

    def _gaps(self) -> None:
        """In mode cold the active feed lacks a few numbers now and then, which are in the backup's log only."""

        def skips(feed: Feed, number: int) -> bool:
            return feed is Feed.ACTIVE and number >= RATE and number % GAP_EVERY < GAP

        seen, _ = self._measure("cold", (Feed.ACTIVE, Feed.BACKUP), skips)
        declared: list[float] = []
        recovered: list[float] = []
        shown = {one.sequence: one.read_us / 1e3 for _, one in seen.deliveries()}
        gaps = {one.first: (at * 1e3, one) for at, one in seen.items if isinstance(one, Gap)}
        last = {one.sequence: at * 1e3 for at, one in seen.items if isinstance(one, Recovered)}
        for at_ms, gap in gaps.values():
            if gap.last in last and gap.last + 1 in shown:
                declared.append(at_ms - shown[gap.last + 1] - REORDER_MS)
                recovered.append(last[gap.last] - at_ms)
        if not recovered:
            raise RuntimeError("no gap was recovered")
        self._figures.add("feed_gap_declared_ms", round(median(declared), 1))
        self._figures.add("feed_gap_declared_max_ms", round(max(declared), 1))
        self._figures.add("feed_gap_recovered_ms", round(median(recovered), 1))
        self._figures.add("feed_gap_recovered_p99_ms", round(percentile(sorted(recovered), 0.99), 1))

    def _switches(self) -> None:
        """In mode warm each adapter is killed in turn, and comes back."""

        def steps(feeds: Feeds) -> None:
            for feed in Feed:
                time.sleep(self._seconds / 6)
                feeds.alive[feed] = False
                time.sleep(self._seconds / 6)
                feeds.alive[feed] = True
            time.sleep(self._seconds / 6)

        seen, feeds = self._measure("warm", (Feed.ACTIVE, Feed.BACKUP), lambda feed, number: False, steps)
        numbers = [one.sequence for _, one in seen.deliveries()]
        self._figures.add("feed_switch_missing", len(set(range(feeds.sent)) - feeds.missing - set(numbers)))
        self._figures.add("feed_switch_doubled", len(numbers) - len(set(numbers)))
        times = [at for at, _ in seen.deliveries()]
        silences = [(after - before) * 1e3 for before, after in zip(times, times[1:], strict=False)]
        self._figures.add("feed_switch_silence_ms", round(max(silences), 1))

    def _cold_switches(self) -> None:
        """In mode cold the active adapter is killed: until messages come that were sent after that."""
        killed: list[float] = []

        def steps(feeds: Feeds) -> None:
            time.sleep(2.0)
            killed.append(time.time())
            feeds.alive[Feed.ACTIVE] = False
            time.sleep(2.0)

        found, missing = [], 0
        for _ in range(3):
            seen, feeds = self._measure("cold", (Feed.ACTIVE, Feed.BACKUP), lambda feed, number: False, steps)
            after_us = killed[-1] * 1e6
            found.append(min(at for at, one in seen.deliveries() if one.read_us > after_us + 2_000) - killed[-1])
            numbers = [one.sequence for _, one in seen.deliveries()]
            missing += abs(len(numbers) - len(feeds.missing ^ set(range(feeds.sent))))
        self._figures.add("feed_cold_switch_ms", round(max(found) * 1e3))
        self._figures.add("feed_cold_switch_missing", missing)

    def _measure(
        self,
        mode: Any,
        feeds: tuple[Feed, ...],
        skips: Callable[[Feed, int], bool],
        steps: Callable[[Feeds], None] | None = None,
    ) -> tuple[Seen, Feeds]:
        prefix = f"b{uuid.uuid4().hex[:8]}."
        topics = Topics(prefix)
        declared = topics.declared(1, 1, DAY_MS, (NAME,), PARTITIONS)
        wanted = (topics.feeds, topics.feed(NAME))
        create_topics(admin_client(self._bootstrap, {}), [one for one in declared if one.name in wanted])
        load = Feeds(self._bootstrap, prefix, feeds, skips)
        seen = Seen()

        def act() -> None:
            if steps is None:
                time.sleep(self._seconds)
            else:
                steps(load)
            load.stop()

        async def scenario() -> None:
            limits = FeedLimits(connect_timeout_s=PATIENCE_S)
            async with FeedSubscriber(
                NAME, kafka=self._bootstrap, prefix=prefix, mode=mode, start="beginning", limits=limits
            ) as feed:
                with load.running():
                    acting = asyncio.create_task(asyncio.to_thread(act))
                    async with asyncio.timeout(PATIENCE_S + self._seconds):
                        async for item in feed:
                            seen.items.append((time.time(), item))
                            if acting.done() and isinstance(item, FeedDelivery) and item.sequence == load.sent - 1:
                                break
                    await acting

        asyncio.run(scenario())
        lost = [one for _, one in seen.items if isinstance(one, Lost)]
        if sum(one.last - one.first + 1 for one in lost) != len(load.missing):
            raise RuntimeError(f"{len(load.missing)} messages were written by no feed, but these were lost: {lost[:5]}")
        return seen, load
