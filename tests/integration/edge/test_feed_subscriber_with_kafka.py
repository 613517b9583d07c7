"""The subscriber of redundant feeds on a real broker (S3, S6)."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from feeds.message import Feed, stream_id
from tests.conftest import LocalBroker
from tests.integration.edge.feed_writer import NAME, STREAM, Slots, create_feed
from waystation import (
    FeedDelivery,
    FeedItem,
    FeedLimits,
    FeedSubscriber,
    FeedUnavailable,
    Gap,
    Lost,
    MergeSettings,
    Recovered,
    Switched,
    SyncFeedSubscriber,
)

A, B = Feed.ACTIVE, Feed.BACKUP
PATIENCE_S = 30.0
LIMITS = FeedLimits(connect_timeout_s=PATIENCE_S, begin_ms=100)


@pytest.fixture
def slots(broker: LocalBroker, unique_prefix: str) -> Iterator[tuple[Slots, str, str]]:
    create_feed(broker.bootstrap, unique_prefix)
    yield Slots(broker.bootstrap, unique_prefix), broker.bootstrap, unique_prefix


def test_both_copies_become_one_stream(slots: tuple[Slots, str, str], tmp_path: Path) -> None:
    """S3: what either has, once, in order; what both lack is reported; what was committed does not come again."""
    writer, bootstrap, prefix = slots
    writer.write(A, (n for n in range(300) if n % 7))
    writer.write(B, (n for n in range(300) if n % 5))
    writer.passed(A, 299)
    writer.passed(B, 299)
    writer.flush()
    with SyncFeedSubscriber(
        NAME, kafka=bootstrap, prefix=prefix, state=tmp_path / "s", start="beginning", limits=LIMITS, auto_commit=False
    ) as feed:
        items = list(iter_until(feed, 298))
        numbers = [one.sequence for one in items if isinstance(one, FeedDelivery)]
        assert numbers == [n for n in range(1, 299) if n % 35]
        lost = [(one.first, one.last, one.reason) for one in items if isinstance(one, Lost)]
        assert lost == [(n, n, "passed") for n in range(35, 299, 35)]
        half = next(one for one in items if isinstance(one, FeedDelivery) and one.sequence == 150)
        feed.commit(half)
    with SyncFeedSubscriber(NAME, kafka=bootstrap, prefix=prefix, state=tmp_path / "s", limits=LIMITS) as feed:
        items = list(iter_until(feed, 298))
        assert [one.sequence for one in items if isinstance(one, FeedDelivery)] == [n for n in range(151, 299) if n % 35]


def iter_until(feed: SyncFeedSubscriber, last: int) -> Iterator[FeedItem]:
    for item in feed:
        yield item
        if isinstance(item, FeedDelivery) and item.sequence == last:
            return
