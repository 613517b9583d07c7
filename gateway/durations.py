"""Prometheus histograms, in seconds, of durations measured where they happen; the scrape shows them.

Nothing here runs for every message: frequent events are sampled by the code that observes them.
"""

from prometheus_client import Histogram

_MILLISECOND = 0.001


def _histogram(name: str, meaning: str, buckets_ms: tuple[float, ...]) -> Histogram:
    return Histogram(name, meaning, registry=None, buckets=[ms * _MILLISECOND for ms in buckets_ms])


def kafka_produce() -> Histogram:
    """From `produce` to the delivery report, for a sample of the records."""
    return _histogram(
        "waystation_kafka_produce_seconds",
        "From producing a record to its delivery report; measured for one record in 64 and the first after a pause",
        (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000, 30_000),
    )


def checkpoint() -> Histogram:
    """One checkpoint, from its start to its commit in the spool."""
    return _histogram(
        "waystation_checkpoint_seconds",
        "How long checkpoints take, including the commit to the spool",
        (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000, 30_000),
    )


def event_loop_lag() -> Histogram:
    """How late the event loop ran a timer."""
    return _histogram(
        "waystation_event_loop_lag_seconds",
        "How late the event loop runs, measured twice a second",
        (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000),
    )
