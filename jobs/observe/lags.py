"""How far each consumer lags behind the end of its topics: ends from the broker, positions from the consumers.

A streaming query reports its positions in its status file (:mod:`jobs.observe.progress`), at the end of each batch; a
gateway in its metrics, at any time. So a query's lag includes what has arrived since its last batch: for a router up to
a `router.batch_s` of traffic that it may already have routed.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

POSITION_METRIC = "waystation_position"
TIMEOUT_S = 2.0

Positions = dict[str, dict[int, int]]
"""By topic and partition, the offset of the first record not processed."""


class TopicLag(NamedTuple):
    """The ends of a topic's partitions, and by consumer the number of records that it has not processed yet."""

    name: str
    end_offsets: list[int]
    lags: dict[str, int]

    def report(self) -> dict[str, Any]:
        """In the form of `status --json`."""
        return {
            "name": self.name,
            "partitions": len(self.end_offsets),
            "end_offset": sum(self.end_offsets),
            "end_offsets": self.end_offsets,
            "lag": max(self.lags.values(), default=None),
            "lags": self.lags,
        }


def lags(ends: Mapping[str, Mapping[int, int]], positions: Mapping[str, Mapping[int, int]]) -> dict[str, int]:
    """By topic of `ends`, the records between the positions and the ends; a partition without position counts whole."""
    return {
        topic: sum(max(0, end - positions.get(topic, {}).get(partition, 0)) for partition, end in partitions.items())
        for topic, partitions in ends.items()
    }


def topic_lags(ends: Mapping[str, list[int]], consumers: Mapping[str, Positions]) -> list[TopicLag]:
    """Every topic of `ends` with the lag of each consumer that has positions on it, the largest first."""
    by_consumer = {
        consumer: lags({topic: dict(enumerate(ends[topic])) for topic in positions if topic in ends}, positions)
        for consumer, positions in consumers.items()
    }
    found = []
    for topic, end_offsets in ends.items():
        of_topic = {consumer: of[topic] for consumer, of in by_consumer.items() if topic in of}
        biggest_first = sorted(of_topic.items(), key=lambda item: (-item[1], item[0]))
        found.append(TopicLag(topic, end_offsets, dict(biggest_first)))
    return found


def query_positions(status: Mapping[str, Any]) -> Positions:
    """The positions in a status file, empty if it has none."""
    return {topic: {int(n): offset for n, offset in of.items()} for topic, of in status.get("positions", {}).items()}


def with_lags(query: dict[str, Any], topics: Iterable[TopicLag]) -> dict[str, Any]:
    """The status of a query with its lag behind the topics' present ends; unchanged if it consumes none of the
    topics."""
    mine = {topic.name: topic.lags[query["query"]] for topic in topics if query["query"] in topic.lags}
    return {**query, "lag": sum(mine.values()), "lags": mine} if mine else query


def gateway_positions(address: str) -> Positions:
    """Positions of the gateway whose metrics are served at `address`, `host:port`; empty if it does not answer."""
    try:
        with urlopen(f"http://{address}/metrics", timeout=TIMEOUT_S) as answer:
            return parse_positions(answer.read().decode())
    except (URLError, OSError, ValueError):
        return {}


def lowest(several: Iterable[Positions]) -> Positions:
    """The positions of consumers together: of a partition that several have, the lowest."""
    found: Positions = {}
    for positions in several:
        for topic, partitions in positions.items():
            together = found.setdefault(topic, {})
            for partition, offset in partitions.items():
                together[partition] = min(offset, together.get(partition, offset))
    return found


def parse_positions(metrics: str) -> Positions:
    """The positions among metrics in Prometheus text format. ValueError if the text is malformed."""
    positions: Positions = {}
    for family in text_string_to_metric_families(metrics):
        if family.name == POSITION_METRIC:
            for sample in family.samples:
                partitions = positions.setdefault(sample.labels["topic"], {})
                partitions[int(sample.labels["partition"])] = int(sample.value)
    return positions
