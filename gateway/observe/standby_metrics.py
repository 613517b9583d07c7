"""The links of this gateway to others, and how warm it keeps their shards, as Prometheus metrics (Q6, Q7)."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

LINK_STATES: Final = ("up", "dialling", "down")


class Followed(NamedTuple):
    """A shard that this gateway keeps warm. `behind`: records that are not applied yet, None if that is not known;
    `behind_s`: for how many seconds the first of them has waited, 0 if there are none, None as `behind`."""

    behind: int | None
    is_warm: bool
    behind_s: float | None = None


class StandbyFigures(NamedTuple):
    """`links`: the state of each, by member (:mod:`gateway.links.dialling`); `redials`: how often a link that had ended
    was dialled again to know why; `followed`: by shard."""

    links: Mapping[str, str] = {}
    redials: int = 0
    followed: Mapping[int, Followed] = {}


class StandbyMetrics(Collector):
    """`figures` gives those of the moment. Call it on the event loop."""

    def __init__(self, figures: Callable[[], StandbyFigures]) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        figures = self._figures()
        found = Counter(figures.links.values())
        links = GaugeMetricFamily("waystation_links", "Links of this gateway to others, by state", labels=["state"])
        for state in LINK_STATES:
            links.add_metric([state], found[state])
        yield links
        up = GaugeMetricFamily(
            "waystation_link_up", "1 for a link of this gateway to another that is up, else 0", labels=["member"]
        )
        for member, state in sorted(figures.links.items()):
            up.add_metric([member], int(state == "up"))
        yield up
        yield CounterMetricFamily(
            "waystation_link_redials", "Links that had ended and were dialled again to know why", value=figures.redials
        )
        behind = GaugeMetricFamily(
            "waystation_standby_behind_records",
            "Records of a followed shard that its standby here has not applied yet; none while that is not known",
            labels=["shard"],
        )
        behind_s = GaugeMetricFamily(
            "waystation_standby_behind_seconds",
            "For how long records of a followed shard have waited to be applied here; none while that is not known",
            labels=["shard"],
        )
        warm = GaugeMetricFamily(
            "waystation_standby_warm", "1 for a followed shard that is warm here, else 0", labels=["shard"]
        )
        for shard, followed in sorted(figures.followed.items()):
            if followed.behind is not None:
                behind.add_metric([str(shard)], followed.behind)
            if followed.behind_s is not None:
                behind_s.add_metric([str(shard)], followed.behind_s)
            warm.add_metric([str(shard)], int(followed.is_warm))
        yield behind
        yield behind_s
        yield warm
