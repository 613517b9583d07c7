"""What `waystation feed subscribe` prints: one JSON object a line, as many messages as were asked for (S3)."""

import json
from collections.abc import Collection
from typing import Any

from feeds.merge_settings import MergeSettings
from feeds.message import Feed, FeedMessage
from jobs.feeds.feed_log import Entry, FeedLog
from jobs.feeds.merged_feed import MergedFeed
from jobs.feeds.subscribing import Subscribing
from tests.unit.jobs.feeds.feed_copies import copy_of

A, B = Feed


class LogInMemory(FeedLog):
    """Each poll gives one of the `polls`."""

    def __init__(self, *polls: list[Entry]) -> None:
        self._polls = list(polls)
        self.followed: set[Feed] = set()

    def follow(self, feeds: Collection[Feed], from_ms: int | None = None) -> None:
        self.followed = set(feeds)

    def poll(self, timeout_s: float) -> list[Entry]:
        return self._polls.pop(0)

    def search(self, *_: object) -> tuple[list[FeedMessage], bool]:
        return [], True


def entries(feed: Feed, *numbers: int, payload: bytes = b"") -> list[Entry]:
    return [Entry(feed, copy_of(number, payload), 1) for number in numbers]


def subscribed(most: int | None, *polls: list[Entry]) -> tuple[list[dict[str, Any]], Subscribing]:
    lines: list[str] = []
    found = Subscribing(LogInMemory(*polls), MergedFeed(MergeSettings()), lines.append, lines.append, "warm", most)
    for _ in polls:
        if not found.is_done:
            found.step()
    return [json.loads(line) for line in lines], found


def test_it_ends_after_so_many_messages_however_many_come_at_once() -> None:
    """S3: what was not printed is not in the summary either."""
    lines, found = subscribed(5, entries(A, 0, 1, 2), entries(B, 0, 1, 2) + entries(A, *range(3, 50)), entries(A, 50))
    assert [one["sequence"] for one in lines] == [0, 1, 2, 3, 4]
    assert found.is_done
    assert found.summary() == "5 delivered, 3 duplicate"


def test_without_a_number_it_prints_all() -> None:
    lines, found = subscribed(None, entries(A, 0, 1), [Entry(B, None, 1)], entries(B, 2))
    assert [one["sequence"] for one in lines] == [0, 1, 2]
    assert not found.is_done
    assert found.summary() == "3 delivered, 1 malformed"


def test_what_a_source_sends_does_not_control_a_terminal() -> None:
    """S3: and it reads back as it was sent."""
    lines: list[str] = []
    payload = "\u202e\x1b[31m\x9b2Jé\u2028\n".encode()
    found = Subscribing(
        LogInMemory(entries(A, 0, payload=payload)), MergedFeed(MergeSettings()), lines.append, lines.append, "warm"
    )
    found.step()
    (line,) = lines
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["payload"].encode() == payload
