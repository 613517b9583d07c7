"""Whether a Spark application can do its work, by query: what `/readyz` and `waystation_query_up` report."""

from collections.abc import Iterable, Iterator, Mapping
from threading import Lock
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from schemas.readiness import readiness_report

STARTING = "starting: the Spark session or the tables do not exist yet"
STOPPING = "stopping"
AWAITED = "not started yet"
BEGUN = "started, but has not finished a batch yet"


class Readiness(Collector):
    """The fault of each part, "" if there is none; updated by the listener and the application, read from any thread.

    A query is ready from the end of its first batch, or once it reports that it has nothing to do, until it fails; one
    in Real-Time Mode from when its records flow, which the application reports (:meth:`runs`).
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._queries: dict[str, str] = {}
        self._phase = STARTING

    def expect(self, queries: Iterable[str]) -> None:
        """The application has its queries now: only they can still keep it from being ready."""
        with self._lock:
            self._queries = dict.fromkeys(queries, AWAITED)
            self._phase = ""

    def ends(self) -> None:
        """The application is being stopped."""
        with self._lock:
            self._phase = STOPPING

    def begun(self, query: str) -> None:
        with self._lock:
            if self._queries.get(query) == AWAITED:
                self._queries[query] = BEGUN

    def runs(self, query: str) -> None:
        with self._lock:
            self._queries[query] = ""

    def progressed(self, query: str, _measured: Mapping[str, Any]) -> None:
        self.runs(query)

    def rested(self, query: str, _topics: Mapping[str, Any]) -> None:
        self.runs(query)

    def failed(self, query: str, error: str) -> None:
        with self._lock:
            self._queries[query] = f"failed: {error}"

    def faults(self) -> dict[str, str]:
        """`application`, and the queries by name."""
        with self._lock:
            return {"application": self._phase, **self._queries}

    def report(self) -> dict[str, object]:
        """The content of `/readyz`."""
        return readiness_report(self.faults())

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily(
            "waystation_query_up", "1 if the query is running, 0 if it has failed or is starting", labels=["query"]
        )
        with self._lock:
            queries = dict(self._queries)
        for query, fault in queries.items():
            up.add_metric([query], int(not fault))
        yield up
