"""Two receivers of one numbered source, with faults of their own, and the truth about what was injected (S2, S3, S5).

For tests, the demo and measurements of redundant feeds. Nothing here writes to Kafka or waits: a receiver's stream is a
list of copies with the times of their arrival, in that order. The caller publishes it as the adapter of a feed would.

    source = numbered(lines, stream_id("radar", 0))
    active = receive(source, Receiver(loss=BURSTS), Feed.ACTIVE, seed=7)
    backup = receive(source, Receiver(loss=BURSTS, lag_us=40_000), Feed.BACKUP, seed=7)
    truth = truth_of(source, active, backup)
    for copy in in_order(active, backup):
        key, headers, value = encode(copy.message)        # to partition_of(copy.feed, copy.message.stream, partitions)

Everything follows from the seed, and the two receivers of one seed fail independently. What a receiver did is written
down where it is done (:class:`Received`), and not found again from its copies.

Losses come in bursts, by the model of Gilbert and Elliott: a chain with two states, good and bad, each with a
probability that a message is lost in it (E. N. Gilbert, Bell System Technical Journal 39 (1960); E. O. Elliott, 42
(1963)).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from random import Random
from typing import NamedTuple

from feeds.message import Feed, FeedMessage

BEGIN_US = 1_700_000_000_000_000


class SourceMessage(NamedTuple):
    """What the source sent: `sequence` of `stream`, at `at_us` (µs since the epoch, the true time)."""

    stream: str
    sequence: int
    at_us: int
    payload: bytes


class Loss(NamedTuple):
    """Burst loss. For each message the chain goes from good to bad with probability `begins`, from bad to good with
    probability `ends`; then the message is lost with probability `in_good` or `in_bad`.

    With the defaults of the last two, the share that is lost is `begins / (begins + ends)`, and a burst has 1 / `ends`
    messages on average. The chain begins in the good state.
    """

    begins: float
    ends: float
    in_good: float = 0.0
    in_bad: float = 1.0


NO_LOSS = Loss(0.0, 1.0)
BURSTS = Loss(begins=0.0025, ends=0.25)
"""1 % is lost, four at a time on average."""


@dataclass(frozen=True)
class Receiver:
    """The faults of a receiver; the default has none.

    `lag_us`: how much later than the source everything arrives; `jitter_us`: up to how much later still, drawn evenly
    for each message, without changing the order. `reordered`: the share of messages that arrive a further
    `reordered_us` late, so behind others. `repeated`: the share of messages that the adapter publishes twice, as after
    a restart, `repeated_us` later. `corrupted`: the share of payloads of which one byte is changed. `clock_us`: how far
    the receiver's clock is ahead; it shifts `read_us`, and not the arrival.
    """

    loss: Loss = NO_LOSS
    lag_us: int = 0
    jitter_us: int = 0
    reordered: float = 0.0
    reordered_us: int = 50_000
    repeated: float = 0.0
    repeated_us: int = 200_000
    corrupted: float = 0.0
    clock_us: int = 0


class ReceivedCopy(NamedTuple):
    """A copy as its receiver publishes it: `at_us` is when, by the true time."""

    at_us: int
    feed: Feed
    message: FeedMessage


Key = tuple[str, int]
"""Stream and sequence."""


@dataclass(frozen=True)
class Received:
    """One receiver's stream: `copies` in the order of their arrival, and what was done to it. `lost`, `reordered`,
    `corrupted` and `repeated` are messages; `first_us` is when the first copy of each arrived."""

    feed: Feed
    copies: list[ReceivedCopy] = field(default_factory=list)
    lost: set[Key] = field(default_factory=set)
    reordered: set[Key] = field(default_factory=set)
    corrupted: set[Key] = field(default_factory=set)
    repeated: set[Key] = field(default_factory=set)
    first_us: dict[Key, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Truth:
    """What a ledger, a merger or a report must find. Numbers are messages, by (stream, sequence).

    `missing`: by feed, what that receiver lost; `lost`: what both did. `different`: what both have with different
    payloads. `repeated`: by feed, what comes twice. `lag_us`: for what both have, when the backup's first copy arrived,
    less when the active's did.
    """

    missing: Mapping[Feed, frozenset[Key]]
    lost: frozenset[Key]
    different: frozenset[Key]
    repeated: Mapping[Feed, frozenset[Key]]
    lag_us: Mapping[Key, int]


def numbered(
    payloads: Iterable[bytes], stream: str, first: int = 1, begin_us: int = BEGIN_US, every_us: int = 1_000
) -> list[SourceMessage]:
    """A source that sends `payloads`, such as the lines of a file, one each `every_us`, numbered from `first` on."""
    return [
        SourceMessage(stream, first + number, begin_us + number * every_us, payload)
        for number, payload in enumerate(payloads)
    ]


def receive(source: Sequence[SourceMessage], receiver: Receiver, feed: Feed, seed: int, adapter: str = "") -> Received:
    """What the receiver of `feed` makes of `source`; `adapter` is its name, by default that of the feed.

    Messages of all streams pass the same chain of losses, in the order of `source`, as on one network.
    """
    draws, made, name = Random(f"{seed}/{feed}"), Received(feed), adapter or feed.name.lower()
    is_bad, latest_us = False, 0
    arrivals: list[tuple[int, int, SourceMessage]] = []
    for number, sent in enumerate(source):
        key = sent.stream, sent.sequence
        is_bad = draws.random() >= receiver.loss.ends if is_bad else draws.random() < receiver.loss.begins
        if draws.random() < (receiver.loss.in_bad if is_bad else receiver.loss.in_good):
            made.lost.add(key)
            continue
        at_us = latest_us = max(latest_us, sent.at_us + receiver.lag_us + draws.randint(0, receiver.jitter_us))
        if draws.random() < receiver.reordered:
            made.reordered.add(key)
            at_us += receiver.reordered_us
        if draws.random() < receiver.corrupted:
            made.corrupted.add(key)
            sent = sent._replace(payload=corrupted(sent.payload, draws))
        made.first_us[key] = at_us
        arrivals.append((at_us, number, sent))
        if draws.random() < receiver.repeated:
            made.repeated.add(key)
            arrivals.append((at_us + receiver.repeated_us, number, sent))
    for count, (at_us, _, sent) in enumerate(sorted(arrivals, key=lambda one: one[:2])):
        read_us = at_us + receiver.clock_us
        message = FeedMessage(sent.stream, sent.sequence, 0, count, read_us, name, sent.payload)
        made.copies.append(ReceivedCopy(at_us, feed, message))
    return made


def corrupted(payload: bytes, draws: Random) -> bytes:
    """The payload with one byte changed; an empty one gets a byte."""
    if not payload:
        return b"\x00"
    at = draws.randrange(len(payload))
    return payload[:at] + bytes([payload[at] ^ draws.randint(1, 255)]) + payload[at + 1 :]


def truth_of(source: Sequence[SourceMessage], active: Received, backup: Received) -> Truth:
    """What was injected into the two streams of `source`."""
    payloads = [{copy.message[:2]: copy.message.payload for copy in one.copies} for one in (active, backup)]
    suspects = (active.corrupted | backup.corrupted) - active.lost - backup.lost
    # Both may have changed the same byte in the same way.
    different = {key for key in suspects if payloads[0][key] != payloads[1][key]}
    both = ((sent.stream, sent.sequence) for sent in source)
    return Truth(
        missing={one.feed: frozenset(one.lost) for one in (active, backup)},
        lost=frozenset(active.lost & backup.lost),
        different=frozenset(different),
        repeated={one.feed: frozenset(one.repeated) for one in (active, backup)},
        lag_us={
            key: backup.first_us[key] - active.first_us[key]
            for key in both
            if key in active.first_us and key in backup.first_us
        },
    )


def in_order(*received: Received) -> Iterable[ReceivedCopy]:
    """The copies of all receivers in the order of their arrival."""
    return merge(*(one.copies for one in received), key=lambda copy: copy.at_us)


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Numbers as ranges, first and last, ascending."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found
