"""A subscriber of redundant feeds on a real broker: gaps, switches, latency beside that of a single feed (S3, S6)."""

import asyncio
import gc
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import Any

from bench.feed_load import LAST, NAME, PARTITIONS, RATE
from bench.figures import Figures, percentile
from edge.feed_subscriber.items import FeedDelivery, FeedItem, Gap, Lost, Recovered, Switched
from edge.feed_subscriber.limits import FeedLimits
from edge.feed_subscriber.subscriber import FeedSubscriber
from jobs.stack.topics import admin_client, create_topics
from schemas.topics import DAY_MS, Topics

REORDER_MS = 25.0
WARM_S = 2.0
"""Of the beginning, which does not count for latencies."""
PATIENCE_S = 60.0


class Adapters:
    """The process of :mod:`bench.feed_load`."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "bench.feed_load", *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.sent = 0
        self.missing: set[int] = set()
        """Numbers that no feed has."""

    def tell(self, command: str) -> None:
        """`die N` or `live N`."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """All that was sent is in the log; the last message on all feeds."""
        answer, _ = self._process.communicate("stop\n", timeout=PATIENCE_S)
        found = json.loads(answer)
        self.sent, self.missing = found["sent"], set(found["missing"])

    def kill(self) -> None:
        """If it was not stopped."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


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
        self._measure("warm")  # the broker compiles its code meanwhile
        for name, feeds in (("feed_single_latency", 1), ("feed_latency", 2)):
            found = self._measure("warm", feeds=feeds)[0].latencies_ms()
            self._figures.latencies(name, found[round(WARM_S * RATE) :])
        self._gaps()
        self._switches()
        self._cold_switches()

    def _gaps(self) -> None:
        """In mode cold the active feed lacks a few numbers now and then, which are in the backup's log only."""
        seen, _ = self._measure("cold", gaps=True)
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

        def steps(adapters: Adapters) -> None:
            for feed in (0, 1):
                time.sleep(self._seconds / 6)
                adapters.tell(f"die {feed}")
                time.sleep(self._seconds / 6)
                adapters.tell(f"live {feed}")
            time.sleep(self._seconds / 6)

        seen, adapters = self._measure("warm", steps=steps)
        numbers = [one.sequence for _, one in seen.deliveries()]
        self._figures.add("feed_switch_missing", len(set(range(adapters.sent)) - adapters.missing - set(numbers)))
        self._figures.add("feed_switch_doubled", len(numbers) - len(set(numbers)))
        times = [at for at, _ in seen.deliveries()]
        silences = [(after - before) * 1e3 for before, after in pairwise(times)]
        self._figures.add("feed_switch_silence_ms", round(max(silences), 1))

    def _cold_switches(self) -> None:
        """In mode cold the active adapter is killed: until messages come that were sent after that."""
        killed: list[float] = []

        def steps(adapters: Adapters) -> None:
            time.sleep(WARM_S)
            killed.append(time.time())
            adapters.tell("die 0")
            time.sleep(WARM_S)

        found, missing = [], 0
        for _ in range(3):
            seen, adapters = self._measure("cold", steps=steps)
            switched = seen.when("backup", "read")
            found.append(next(at for at, _ in seen.deliveries() if at >= switched) - killed[-1])
            numbers = [one.sequence for _, one in seen.deliveries()]
            missing += len(set(range(adapters.sent)) - adapters.missing - set(numbers))
        self._figures.add("feed_cold_switch_ms", round(max(found) * 1e3))
        self._figures.add("feed_cold_switch_missing", missing)

    def _measure(
        self,
        mode: Any,
        *,
        feeds: int = 2,
        gaps: bool = False,
        steps: Callable[[Adapters], None] | None = None,
    ) -> tuple[Seen, Adapters]:
        prefix = f"b{uuid.uuid4().hex[:8]}."
        topics = Topics(prefix)
        declared = topics.declared(1, 1, DAY_MS, (NAME,), PARTITIONS)
        wanted = (topics.feeds, topics.feed(NAME))
        create_topics(admin_client(self._bootstrap, {}), [one for one in declared if one.name in wanted])
        adapters = Adapters(self._bootstrap, prefix, str(feeds), "gaps" if gaps else "none")
        seen = Seen()

        def act() -> None:
            if steps is None:
                time.sleep(self._seconds)
            else:
                steps(adapters)
            adapters.stop()

        async def scenario() -> None:
            limits = FeedLimits(connect_timeout_s=PATIENCE_S)
            async with FeedSubscriber(
                NAME, kafka=self._bootstrap, prefix=prefix, mode=mode, start="beginning", limits=limits
            ) as feed:
                acting = asyncio.create_task(asyncio.to_thread(act))
                async with asyncio.timeout(PATIENCE_S + self._seconds):
                    async for item in feed:
                        seen.items.append((time.time(), item))
                        if isinstance(item, FeedDelivery) and item.payload == LAST:
                            break
                await acting

        gc.collect()
        try:
            asyncio.run(scenario())
        finally:
            adapters.kill()
        lost = [one for _, one in seen.items if isinstance(one, Lost)]
        if sum(one.last - one.first + 1 for one in lost) != len(adapters.missing):
            count = len(adapters.missing)
            raise RuntimeError(f"{count} messages were written by no feed, but these were lost: {lost[:5]}")
        return seen, adapters
