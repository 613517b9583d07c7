"""The merged stream of a gateway, through the client library and its session (S3)."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from edge.feed_subscriber.limits import FeedLimits
from feeds.message import stream_id
from mqtt.packets import Properties
from tests.unit.edge.client.client_harness import complete
from tests.unit.edge.client.server_host import ServerHost
from tests.unit.edge.given_up import given_up
from waystation import Ended, FeedDelivery, FeedItem, FeedSubscriber, Gap, Lost

STREAM = stream_id("radar", 0)


def stamps(sequence: int | str, part: int = 0, *, is_late: bool = False) -> Properties:
    pairs = [
        ("feed-sequence", str(sequence)),
        ("feed-part", str(part)),
        ("feed-read-us", "77"),
        ("feed-adapter", "a1"),
    ]
    return {"user_property": pairs + ([("feed-late", "1")] if is_late else [])}


def deliver(server: ServerHost, sequences: Iterable[int], stream: str = STREAM) -> None:
    for sequence in sequences:
        server.deliver(f"feeds/flight/{stream}", b"%d" % sequence, 1, stamps(sequence))


def subscriber(server: ServerHost, path: Path | None, **more: Any) -> FeedSubscriber:
    return FeedSubscriber("flight", gateway=server.url, name="desk-1", state=path, **more)


async def some(feed: FeedSubscriber, count: int) -> list[FeedItem]:
    return [await anext(feed) for _ in range(count)]


async def subscribed(server: ServerHost) -> None:
    async with asyncio.timeout(10):
        while server.session.connection is None or not server.reads:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("turns", range(0, 16, 3))
def test_who_no_longer_waits_for_the_end_leaves_no_file_open(tmp_path: Path, turns: int) -> None:
    async def run() -> None:
        async with ServerHost() as server:
            one = subscriber(server, tmp_path / "s")
            await one.__aenter__()
            await given_up(one.close(), turns)
            assert turns == 0 or (one._closing is not None and one._closing.done()), "the file is not released yet"
            await asyncio.gather(one.close(), one.close())
            async with subscriber(server, tmp_path / "s"):
                await subscribed(server)

    complete(run())


def test_messages_with_their_stamps_and_what_is_missing() -> None:
    async def run() -> None:
        async with ServerHost() as server, subscriber(server, None) as feed:
            await subscribed(server)
            deliver(server, [5, 6, 9, 6])
            topic = f"feeds/flight/{STREAM}"
            server.deliver(topic, b"7", 1, stamps(7, is_late=True))
            server.deliver(topic, b"7", 1, stamps(7, is_late=True))
            server.deliver(topic, b"a", 1, stamps(9, 1))
            server.deliver(topic, b"a", 1, stamps(9, 1))
            for wrong in (stamps("-1"), stamps(2**63), {}, {"user_property": [("feed-sequence", "1")]}):
                server.deliver(topic, b"", 1, wrong)
            server.deliver("feeds/flight/nameless", b"", 1, stamps(1))
            server.deliver("elsewhere", b"", 1, stamps(1))
            deliver(server, [10])
            items = await some(feed, 8)
            assert items[0] == FeedDelivery(
                ordinal=1, stream=STREAM, sequence=5, part=0, payload=b"5", read_us=77, adapter="a1"
            )
            assert [(one.first, one.last) for one in items if isinstance(one, Gap)] == [(7, 8)]
            assert [(one.first, one.last, one.reason) for one in items if isinstance(one, Lost)] == [(7, 8, "gateway")]
            told = [(one.sequence, one.part, one.late) for one in items if isinstance(one, FeedDelivery)]
            assert told == [(5, 0, False), (6, 0, False), (9, 0, False), (7, 0, True), (9, 1, False), (10, 0, False)]
            assert feed.counts == {"duplicate": 3, "malformed": 6}

    complete(run())


@pytest.mark.parametrize("before", [[], [2]], ids=["it begins with it", "it was away"])
def test_what_the_gateway_calls_late_and_is_next_here_is_given_once(before: list[int]) -> None:
    """S3: the gateway has let go what follows while nobody was subscribed. The number is never called lost."""

    async def run() -> None:
        async with ServerHost() as server, subscriber(server, None) as feed:
            await subscribed(server)
            deliver(server, before)
            for _ in range(2):
                server.deliver(f"feeds/flight/{STREAM}", b"5", 1, stamps(5, is_late=True))
            deliver(server, [7])
            items = await some(feed, len(before) * 3 + 4)
            lost = [(one.first, one.last) for one in items if isinstance(one, Lost)]
            assert lost == [*([(3, 4)] if before else []), (6, 6)]
            told = [(one.sequence, one.late) for one in items if isinstance(one, FeedDelivery)]
            assert told == [*((number, False) for number in before), (5, True), (7, False)]
            assert feed.counts == {"duplicate": 1}

    complete(run())


def test_what_is_committed_does_not_come_again_and_the_rest_does(tmp_path: Path) -> None:
    """S3: an acknowledgement goes out after the commit."""

    async def run() -> None:
        async with ServerHost() as server:
            async with subscriber(server, tmp_path / "s", auto_commit=False) as feed:
                await subscribed(server)
                deliver(server, range(6))
                items = await some(feed, 5)
                await feed.commit(items[2])
            async with subscriber(server, tmp_path / "s") as feed:
                again = await some(feed, 3)
            assert [one.sequence for one in again if isinstance(one, FeedDelivery)] == [3, 4, 5]

    complete(run())


def test_an_old_epoch_ends(tmp_path: Path) -> None:
    async def run() -> None:
        async with ServerHost() as server, subscriber(server, None, limits=FeedLimits(epoch_s=0.01)) as feed:
            await subscribed(server)
            deliver(server, [0])
            deliver(server, [0], stream_id("radar", 1))
            items = await some(feed, 3)
            assert isinstance(items[2], Ended)
            assert items[2].stream == STREAM

    complete(run())


def test_only_some_source_streams() -> None:
    async def run() -> None:
        async with ServerHost() as server, subscriber(server, None, streams=["ships"]) as feed:
            await subscribed(server)
            deliver(server, [0, 1])
            deliver(server, [4], stream_id("ships", 0))
            (item,) = await some(feed, 1)
            assert isinstance(item, FeedDelivery)
            assert item.stream == "ships@0"

    complete(run())


def test_options_that_do_not_fit_are_refused() -> None:
    for options, problem in (
        ({}, "either kafka"),
        ({"kafka": "b:1", "gateway": "mqtt://h"}, "either kafka"),
        ({"kafka": "broker"}, "host:port"),
        ({"kafka": "b:1", "mode": "tepid"}, "warm or cold"),
        ({"kafka": "b:1", "start": "middle"}, "end, beginning"),
        ({"kafka": "b:1", "start": {"radar": 1}}, "name@epoch"),
        ({"kafka": "b:1", "start": {STREAM: -1}}, "2\\^63-1"),
        ({"kafka": "b:1", "streams": "radar"}, "collection"),
        ({"kafka": "b:1", "name": ""}, "name has"),
        ({"kafka": "b:1", "prefix": "a b"}, "prefix"),
        ({"gateway": "mqtt://h", "mode": "cold"}, "merges both"),
        ({"kafka": "b:1", "administration": "broker"}, "access point"),
    ):
        with pytest.raises(ValueError, match=problem):
            FeedSubscriber("flight", **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="feed's name"):
        FeedSubscriber("a b", kafka="b:1")
    with pytest.raises(ValueError, match=r"items must be above 0"):
        FeedLimits(items=0)
