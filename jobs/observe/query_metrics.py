"""Prometheus metrics of streaming queries, from the measures of each progress
(:func:`jobs.observe.progress.measures`)."""

from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

BATCH_BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 7.5, 10.0, 12.5, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0)

_STATE = {
    "rows": ("state_rows", "Rows in the query's state"),
    "disk_bytes": ("state_disk_bytes", "Size of the query's state file"),
}
"""By measure of `state`: the metric and its help text."""


class QueryMetrics:
    """Metrics of all queries of one application; updated by the listener, read at a scrape, from any thread.

    `clock` gives seconds since the epoch. A query's counters continue when it is restarted.
    """

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float]) -> None:
        self._clock = clock

        def counter(name: str, meaning: str, *labels: str) -> Counter:
            return Counter(f"waystation_query_{name}", meaning, ["query", *labels], registry=registry)

        def gauge(name: str, meaning: str, *labels: str) -> Gauge:
            return Gauge(f"waystation_query_{name}", meaning, ["query", *labels], registry=registry)

        self._trigger = gauge("trigger_seconds", "Trigger interval of the query")
        self._starts = counter("starts", "Starts of the query, including restarts after failures")
        self._failures = counter("failures", "Failures of the query, including failed starts")
        self._batches = counter("batches", "Finished batches")
        self._batch = Histogram(
            "waystation_query_batch_seconds",
            "Duration of a batch",
            ["query"],
            buckets=BATCH_BUCKETS_S,
            registry=registry,
        )
        self._steps = counter("step_seconds", "Time spent in each step of the batches", "step")
        self._rows = counter("rows", "Records read")
        self._rows_per_s = gauge("rows_per_second", "Records per second processed by the last batch")
        self._lag = gauge(
            "lag_records",
            "Records that were on the topic when the last batch began, and that the query has not read",
            "topic",
        )
        self._freshness = gauge(
            "freshness_seconds", "Time from the append of the newest message in the last batch to the end of the batch"
        )
        self._state = {measure: gauge(name, meaning) for measure, (name, meaning) in _STATE.items()}
        self._copies = counter("copies", "Duplicate rows dropped")
        self._updated = counter("state_rows_updated", "Rows of the state added or changed")
        self._removed = counter("state_rows_removed", "Rows of the state removed")
        self._heard = gauge(
            "last_progress_timestamp_seconds", "When the query last finished a batch or reported that it was idle"
        )

    def expect(self, triggers: Mapping[str, float]) -> None:
        """Queries by name with their triggers in seconds: counters exist from the start, so that their first increase
        is seen."""
        for query, trigger_s in triggers.items():
            self._trigger.labels(query).set(trigger_s)
            for of_query in (self._starts, self._failures, self._batches, self._batch, self._rows):
                of_query.labels(query)

    def begun(self, query: str) -> None:
        self._starts.labels(query).inc()

    def progressed(self, query: str, measured: Mapping[str, Any]) -> None:
        self._heard.labels(query).set(self._clock())
        self._batches.labels(query).inc()
        self._batch.labels(query).observe(measured["batch_ms"] / 1000)
        for step, took_ms in measured["steps_ms"].items():
            self._steps.labels(query, step).inc(took_ms / 1000)
        self._rows.labels(query).inc(measured["input_rows"])
        self._rows_per_s.labels(query).set(measured["rows_per_s"])
        for topic, records in measured["lags"].items():
            self._lag.labels(query, topic).set(records)
        if "freshness_s" in measured:
            self._freshness.labels(query).set(measured["freshness_s"])
        if measured["state"] is not None:
            self._take_state(query, measured["state"])

    def rested(self, query: str, topics: Mapping[str, Any]) -> None:
        self._heard.labels(query).set(self._clock())
        self._rows_per_s.labels(query).set(0)
        for topic in topics:
            self._lag.labels(query, topic).set(0)

    def failed(self, query: str, _error: str) -> None:
        self._failures.labels(query).inc()

    def _take_state(self, query: str, state: Mapping[str, Any]) -> None:
        for measure, gauge in self._state.items():
            gauge.labels(query).set(state[measure])
        self._updated.labels(query).inc(state["updated_rows"])
        self._removed.labels(query).inc(state["removed_rows"])
        self._copies.labels(query).inc(state["copies"])
