"""Metrics of redundant feeds, from the ledger (S5). Feeds that nobody writes have none."""

from collections.abc import Iterable, Mapping, Sequence
from threading import Lock

import numpy as np
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from pipelines.feeds.comparison import Pairs, SlotState

LAG_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0, 3600.0)


class FeedMetrics(Collector):
    """What :class:`pipelines.feeds.comparison.FeedComparison` reports, by feed and slot; read from any thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lock = Lock()
        self._lags: dict[tuple[str, str], tuple[list[int], float]] = {}
        self._slots: Sequence[SlotState] = ()
        self._lost: Mapping[str, int] = {}

        def counter(name: str, meaning: str, *labels: str) -> Counter:
            return Counter(f"waystation_feed_{name}", meaning, ["feed", *labels], registry=registry)

        self._copies = counter("ledger_copies", "Copies of a redundant feed added to the ledger", "slot")
        self._duplicates = counter("ledger_duplicates", "Copies of a redundant feed that the slot had brought", "slot")
        self._differences = counter("differences", "Messages whose two copies have different payloads")
        registry.register(self)

    def brought(self, feed: str, slot: str, copies: int, duplicates: int) -> None:
        self._copies.labels(feed, slot).inc(copies)
        self._duplicates.labels(feed, slot).inc(duplicates)
        self._differences.labels(feed)  # from the start, at 0, so that the first increase is seen

    def paired(self, pairs: Pairs) -> None:
        self._differences.labels(pairs.feed).inc(pairs.differences)
        for later, lags in (("active", -pairs.lags_s[pairs.lags_s < 0]), ("backup", pairs.lags_s[pairs.lags_s >= 0])):
            counts = np.bincount(np.searchsorted(LAG_BUCKETS_S, lags), minlength=len(LAG_BUCKETS_S) + 1)
            with self._lock:
                known, total = self._lags.get((pairs.feed, later), ([0] * len(counts), 0.0))
                summed = [before + int(now) for before, now in zip(known, counts, strict=True)]
                self._lags[pairs.feed, later] = summed, total + float(lags.sum())

    def states(self, slots: Sequence[SlotState], lost: Mapping[str, int]) -> None:
        with self._lock:
            self._slots, self._lost = tuple(slots), dict(lost)

    def collect(self) -> Iterable[Metric]:
        lag = HistogramMetricFamily(
            "waystation_feed_lag_seconds",
            "Time between the appends of a message's two copies, by the slot that was later",
            labels=["feed", "later"],
        )
        behind = GaugeMetricFamily(
            "waystation_feed_behind_numbers",
            "Numbers of source streams that the other slot has passed, and this one has not",
            labels=["feed", "slot"],
        )
        appended = GaugeMetricFamily(
            "waystation_feed_last_append_timestamp_seconds",
            "When the last record of the slot was appended to the topic",
            labels=["feed", "slot"],
        )
        lost = GaugeMetricFamily(
            "waystation_feed_lost_numbers",
            "Numbers of source streams that neither slot has brought, and both have passed",
            labels=["feed"],
        )
        with self._lock:
            for of, (counts, total) in self._lags.items():
                bounds = [*map(str, LAG_BUCKETS_S), "+Inf"]
                cumulated = np.cumsum(counts).tolist()
                lag.add_metric(list(of), list(zip(bounds, cumulated, strict=True)), total)
            for one in self._slots:
                behind.add_metric([one.feed, one.slot], one.behind)
                appended.add_metric([one.feed, one.slot], one.appended_s)
            for feed, numbers in self._lost.items():
                lost.add_metric([feed], numbers)
        return [lag, behind, appended, lost]
