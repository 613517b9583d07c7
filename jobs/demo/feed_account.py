"""What the subscriber of the feeds' demo was given, compared with what the two ways had (S3, S6). Pure.

Right is: what at least one way had comes once; what neither had is reported lost, and nothing else is. A number that
only the adapter of one way can bring, while that adapter is dead, may be reported lost and come later, marked as late.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from feeds.message import Feed
from jobs.demo.feed_receivers import Truth, ranges

LATENCIES_MAX = 10_000_000
"""More messages than a demo has."""


class FeedVerdict(NamedTuple):
    """Messages, except the three last. `missing`: a way had it, and it did not come. `lost_unreported`: no way had it,
    and it was not reported. `lost_wrongly`: reported lost, although a way had it, and it did not come late. `altered`:
    with another payload than the source's. `late`: came marked as late. Latencies in ms, None of none."""

    delivered: int
    missing: int
    doubled: int
    misordered: int
    altered: int
    late: int
    lost: int
    lost_unreported: int
    lost_wrongly: int
    p50_ms: float | None
    p99_ms: float | None
    longest_ms: float | None


class FeedAccount:
    """`payloads`: what the source sent, by number; `truth`: what the ways lost."""

    def __init__(self, payloads: Mapping[int, bytes], truth: Truth) -> None:
        self._payloads = payloads
        self._lost_by_both = {number for _, number in truth.lost}
        self._missing_by_feed = {feed: {number for _, number in found} for feed, found in truth.missing.items()}
        self._delivered: Counter[int] = Counter()
        self._reported: set[int] = set()
        self._late: set[int] = set()
        self._latencies_ms: list[float] = []
        self._highest = 0
        self._misordered = self._altered = 0
        self._due = len(payloads) - len(self._lost_by_both)
        self.gaps = 0
        """Suspected by the subscriber."""
        self.recovered = 0
        """Numbers of gaps that came."""
        self.switches: Counter[str] = Counter()
        """What happened to the slots."""

    def deliver(self, number: int, payload: bytes, *, is_late: bool, latency_ms: float) -> None:
        """The subscriber was given a message."""
        if number not in self._delivered and number in self._payloads and number not in self._lost_by_both:
            self._due -= 1
        self._delivered[number] += 1
        if self._payloads.get(number) != payload:
            self._altered += 1
        if is_late:
            self._late.add(number)
        elif number <= self._highest:
            self._misordered += 1
        else:
            self._highest = number
        if len(self._latencies_ms) < LATENCIES_MAX:
            self._latencies_ms.append(latency_ms)

    def report_lost(self, first: int, last: int) -> None:
        """The subscriber was told that these are lost."""
        self._reported.update(range(first, last + 1))

    def is_complete(self) -> bool:
        """Whether all that is due has come or been reported."""
        return not self._due and self._lost_by_both <= self._reported

    @property
    def delivered(self) -> int:
        """Messages, each once."""
        return len(self._delivered)

    def received(self, feed: Feed) -> int:
        """What the way of a feed had."""
        return len(self._payloads) - len(self._missing_by_feed[feed])

    def gaps_of(self, feed: Feed) -> tuple[int, int]:
        """What the way of a feed lost: in how many places, and how many messages."""
        lost = self._missing_by_feed[feed]
        return len(ranges(lost)), len(lost)

    def missing(self) -> Sequence[int]:
        """What a way had, and did not come."""
        return sorted(self._payloads.keys() - self._lost_by_both - self._delivered.keys())

    def verdict(self) -> FeedVerdict:
        reported = self._reported - self._delivered.keys()
        latencies = sorted(self._latencies_ms)
        return FeedVerdict(
            delivered=len(self._delivered),
            missing=len(self.missing()),
            doubled=sum(self._delivered.values()) - len(self._delivered),
            misordered=self._misordered,
            altered=self._altered,
            late=len(self._late),
            lost=len(self._lost_by_both),
            lost_unreported=len(self._lost_by_both - self._reported),
            lost_wrongly=len(reported - self._lost_by_both),
            p50_ms=_quantile(latencies, 0.5),
            p99_ms=_quantile(latencies, 0.99),
            longest_ms=_quantile(latencies, 1.0),
        )


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    """The smallest value that at least `share` of them do not exceed."""
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)] if ordered else None
