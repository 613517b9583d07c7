"""What each streaming query last did, as a JSON file: `<data>/status/<query>.json`, replaced at each progress.

* `query`, `part`: its name without generation, and the application that runs it
* `batch_id`, `batch_ms`, `steps_ms`: the last batch, how long it took, and how long each step of it
* `rows_per_s`, `input_rows`: rows of the last batch
* `positions`: `{topic: {partition: offset}}`, the first record of each partition that the query has not processed
* `lags`, `lag`: `{topic: records}` that existed when the batch began and that it has not processed, and their sum:
  Spark reads a topic's end before a batch, not after. Topics whose end Spark does not report are left out; `lag` is
  null if none is reported.
* `freshness_s`: from the append of the newest message of the last batch to the batch's end; of queries whose rows are
  about messages, once they had one
* `state`: `rows` and `disk_bytes` of what it remembers between batches, and of the last batch `updated_rows`,
  `removed_rows`, and `copies` (rows dropped as copies of others); null if it remembers nothing
* `failures`: how often it has failed since the application was started
* `at_ms`: when this was written, ms since the epoch
* `error`: why the query ended, null once it runs again
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

import structlog
from pyspark import SparkContext
from pyspark.sql.streaming import StreamingQueryListener
from pyspark.sql.streaming.listener import (
    JStreamingQueryListener,
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryProgress,
)

from jobs.observe.lags import Positions, lags
from pipelines.kafka.positions import offsets
from pipelines.storage.local_database import file_of, measures_of
from pipelines.streams import StreamId
from schemas.readiness import read_json, write_json

ERROR_CHARACTERS = 500
TRACEBACK = "Traceback (most recent call last):"
CAUSE = "↳"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")

log = structlog.get_logger(__name__)


def status_file(data: str | Path, query: str) -> Path:
    return Path(data) / "status" / f"{query}.json"


class Watcher(Protocol):
    """A listener for what the queries do, by their names without generation; called on Spark's thread or the
    application's. `measured`: the measures of a batch (:func:`measures`); `topics`: those that an idle query reads.
    """

    def begun(self, query: str) -> None: ...

    def progressed(self, query: str, measured: Mapping[str, Any]) -> None: ...

    def rested(self, query: str, topics: Mapping[str, Any]) -> None: ...

    def failed(self, query: str, error: str) -> None: ...


class _ProgressAsJson(JStreamingQueryListener):
    """The listener that Spark's JVM calls. It gets a progress in one piece, as JSON.

    PySpark's own conversion calls the JVM some 600 times a progress, and at the end of each map makes it search all
    jars for a class that is in none: this took a tenth of the ledger's CPU time.
    """

    def onQueryProgress(self, jevent: Any) -> None:  # noqa: N802 - Spark's name
        progress = StreamingQueryProgress.fromJson(json.loads(jevent.progress().json()))
        self.pylistener.onQueryProgress(QueryProgressEvent(progress))


class StatusListener(StreamingQueryListener):
    """Writes the status files of all queries of one application (`part`), and informs the watchers; `clock` gives
    seconds since the epoch.

    Spark calls it from one thread, after the fact: a file may lag behind the query by a moment.
    """

    def __init__(
        self, data: str | Path, part: str, clock: Callable[[], float], watchers: Iterable[Watcher] = ()
    ) -> None:
        self._data = data
        self._part = part
        self._clock = clock
        self._watchers = tuple(watchers)
        self._failures = Counter[str]()
        self._ended: set[UUID] = set()
        """Runs that have failed: later reports about them are out of date."""
        self._statuses: dict[UUID, dict[str, Any]] = {}
        self._unwritten: set[str] = set()
        """Queries whose file could not be written the last time."""

    @cached_property
    def _jlistener(self) -> Any:
        return SparkContext._jvm.PythonStreamingQueryListenerWrapper(_ProgressAsJson(self))  # type: ignore[union-attr]

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        status = self._begun(event.runId, event.name or str(event.id))
        for watcher in self._watchers:
            watcher.begun(status["query"])

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        progress = event.progress
        if progress.runId in self._ended:
            return
        status = self._begun(progress.runId, progress.name or str(progress.id))
        measured = measures(progress) | {"state": self._remembered(status["query"])}
        self._write(status, **measured)
        for watcher in self._watchers:
            watcher.progressed(status["query"], measured)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        status = self._statuses.get(event.runId, {})
        if "batch_id" in status:
            self._write(status, rows_per_s=0.0, input_rows=0, lag=0, lags=dict.fromkeys(status["positions"], 0))
        if status:
            for watcher in self._watchers:
                watcher.rested(status["query"], status.get("positions", {}))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        status = self._statuses.pop(event.runId, None)
        if status is not None and event.exception is not None:
            self._write(status, error=first_line(event.exception))

    def failed(self, query: str, error: str) -> None:
        """Record that a query has ended, or could not be started, which Spark does not report to listeners; the
        application calls this once for each failure."""
        self._failures[query] += 1
        for run in [run for run, status in list(self._statuses.items()) if status["query"] == query]:
            self._ended.add(run)
            self._statuses.pop(run, None)
        status = read_json(status_file(self._data, query)) or {"query": query, "part": self._part}
        self._write(status, error=first_line(error))
        for watcher in self._watchers:
            watcher.failed(query, first_line(error))

    def _remembered(self, query: str) -> Mapping[str, int] | None:
        return measures_of(file_of(Path(self._data) / "states", query))

    def _begun(self, run: UUID, name: str) -> dict[str, Any]:
        """The status of a run, a new one at its first report."""
        empty = {"query": StreamId.parse(name).query, "part": self._part, "error": None}
        return self._statuses.setdefault(run, empty)

    def _write(self, status: dict[str, Any], **news: Any) -> None:
        """A file that cannot be written (the disk is full) is an earlier one until the next report."""
        query = status["query"]
        status |= {**news, "failures": self._failures[query], "at_ms": int(self._clock() * 1000)}
        try:
            write_json(status_file(self._data, query), status)
        except OSError as error:
            if query not in self._unwritten:
                log.warning("cannot write the status, trying again at each report", query=query, error=str(error))
            self._unwritten.add(query)
        else:
            if query in self._unwritten:
                log.info("the status is written again", query=query)
            self._unwritten.discard(query)


def measures(progress: StreamingQueryProgress) -> dict[str, Any]:
    """The measures of a progress, as in the status file; `state` is reported elsewhere."""
    positions: Positions = {}
    ends: Positions = {}
    for source in progress.sources:
        positions |= offsets(source.endOffset)
        ends |= offsets(source.latestOffset)
    behind = lags({topic: ends[topic] for topic in ends if topic in positions}, positions)
    return {
        "batch_id": progress.batchId,
        "batch_ms": progress.batchDuration,
        "steps_ms": dict(progress.durationMs),
        "rows_per_s": round(progress.processedRowsPerSecond or 0.0, 1),
        "input_rows": progress.numInputRows or 0,
        "positions": positions,
        "lags": behind,
        "lag": sum(behind.values()) if behind else None,
        "state": None,
        **_times(progress),
    }


def _times(progress: StreamingQueryProgress) -> dict[str, float]:
    """`freshness_s`, if the progress has it."""
    youngest = progress.eventTime.get("max")
    if youngest is None:
        return {}
    ended_ms = _epoch_ms(progress.timestamp) + progress.batchDuration
    return {"freshness_s": round(max(0, ended_ms - _epoch_ms(youngest)) / 1000, 3)}


def _epoch_ms(moment: str) -> int:
    return round(datetime.fromisoformat(moment).timestamp() * 1000)


def first_line(error: str) -> str:
    """The part of an exception that a person reads. Java: the first line; Python inside it, if that line begins a
    traceback: the traceback's last line; deltalake: its causes too, which it draws below as a tree."""
    line, _, rest = error.strip().partition("\n")
    if line.endswith(TRACEBACK):
        below = rest.splitlines()
        at = next((n for n, text in enumerate(below) if text.strip() and not text[0].isspace()), len(below))
        causes = [text.partition(CAUSE)[2] for text in below[at + 1 :] if CAUSE in text]
        ends = [COLOUR.sub("", part).strip() for part in (*below[at : at + 1], *causes)]
        line = line.removesuffix(TRACEBACK) + (": ".join(ends) or TRACEBACK)
    return line.strip()[:ERROR_CHARACTERS]
