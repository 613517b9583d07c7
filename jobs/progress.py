"""What each streaming query last did, as a JSON file: `<data>/status/<query>.json`, replaced at each progress.

* `query`, `part`: its name without generation, and the application that runs it
* `batch_id`, `batch_ms`, `steps_ms`: the last batch, how long it took, and how long each step of it
* `rows_per_s`, `input_rows`: rows of the last batch
* `positions`: `{topic: {partition: offset}}`, the first record of each partition that the query has not taken
* `lags`, `lag`: `{topic: records}` not taken when the batch ended, and their sum. A topic of which Spark does not say
  where it ends is not among them; `lag` is null if none is.
* `late_rows`: rows that the watermark has dropped since the query was started, which nothing else tells of
* `at_ms`: when this was written, ms since the epoch
* `error`: why the query ended, null once it goes again
"""

import json
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import UUID

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

from jobs.lags import Positions, lags
from pipelines.streams import StreamId
from schemas.readiness import read_json, write_json

ERROR_CHARACTERS = 500


def status_file(data: str | Path, query: str) -> Path:
    return Path(data) / "status" / f"{query}.json"


class _ProgressAsJson(JStreamingQueryListener):
    """What Spark's JVM calls for a listener, with a progress taken over in one piece.

    PySpark's own conversion asks the JVM some 600 times a progress, and at the end of each map has it look through all
    jars for a class that is in none: it took a tenth of the ledger's CPU time.
    """

    def onQueryProgress(self, jevent: Any) -> None:  # noqa: N802 - Spark's name
        progress = StreamingQueryProgress.fromJson(json.loads(jevent.progress().json()))
        self.pylistener.onQueryProgress(QueryProgressEvent(progress))


class StatusListener(StreamingQueryListener):
    """Writes the status files of all queries of one application (`part`); `clock` gives seconds since the epoch.

    Spark calls it from one thread, after the fact: a file may be behind the query by a moment.
    """

    def __init__(self, data: str | Path, part: str, clock: Callable[[], float]) -> None:
        self._data = data
        self._part = part
        self._clock = clock
        self._statuses: dict[UUID, dict[str, Any]] = {}

    @cached_property
    def _jlistener(self) -> Any:
        return SparkContext._jvm.PythonStreamingQueryListenerWrapper(_ProgressAsJson(self))  # type: ignore[union-attr]

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        self._begun(event.runId, event.name or str(event.id))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        progress = event.progress
        status = self._begun(progress.runId, progress.name or str(progress.id))
        late = sum(operator.numRowsDroppedByWatermark for operator in progress.stateOperators)
        status["late_rows"] += late
        self._write(status, **measures(progress))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        status = self._statuses.get(event.runId, {})
        if "batch_id" in status:
            self._write(status, rows_per_s=0.0, input_rows=0, lag=0, lags=dict.fromkeys(status["positions"], 0))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        status = self._statuses.pop(event.runId, None)
        if status is not None and event.exception is not None:
            self._write(status, error=first_line(event.exception))

    def failed(self, query: str, error: str) -> None:
        """Write that a query has ended, or could not be started, which Spark does not tell a listener."""
        status = read_json(status_file(self._data, query)) or {"query": query, "part": self._part}
        self._write(status, error=first_line(error))

    def _begun(self, run: UUID, name: str) -> dict[str, Any]:
        """The status of a run, new if this is the first that is heard of it."""
        empty = {"query": StreamId.parse(name).query, "part": self._part, "late_rows": 0, "error": None}
        return self._statuses.setdefault(run, empty)

    def _write(self, status: dict[str, Any], **news: Any) -> None:
        status |= {**news, "at_ms": int(self._clock() * 1000)}
        write_json(status_file(self._data, status["query"]), status)


def measures(progress: StreamingQueryProgress) -> dict[str, Any]:
    """What a progress tells, as in the status file."""
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
    }


def offsets(text: str | None) -> Positions:
    """Offsets as a Kafka source writes them into a progress; empty for what is none (another source, nothing yet)."""
    try:
        found = json.loads(text or "")
        return {topic: {int(n): int(offset) for n, offset in of.items()} for topic, of in found.items()}
    except (TypeError, ValueError, AttributeError):
        return {}


def first_line(error: str) -> str:
    """The part of a Java exception that a person reads."""
    return error.strip().split("\n", 1)[0][:ERROR_CHARACTERS]
