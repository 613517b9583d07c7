"""The subscriber of redundant feeds on a real broker (S3, S6)."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from feeds.message import Feed, stream_id
from feeds.registry_records import SLOTS
from harness.processes import Broker
from jobs.stack.process import wait_until
from tests import draw
from tests.conftest import LocalBroker
from tests.documents import ROOT
from tests.integration.edge.feed_writer import NAME, STREAM, Load, Slots, create_feed
from waystation import (
    Ended,
    FeedDelivery,
    FeedItem,
    FeedLimits,
    FeedSubscriber,
    FeedUnavailable,
    Gap,
    Lost,
    MergeSettings,
    Recovered,
    StoreForeign,
    Switched,
    SyncFeedSubscriber,
)

A, B = Feed.ACTIVE, Feed.BACKUP
PATIENCE_S = 60.0

pytestmark = draw.over_processes

LIMITS = FeedLimits(connect_timeout_s=PATIENCE_S, begin_ms=100)
PATIENT = FeedLimits(connect_timeout_s=PATIENCE_S, merge=MergeSettings(deadline_ms=60_000))

# Arguments: brokers, prefix, state, output. Writes each item's number to the output, then commits now and then; a line
# `?` says that all before it may be committed, and a line `c` that it is.
SUBSCRIBER = """
import sys
from waystation import FeedDelivery, FeedLimits, Lost, SyncFeedSubscriber

brokers, prefix, state, output = sys.argv[1:]
with (
    open(output, "a") as file,
    SyncFeedSubscriber(
        "radar",
        kafka=brokers,
        prefix=prefix,
        state=state,
        start="beginning",
        auto_commit=False,
        limits=FeedLimits(adapter_timeout_s=5),
    ) as feed,
):
    for count, item in enumerate(feed):
        if isinstance(item, FeedDelivery):
            print(item.sequence, "late" if item.late else "", file=file)
        elif isinstance(item, Lost):
            print(item.first, item.last, "lost", file=file)
        if count % 20 == 19 or (isinstance(item, FeedDelivery) and item.payload == b"last"):
            print("?", file=file, flush=True)
            feed.commit(item)
            print("c", file=file, flush=True)
            print(item.ordinal, flush=True)
            if isinstance(item, FeedDelivery) and item.payload == b"last":
                break
"""


class Place(NamedTuple):
    """A feed's topics on a broker; the writer of its slots, and a subscriber of it."""

    writer: Slots
    bootstrap: str
    prefix: str

    def subscriber(self, **options: Any) -> FeedSubscriber:
        return FeedSubscriber(NAME, **({"kafka": self.bootstrap, "prefix": self.prefix, "limits": PATIENT} | options))

    def blocking(self, **options: Any) -> SyncFeedSubscriber:
        return SyncFeedSubscriber(
            NAME, **({"kafka": self.bootstrap, "prefix": self.prefix, "limits": LIMITS} | options)
        )


@pytest.fixture
def place(broker: LocalBroker, unique_prefix: str) -> Place:
    return made(broker.bootstrap, unique_prefix)


def made(bootstrap: str, prefix: str) -> Place:
    create_feed(bootstrap, prefix)
    return Place(Slots(bootstrap, prefix), bootstrap, prefix)


async def until(feed: AsyncIterator[FeedItem], is_last: Callable[[FeedItem], bool]) -> list[FeedItem]:
    """The items up to and including the last."""
    found: list[FeedItem] = []
    async with asyncio.timeout(PATIENCE_S):
        async for item in feed:
            found.append(item)
            if is_last(item):
                break
    return found


def has_number(number: int, stream: str = STREAM) -> Callable[[FeedItem], bool]:
    return lambda item: isinstance(item, FeedDelivery) and (item.stream, item.sequence) == (stream, number)


def numbers(items: list[FeedItem], stream: str = STREAM) -> list[int]:
    return [one.sequence for one in items if isinstance(one, FeedDelivery) and one.stream == stream]


def lost(items: list[FeedItem]) -> list[int]:
    return [number for one in items if isinstance(one, Lost) for number in range(one.first, one.last + 1)]


def has(items: list[FeedItem], slot: str, what: str) -> bool:
    """Whether the slot was reported so."""
    return any(isinstance(one, Switched) and (one.slot, one.what) == (slot, what) for one in items)


async def collected(
    feed: FeedSubscriber, load: Load, items: list[FeedItem], steps: Callable[[], Any], patience_s: float = PATIENCE_S
) -> None:
    """Takes all items while `steps` does something to the load, until the last message."""

    def run() -> None:
        steps()
        load.stop()

    acting = asyncio.create_task(asyncio.to_thread(run))
    async with asyncio.timeout(patience_s):
        async for item in feed:
            items.append(item)
            if isinstance(item, FeedDelivery) and item.sequence == load.last:
                break
    await acting


def check_all(items: list[FeedItem], load: Load) -> None:
    """What either adapter has written came once, in order; the rest was reported, once."""
    assert numbers(items) == load.either
    assert lost(items) == sorted(load.lost[0] & load.lost[1])


def test_both_copies_become_one_stream(place: Place, tmp_path: Path) -> None:
    """S3: what either has, once, in order; what both lack is reported; what was committed does not come again."""
    writer = place.writer
    writer.write(A, (n for n in range(300) if n % 7))
    writer.write(B, (n for n in range(300) if n % 5))
    for feed in Feed:
        writer.passed(feed, 299)
    writer.flush()

    def up_to_298(feed: SyncFeedSubscriber) -> Iterator[FeedItem]:
        for item in feed:
            yield item
            if has_number(298)(item):
                return

    with place.blocking(state=tmp_path / "s", start="beginning", auto_commit=False) as feed:
        items = list(up_to_298(feed))
        assert numbers(items) == [n for n in range(1, 299) if n % 35]
        assert [(one.first, one.last, one.reason) for one in items if isinstance(one, Lost)] == [
            (n, n, "passed") for n in range(35, 299, 35)
        ]
        feed.commit(next(one for one in items if has_number(150)(one)))
    with place.blocking(state=tmp_path / "s") as feed:
        assert numbers(list(up_to_298(feed))) == [n for n in range(151, 299) if n % 35]
    with pytest.raises(StoreForeign, match="desk-2"):
        place.blocking(state=tmp_path / "s", name="desk-2")


def test_where_it_begins_which_streams_and_a_feed_that_is_not_there(place: Place) -> None:
    """S3: from a number on, of some source streams; at the end; and what cannot be read is said."""
    writer, ships = place.writer, stream_id("ships", 0)
    for feed in Feed:
        writer.write(feed, range(2_000))
        writer.write(feed, range(2_000), ships)
    writer.flush()

    async def scenario() -> None:
        async with place.subscriber(start={STREAM: 1_500}, streams=["radar"]) as feed:
            items = await until(feed, has_number(1_999))
            assert numbers(items) == list(range(1_500, 2_000))
            assert numbers(items, ships) == []
        async with place.subscriber(limits=LIMITS) as feed:
            for one in Feed:
                writer.write(one, range(2_000, 2_010))
            writer.flush()
            assert numbers(await until(feed, has_number(2_009))) == list(range(2_000, 2_010))
            assert feed.counts["duplicate"] <= 10
        with pytest.raises(FeedUnavailable, match=r"nowhere\.feed\.radar has 0 partitions"):
            await place.subscriber(prefix="nowhere.").__aenter__()

    asyncio.run(scenario())


def test_adapters_are_killed_and_frozen_under_load(place: Place) -> None:
    """S3, S6: warm; nothing that one of the adapters has written is missing or doubled. What only an adapter has that
    stands still is lost when that one is declared dead, and comes late when it goes on."""

    def steps() -> None:
        for state, feed in ((load.alive, A), (load.frozen, B), (load.alive, B)):
            for what in ("dead", "alive"):
                before = len(items)
                state[feed] = not state[feed]
                assert wait_until(
                    lambda what=what, feed=feed, at=before: has(items[at:], SLOTS[feed], what), PATIENCE_S
                )

    async def scenario() -> None:
        async with place.subscriber(start="beginning") as feed:
            with load:
                await collected(feed, load, items, steps)

    items: list[FeedItem] = []
    load = Load(place.writer, 500, f"{draw.SEED}")
    asyncio.run(scenario())
    late = {one.sequence for one in items if isinstance(one, FeedDelivery) and one.late}
    in_time = [number for number in numbers(items) if number not in late]
    assert sorted(numbers(items)) == load.either
    assert in_time == sorted(in_time)
    assert lost(items) == sorted(late | load.lost[0] & load.lost[1])
    assert len(late) < len(in_time) / 10, "a burst or two of losses while the other stood still"


def test_a_cold_backup_is_taken_up_and_left_again(place: Place, tmp_path: Path) -> None:
    """S3, S6: one slot is read; its gaps are recovered from the other's log; when it dies the other is read, and when
    it is back, it is read again. Nothing is missing or doubled."""

    def steps() -> None:
        for slot, is_alive in (("backup", False), ("active", True)):
            time.sleep(0.4)  # of load
            load.alive[A] = is_alive
            assert wait_until(lambda slot=slot: has(items, slot, "read"), PATIENCE_S)
        time.sleep(0.4)

    async def scenario() -> None:
        async with place.subscriber(start="beginning", mode="cold", state=tmp_path / "s") as feed:
            with load:
                await collected(feed, load, items, steps)

    items: list[FeedItem] = []
    load = Load(place.writer, 500, f"{draw.SEED} cold")
    asyncio.run(scenario())
    check_all(items, load)
    assert [one.slot for one in items if isinstance(one, Switched) and one.what == "read"] == ["backup", "active"]


def test_a_range_is_recovered_from_the_other_log_and_the_rest_from_a_snapshot(place: Place) -> None:
    """S3: exactly what is missing, wherever it is in the log; a snapshot has what both logs lack."""
    writer = place.writer
    writer.write(B, [*range(3_000), *range(3_010, 8_000)])
    writer.flush()
    writer.write(A, [*range(3_000), *range(3_100, 8_000)])
    writer.flush()
    asked: list[tuple[str, int, int]] = []

    async def snapshot(stream: str, first: int, last: int) -> dict[int, bytes]:
        asked.append((stream, first, last))
        return dict.fromkeys(range(first, min(last + 1, 3_005)), b"from a snapshot")

    async def scenario() -> list[FeedItem]:
        writer.assign("active")
        async with place.subscriber(start="beginning", mode="cold", snapshot=snapshot) as feed:
            return await until(feed, has_number(7_999))

    items = asyncio.run(scenario())
    assert asked == [(STREAM, 3_000, 3_099)]
    assert numbers(items) == [*range(3_005), *range(3_010, 8_000)]
    assert lost(items) == list(range(3_005, 3_010))
    assert [(one.first, one.last) for one in items if isinstance(one, Gap)] == [(3_000, 3_099)]
    assert {one.sequence for one in items if isinstance(one, Recovered)} == set(numbers(items)) & set(
        range(3_000, 3_100)
    )


def test_both_die_and_return_with_a_new_epoch(place: Place) -> None:
    """S3: what is missing of the old epoch is lost, the new one begins, and the old one ends."""
    new = stream_id("radar", 1)

    async def scenario() -> list[FeedItem]:
        limits = FeedLimits(connect_timeout_s=PATIENCE_S, epoch_s=0.2)
        async with place.subscriber(start="beginning", limits=limits) as feed:
            place.writer.write(A, [0, 1, 3])
            place.writer.write(B, [0, 1])
            place.writer.write(A, range(5), new)
            place.writer.write(B, range(5), new)
            place.writer.flush()
            return await until(feed, lambda item: isinstance(item, Ended))

    items = asyncio.run(scenario())
    assert numbers(items) == [0, 1, 3]
    assert numbers(items, new) == [0, 1, 2, 3, 4]
    assert lost(items) == [2]
    assert [one.stream for one in items if isinstance(one, Ended)] == [STREAM]


def test_a_subscriber_is_killed_again_and_again(place: Place, tmp_path: Path) -> None:
    """S3: what it had committed does not come again, and nothing else is missing, over kills at any moment."""
    choice, output = draw.generator("kills of a subscriber"), tmp_path / "output"
    command = [sys.executable, "-c", SUBSCRIBER, place.bootstrap, place.prefix, str(tmp_path / "s"), str(output)]
    seen: list[str] = []
    asked: list[str] = []

    def run(for_s: float | None) -> None:
        output.write_text("")
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        assert process.stdout is not None
        if process.stdout.readline() and for_s is not None:
            time.sleep(for_s)  # a random moment is what is tested
            process.send_signal(signal.SIGKILL)
        process.communicate(timeout=PATIENCE_S)
        lines = output.read_text().splitlines()
        # Killed in a commit: whether it was done shows in what comes next.
        if asked and not any(line in asked for line in lines[:1]):
            seen.extend(asked)
        durable = len(lines) - lines[::-1].index("c") if "c" in lines else 0
        seen.extend(line for line in lines[:durable] if line not in "?c")
        rest = lines[durable:]
        asked[:] = rest[: rest.index("?")] if "?" in rest else []

    with Load(place.writer, 400, f"{draw.SEED} kills") as load:
        for _ in range(draw.times(2, 12)):
            run(choice.uniform(0.0, 0.5))
    place.writer.write(A, [load.sent], payload=b"last")
    place.writer.flush()
    run(None)
    delivered = [int(line.split()[0]) for line in seen if "lost" not in line]
    assert delivered == [*load.either, load.sent]
    reported = [range(int(first), int(last) + 1) for first, last, _ in (one.split() for one in seen if "lost" in one)]
    assert [number for one in reported for number in one] == sorted(load.lost[0] & load.lost[1])


def test_the_broker_stands_still_for_a_while(own_broker: Broker) -> None:
    """S3: longer than the deadline; what is in the log is not given up meanwhile, and nobody is declared dead."""

    def steps() -> None:
        time.sleep(0.5)
        for number, seconds in ((signal.SIGSTOP, away_s), (signal.SIGCONT, 1)):
            own_broker.signal(number)
            time.sleep(seconds)

    async def scenario() -> list[FeedItem]:
        items: list[FeedItem] = []
        limits = FeedLimits(connect_timeout_s=PATIENCE_S, adapter_timeout_s=1.5, merge=MergeSettings(deadline_ms=1_000))
        async with place.subscriber(start="beginning", limits=limits) as feed:
            with load:
                await collected(feed, load, items, steps, PATIENCE_S + away_s)
        return items

    away_s = draw.times(2, 60)
    place = made(own_broker.bootstrap, "t.")
    load = Load(place.writer, 300, f"{draw.SEED} frozen")
    items = asyncio.run(scenario())
    check_all(items, load)
    assert threading.active_count() < 20
