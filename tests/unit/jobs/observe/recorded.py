"""Progress of real queries, as a running stack's Spark told it (`progress.json`, without most of RocksDB's figures),
and a Spark application's observer without Spark."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql.streaming.listener import StreamingQueryProgress

from jobs.observe.observer import Observer
from jobs.observe.progress import measures
from jobs.observe.server import ListenAddress
from pipelines.streams import StreamId
from schemas.settings import LogSettings

HOST = "127.0.0.1"
NOW = 1_700_000_000.0
LOG = LogSettings(level="debug", format="json", slow_batch_triggers=3.0, lag_records=1000, progress_every_s=60.0)

Samples = dict[tuple[str, tuple[str, ...]], float]


def recorded() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(Path(__file__).with_name("progress.json").read_text())
    return found


def progress_of(query: str) -> dict[str, Any]:
    """The first one of this query."""
    return next(one for one in recorded() if StreamId.parse(one["name"]).query == query)


def measured(progress: dict[str, Any]) -> dict[str, Any]:
    return measures(StreamingQueryProgress.fromJson(progress))


@contextmanager
def observer(name: str = "ledger", port: int = 0, awaits_address: bool = False) -> Iterator[Observer]:
    """One that serves on a free port."""
    listen_at = ListenAddress(HOST, port, "ledger.metrics_host", "ledger.metrics_port")
    this = Observer(name, listen_at, LOG, lambda: NOW, awaits_address)
    try:
        yield this
    finally:
        this.stop()


def address(this: Observer) -> str:
    return next(iter(this.listeners.values()))


def get(this: Observer, path: str) -> tuple[int, str]:
    """Status and text of an answer."""
    try:
        with urlopen(f"http://{address(this)}{path}", timeout=20) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def samples(this: Observer) -> Samples:
    """What `/metrics` says: by name and values of labels, which are in the order of their names."""
    status, text = get(this, "/metrics")
    assert status == 200
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def tell(this: Observer, query: str, **changes: Any) -> None:
    """Tells the observer of the recorded batch of a query, with some measures changed."""
    for watcher in this.watchers:
        watcher.progressed(query, measured(progress_of(query)) | changes)
