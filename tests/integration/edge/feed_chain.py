"""A whole redundant feed as processes: a numbered source on two lossy ways, an adapter on each, and a subscriber."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from feeds.registry_records import SLOTS
from schemas.feed_words import Slot
from tests import draw
from tests.integration.edge.feed_adapter_process import CSV, FEED, TIMEOUT_S, AdapterProcess
from tests.namespaces import Namespace
from tests.waiting import wait_for
from waystation import FeedDelivery, FeedItem, FeedLimits, FeedSubscriber, Lost, MergeSettings, Switched

PATIENCE_S = 90.0
LIMITS = FeedLimits(
    connect_timeout_s=PATIENCE_S, adapter_timeout_s=TIMEOUT_S, merge=MergeSettings(deadline_ms=PATIENCE_S * 1_000)
)


class Pair:
    """One epoch of a source, the file of each way, and the adapters that follow them. Each way loses one message in
    twenty; the first one, and that of :meth:`send_last`, come on both."""

    def __init__(
        self, directory: Path, bootstrap: str, prefix: str, epoch: int, inside: Namespace | None = None
    ) -> None:
        directory.mkdir()
        self.stream = f"src@{epoch}"
        self.count = 0
        self.had: dict[Slot, set[int]] = {slot: set() for slot in SLOTS}
        self._files = {slot: directory / f"{slot}.csv" for slot in SLOTS}
        self._draws = draw.generator(f"losses of {self.stream}")
        self.adapters: dict[Slot, AdapterProcess] = {}
        for slot, file in self._files.items():
            file.touch()
            source = CSV.format(f"file:{file}") + f"\nepoch={epoch}"
            of = inside if slot == "active" else None
            self.adapters[slot] = AdapterProcess(directory, bootstrap, prefix, f"at-{slot}", slot, source, inside=of)

    def start(self) -> None:
        for one in self.adapters.values():
            one.start()

    def send(self, count: int) -> None:
        for _ in range(count):
            self._send(is_on_both=not self.count)

    def send_last(self) -> int:
        """The number of a message that both ways bring."""
        self._send(is_on_both=True)
        return self.count

    def _send(self, *, is_on_both: bool) -> None:
        self.count += 1
        for slot, file in self._files.items():
            if is_on_both or self._draws.random() > 0.05:
                self.had[slot].add(self.count)
                with file.open("a") as growing:
                    growing.write(f"{self.count},{'x' * 20}\n")


class Chain:
    """The items that a subscriber has got so far; `steps` act on the pair meanwhile, on another thread."""

    def __init__(self, bootstrap: str, prefix: str, state: Path) -> None:
        self._options: dict[str, Any] = {"kafka": bootstrap, "prefix": prefix, "state": state, "limits": LIMITS}
        self.items: list[FeedItem] = []

    async def run(self, steps: Callable[[], tuple[str, int]]) -> None:
        """Until `steps` are done, and the message that they return has come."""
        acting = asyncio.create_task(asyncio.to_thread(steps))
        async with FeedSubscriber(FEED, start="beginning", **self._options) as feed:
            taking = asyncio.create_task(self._take(feed))
            stream, number = await acting
            async with asyncio.timeout(PATIENCE_S):
                while not self.has(stream, number):
                    await asyncio.sleep(0.05)
            taking.cancel()
            await asyncio.wait([taking])

    async def _take(self, feed: FeedSubscriber) -> None:
        async for item in feed:
            self.items.append(item)

    def has(self, stream: str, number: int) -> bool:
        found = (one for one in reversed(self.items) if isinstance(one, FeedDelivery))
        return any((one.stream, one.sequence) == (stream, number) for one in found)

    def until_switched(self, slot: Slot, what: str, act: Callable[[], object]) -> None:
        """Does something, and waits until the slot is reported as `what` after it."""
        before = len(self.items)
        act()
        wait_for(
            lambda: any(isinstance(o, Switched) and (o.slot, o.what) == (slot, what) for o in self.items[before:]),
            f"{slot} {what}",
            PATIENCE_S,
        )

    def until_has(self, pair: Pair) -> int:
        """Sends the last message for now, and waits until the subscriber has it."""
        number = pair.send_last()
        wait_for(lambda: self.has(pair.stream, number), f"{pair.stream} {number}", PATIENCE_S)
        return number

    def check(self, pair: Pair) -> None:
        """What either way had came once, in order or marked as late; the rest was reported lost, once, and so was what
        came late."""
        found = [one for one in self.items if isinstance(one, FeedDelivery) and one.stream == pair.stream]
        in_order = [one.sequence for one in found if not one.late]
        late = {one.sequence for one in found if one.late}
        lost = [one for one in self.items if isinstance(one, Lost) and one.stream == pair.stream]
        had = pair.had["active"] | pair.had["backup"]
        assert in_order == sorted(set(in_order))
        assert sorted([*in_order, *late]) == sorted(had)
        assert len(found) == len(had)
        numbers = [number for one in lost for number in range(one.first, one.last + 1)]
        assert numbers == sorted({*range(1, pair.count + 1)} - had | late)
