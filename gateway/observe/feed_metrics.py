"""What this gateway knows of redundant feeds, as Prometheus metrics (S1)."""

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from feeds.brokering import STATES, status_of
from feeds.registry_records import SLOTS
from gateway.feeds.answers import lag_of
from gateway.feeds.table import FeedTable


class FeedMetrics(Collector):
    """Gauges of a table; `now` gives monotonic seconds. Call it on the event loop. Feeds are bounded by
    `feeds.feeds`."""

    def __init__(self, table: FeedTable, now: Callable[[], float]) -> None:
        self._table = table
        self._now = now

    def collect(self) -> Iterator[Metric]:
        now = self._now()
        feeds = self._table.feeds()
        statuses = {feed: status_of(self._table.registry, feed, now) for feed in feeds}
        known = GaugeMetricFamily(
            "waystation_feeds", "Feeds that are configured or have records, by state", labels=["state"]
        )
        counted = Counter(status.state for status in statuses.values())
        for state in STATES:
            known.add_metric([state], counted[state])
        yield known
        yield from self._adapters(feeds, now)
        state_of = GaugeMetricFamily("waystation_feed_state", "1 for the state of a feed", labels=["feed", "state"])
        lag = GaugeMetricFamily(
            "waystation_feed_lag_messages",
            "How many numbers the backup stream is behind the active one, by the source stream where it is furthest",
            labels=["feed"],
        )
        for feed, status in statuses.items():
            state_of.add_metric([feed, status.state], 1)
            lags = [one.lag for one in lag_of(status)]
            if lags:
                lag.add_metric([feed], max(lags))
        yield state_of
        yield lag
        subscribers = GaugeMetricFamily(
            "waystation_feed_subscribers", "Subscribers of a feed that have not lapsed", labels=["feed"]
        )
        for feed, number in sorted(self._table.subscribers(now).items()):
            subscribers.add_metric([feed], number)
        yield subscribers
        yield GaugeMetricFamily(
            "waystation_feed_requests",
            "Administrative messages of feeds that are remembered",
            value=self._table.requests,
        )

    def _adapters(self, feeds: list[str], now: float) -> Iterator[Metric]:
        alive = GaugeMetricFamily(
            "waystation_feed_adapters_alive", "Adapters whose heartbeats come, by slot", labels=["feed", "slot"]
        )
        silent = GaugeMetricFamily(
            "waystation_feed_adapters_silent",
            "Adapters whose heartbeats have stopped although they did not stop in order, by slot",
            labels=["feed", "slot"],
        )
        registry = self._table.registry
        for feed in feeds:
            adapters = registry.adapters(feed)
            for slot in SLOTS:
                here = [one for one in adapters if one.beat.slot == slot and one.beat.state != "gone"]
                living = sum(registry.is_alive(one, now) for one in here)
                alive.add_metric([feed, slot], living)
                silent.add_metric([feed, slot], len(here) - living)
        yield alive
        yield silent
