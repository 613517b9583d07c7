"""How far consumers are behind: by topic and consumer, from positions and ends of topics."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from jobs.observe.lags import Positions, gateway_positions, lags, lowest, query_positions, topic_lags, with_lags

ENDS = {"ingress": [10, 20], "egress": [4], "presence": [0, 0]}


def test_lag_is_the_end_less_the_position_and_never_below_nothing() -> None:
    assert lags({"a": {0: 9, 1: 7}, "b": {0: 3}}, {"a": {0: 5, 1: 8}, "b": {0: 1}}) == {"a": 4, "b": 2}


def test_a_partition_without_position_counts_whole() -> None:
    assert lags({"a": {0: 9, 1: 7}}, {"a": {0: 9}}) == {"a": 7}


def test_every_topic_shows_its_consumers_the_slowest_first() -> None:
    consumers: dict[str, Positions] = {
        "router-active": {"ingress": {0: 10, 1: 20}},
        "messages": {"ingress": {0: 3, 1: 20}},
        "mirror": {"ingress": {0: 9, 1: 19}, "egress": {0: 0}, "elsewhere": {0: 5}},
        "gateway": {"egress": {0: 4}},
        "not-begun": {},
    }
    ingress, egress, presence = topic_lags(ENDS, consumers)
    assert ingress.report() == {
        "name": "ingress",
        "partitions": 2,
        "end_offset": 30,
        "end_offsets": [10, 20],
        "lag": 7,
        "lags": {"messages": 7, "mirror": 2, "router-active": 0},
    }
    assert list(ingress.lags) == ["messages", "mirror", "router-active"]
    assert egress.lags == {"mirror": 4, "gateway": 0}
    assert (presence.lags, presence.report()["lag"]) == ({}, None)


def test_a_querys_lag_is_that_of_all_its_topics_as_they_end_now() -> None:
    """A query that ends its batch without knowing the end of its topic has a lag all the same."""
    mirror = {"query": "mirror", "positions": {"ingress": {"0": 9, "1": 19}, "egress": {"0": 0}}, "lag": None}
    topics = topic_lags(ENDS, {"mirror": query_positions(mirror)})
    assert with_lags(mirror, topics) == {**mirror, "lag": 6, "lags": {"ingress": 2, "egress": 4}}


def test_without_a_broker_a_querys_own_word_stands() -> None:
    query = {"query": "messages", "lag": 3, "lags": {"ingress": 3}}
    assert with_lags(query, []) == query
    assert query_positions(query) == {}


class _Gateway(Collector):
    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("waystation_connections", "Open connections", value=3)
        positions = GaugeMetricFamily("waystation_position", "Position", labels=["topic", "partition"])
        positions.add_metric(["ws.egress", "0"], 7)
        positions.add_metric(["ws.egress", "1"], 12_345_678_901)
        yield positions


class _Answer(BaseHTTPRequestHandler):
    body = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), _Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_gateway_tells_its_positions_in_its_metrics(server: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"127.0.0.1:{server.server_port}"
    registry = CollectorRegistry()
    registry.register(_Gateway())
    monkeypatch.setattr(_Answer, "body", generate_latest(registry))
    assert gateway_positions(address) == {"ws.egress": {0: 7, 1: 12_345_678_901}}
    monkeypatch.setattr(_Answer, "body", b"<html>another program</html>")
    assert gateway_positions(address) == {}


def test_a_gateway_that_does_not_answer_has_no_positions() -> None:
    assert gateway_positions("127.0.0.1:1") == {}


def test_gateways_that_share_the_partitions_are_one_consumer() -> None:
    """Each has positions of its own shards. Of what several read, the one that is behind counts."""
    together = lowest([{"egress": {0: 7}, "retained": {0: 5}}, {"egress": {1: 9}, "retained": {0: 4}}, {}])
    assert together == {"egress": {0: 7, 1: 9}, "retained": {0: 4}}
    assert topic_lags({"egress": [8, 9]}, {"gateway": together})[0].lags == {"gateway": 1}
