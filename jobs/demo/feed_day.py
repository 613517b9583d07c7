"""The replay of the feeds' demo: both ways bring their lines, adapters are killed and started again, and a subscriber
reads the feed, stops in the middle, and goes on with its stored continuity (S2, S3)."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from edge.feed_subscriber.items import FeedDelivery, FeedItem, Gap, Lost, Recovered, Switched
from edge.feed_subscriber.limits import FeedLimits
from edge.feed_subscriber.subscriber import FeedSubscriber
from feeds.message import FEEDS, Feed
from jobs.demo.errors import DemoError
from jobs.demo.feed_account import FeedAccount
from jobs.demo.feed_plan import FeedPlan
from jobs.demo.feed_processes import FEED, TIMEOUT_S, Adapters, FeedFiles

SUBSCRIBER: Final = "demo"
TICK_S: Final = 0.01
"""How often the ways bring what is due."""
LOOK_S: Final = 0.1
READY_S: Final = 60.0
"""How long to wait until both adapters follow their way."""
LEAD_S: Final = 0.5
"""From when all are ready to the first line."""
PATIENCE_S: Final = 30.0
"""How long to wait, at the end, while nothing more comes."""
LATE_S: Final = 2.0
"""How long to wait for second copies once all has come."""

Watch = Callable[[float], None]
"""Told the seconds since the replay began."""


class FeedDay:
    """`is_redundant`: asks the administration whether both adapters follow the source."""

    def __init__(
        self,
        plan: FeedPlan,
        files: FeedFiles,
        adapters: Adapters,
        account: FeedAccount,
        kafka: tuple[str, str],
        is_redundant: Callable[[], Awaitable[bool]],
        watch: Watch,
    ) -> None:
        self._plan, self._files, self._adapters, self._account = plan, files, adapters, account
        self._bootstrap, self._prefix = kafka
        self._is_redundant, self._watch = is_redundant, watch
        self._began = 0.0
        self._changed_at = 0.0
        self.is_away = False
        self.restarts = 0
        """Of the subscriber."""
        self.settled_s = 0.0
        """From the last line to the last message."""

    async def run(self, act: Callable[[str], None]) -> None:
        """Raises DemoError, and the errors of the subscriber."""
        act("the adapters start")
        await self._until_redundant()
        self._began = time.monotonic() + LEAD_S
        act("replaying the flight")
        ways = [self._bring(feed) for feed in FEEDS]
        tasks = [asyncio.create_task(one) for one in (*ways, self._kill(), self._subscribe())]
        subscriber = tasks[-1]
        try:
            while not all(task.done() for task in tasks if task is not subscriber):
                await self._look(tasks)
            act("waiting for the rest")
            ended = self._changed_at = time.monotonic()
            while not self._account.is_complete() and time.monotonic() < self._changed_at + PATIENCE_S:
                await self._look(tasks)
            self.settled_s = time.monotonic() - ended
            until = time.monotonic() + LATE_S
            while time.monotonic() < until:
                await self._look(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def seconds(self) -> float:
        """Since the first line."""
        return time.monotonic() - self._began

    async def _look(self, tasks: Sequence["asyncio.Task[None]"]) -> None:
        await asyncio.sleep(LOOK_S)
        for task in tasks:
            if task.done():
                task.result()
        self._adapters.check()
        self._watch(self.seconds)

    async def _until_redundant(self) -> None:
        until = time.monotonic() + READY_S
        while not await self._is_redundant():
            self._adapters.check()
            if time.monotonic() > until:
                raise DemoError(
                    f"the adapters do not follow the source after {READY_S:.0f} s: read `logs/adapter-*.log` in the "
                    "demo's directory, or run the demo again while the machine is less busy"
                )
            await asyncio.sleep(LOOK_S)

    async def _bring(self, feed: Feed) -> None:
        """Appends to a way what it brings, when it is due."""
        copies, at = self._plan.ways[feed].copies, 0
        way = os.open(self._files.way(feed), os.O_WRONLY | os.O_APPEND)
        try:
            while at < len(copies):
                now_us, first = self.seconds * 1e6, at
                while at < len(copies) and copies[at].at_us <= now_us:
                    at += 1
                rest = b"".join(b"%s\n" % copy.message.payload for copy in copies[first:at])
                while rest:
                    rest = rest[os.write(way, rest) :]
                await asyncio.sleep(TICK_S)
        finally:
            os.close(way)

    async def _kill(self) -> None:
        for outage in self._plan.outages:
            await self._until(outage.at_s)
            await asyncio.to_thread(self._adapters.kill, outage.feed)
            await self._until(outage.until_s)
            self._adapters.start(outage.feed)

    async def _subscribe(self) -> None:
        from_s, until_s = self._plan.away_s
        await self._read(from_s)
        self.is_away = True
        await self._until(until_s)
        self.is_away = False
        self.restarts += 1
        await self._read(float("inf"))

    async def _read(self, until_s: float) -> None:
        async with FeedSubscriber(
            FEED,
            kafka=self._bootstrap,
            prefix=self._prefix,
            name=SUBSCRIBER,
            state=self._files.continuity,
            start={self._plan.stream: 1},
            limits=FeedLimits(adapter_timeout_s=TIMEOUT_S),
        ) as feed:
            async for item in feed:
                self._take(item)
                if self.seconds >= until_s:
                    await feed.commit(item)
                    return

    def _take(self, item: FeedItem) -> None:
        account = self._account
        self._changed_at = time.monotonic()
        match item:
            case FeedDelivery():
                latency_ms = max(0.0, time.time() * 1000 - item.read_us / 1000)
                account.deliver(item.sequence, item.payload, is_late=item.late, latency_ms=latency_ms)
            case Lost():
                account.report_lost(item.first, item.last)
            case Gap():
                account.gaps += 1
            case Recovered():
                account.recovered += 1
            case Switched():
                account.switches[item.what] += 1
            case _:
                pass

    async def _until(self, at_s: float) -> None:
        await asyncio.sleep(max(0.0, at_s - self.seconds))
