"""What happens in the feeds' demo: what the source sends when, what each way loses, and when adapters are killed. Pure;
everything follows from the recording, the seed and the speed (S2, S3).

Times are those of the replay, in µs or seconds since its beginning.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, time
from random import Random
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from edge.feeds.formats.lines import PREFIX
from feeds.message import FEEDS, Feed, FeedMessage, stream_id
from jobs.demo.errors import DemoError
from jobs.demo.feed_receivers import BURSTS, Received, ReceivedCopy, Receiver, SourceMessage, Truth, receive, truth_of

SOURCE: Final = "mode-s"
PARIS: Final = ZoneInfo("Europe/Paris")
WAYS: Final = {
    Feed.ACTIVE: Receiver(loss=BURSTS, lag_us=2_000, jitter_us=3_000, reordered=0.002, reordered_us=40_000),
    Feed.BACKUP: Receiver(loss=BURSTS, lag_us=6_000, jitter_us=6_000, reordered=0.002, reordered_us=40_000),
}
"""Each loses 1 % in bursts; the backup's is a little slower."""
KILLS: Final = 4
DOWN_S: Final = (2.0, 4.0)
"""Between `kill -9` of an adapter and its next start."""
FIRST_KILL, LAST_KILL = 0.12, 0.82
"""Shares of the replay between which adapters are killed."""
AWAY_S: Final = 2.0
"""How long the subscriber is away, in the middle."""


class Outage(NamedTuple):
    """The adapter of `feed` is killed at `at_s`, and started again at `until_s`."""

    feed: Feed
    at_s: float
    until_s: float


class FeedPlan(NamedTuple):
    """`begin_us`: when the recording begins, µs since the epoch. `payloads`: by number; a receiver's copies have the
    numbered lines, as they are on its way."""

    stream: str
    speed: float
    begin_us: int
    payloads: Mapping[int, bytes]
    ways: Mapping[Feed, Received]
    truth: Truth
    outages: Sequence[Outage]
    away_s: tuple[float, float]
    seconds: float


class _Line(msgspec.Struct):
    timestamp: float


def plan_feeds(lines: Sequence[bytes], seed: int, speed: float, until: time | None = None) -> FeedPlan:
    """`lines`: the recording as `waystation feed sequence` has numbered it, without line ends. Its first line is number
    1, and both ways have the last one, as nobody could tell that a last one is missing. `until`: only what was sent
    before this time in Paris. Raises DemoError."""
    numbered = [_numbered(line) for line in lines]
    begin_us = numbered[0].at_us if numbered else 0
    if until is not None:
        end_us = datetime.combine(datetime.fromtimestamp(begin_us / 1e6, PARIS), until, PARIS).timestamp() * 1e6
        numbered = [one for one in numbered if one.at_us < end_us]
    if len(numbered) < 2:
        raise DemoError(
            "less than two messages cannot be replayed"
            + (
                f": choose a time after {datetime.fromtimestamp(begin_us / 1e6, PARIS):%H:%M} for --until"
                if until
                else ""
            )
        )
    source, latest_us = [], 0
    for one in numbered:
        latest_us = max(latest_us, round((one.at_us - begin_us) / speed))
        source.append(one._replace(at_us=latest_us))
    ways = {feed: _way(source, feed, seed) for feed in FEEDS}
    seconds = latest_us / 1e6
    middle_s = seconds / 2
    return FeedPlan(
        stream=source[0].stream,
        speed=speed,
        begin_us=begin_us,
        payloads={one.sequence: _payload(one.payload) for one in source},
        ways=ways,
        truth=truth_of(source, ways[Feed.ACTIVE], ways[Feed.BACKUP]),
        outages=outages(seed, seconds),
        away_s=(middle_s, middle_s + AWAY_S),
        seconds=seconds,
    )


def outages(seed: int, seconds: float) -> list[Outage]:
    """The active's adapter is killed first, then the backup's, and so on, each in a part of the replay of its own."""
    draws = Random(f"{seed}/kills")
    part_s = (LAST_KILL - FIRST_KILL) * seconds / KILLS
    found = []
    for number in range(KILLS):
        at_s = FIRST_KILL * seconds + part_s * (number + draws.uniform(0.0, 0.4))
        found.append(Outage(FEEDS[number % len(FEEDS)], at_s, at_s + min(draws.uniform(*DOWN_S), part_s * 0.4)))
    return found


def _way(source: Sequence[SourceMessage], feed: Feed, seed: int) -> Received:
    made = receive(source[:-1], WAYS[feed], feed, seed)
    last = source[-1]
    at_us = max(last.at_us, made.copies[-1].at_us if made.copies else 0) + WAYS[feed].lag_us
    message = FeedMessage(last.stream, last.sequence, 0, len(made.copies), at_us, feed.name.lower(), last.payload)
    made.copies.append(ReceivedCopy(at_us, feed, message))
    made.first_us[last.stream, last.sequence] = at_us
    return made


def _numbered(line: bytes) -> SourceMessage:
    prefix = PREFIX.match(line)
    if prefix is None:
        raise DemoError(f"a line of the sequencer does not begin with its number: {line[:60]!r}")
    try:
        at_us = round(msgspec.json.decode(line[prefix.end() :], type=_Line).timestamp * 1e6)
    except msgspec.DecodeError as error:
        raise DemoError(f"a line of the recording has no timestamp: {line[:60]!r}: {error}") from error
    return SourceMessage(stream_id(SOURCE, int(prefix[1])), int(prefix[2]), at_us, line)


def _payload(line: bytes) -> bytes:
    return line.partition(b"\t")[2]
