"""What each streaming query last did, as a JSON file: `<data>/status/<query>.json`, replaced at each progress.

`{"query", "part", "batch_id", "batch_ms", "steps_ms", "rows_per_s", "input_rows", "lag", "state_rows", "late_rows",
"at_ms",
"error"}`: `lag` records on the topics that the query has not taken yet; `state_rows` rows of state; `late_rows` rows
that the watermark has dropped since the query was started, which nothing else tells of; `at_ms` when this was written,
ms since the epoch; `error` why the query ended, null once it goes again. A query's name is without its generation.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from pyspark.sql.streaming import StreamingQueryListener
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    SourceProgress,
    StreamingQueryProgress,
)

from pipelines.streams import StreamId
from schemas.readiness import read_json, write_json

ERROR_CHARACTERS = 500


def status_file(data: str | Path, query: str) -> Path:
    return Path(data) / "status" / f"{query}.json"


class StatusListener(StreamingQueryListener):
    """Writes the status files of all queries of one application (`part`); `clock` gives seconds since the epoch.

    Spark calls it from one thread, after the fact: a file may be behind the query by a moment.
    """

    def __init__(self, data: str | Path, part: str, clock: Callable[[], float]) -> None:
        self._data = data
        self._part = part
        self._clock = clock
        self._statuses: dict[UUID, dict[str, Any]] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark\'s name
        self._begun(event.runId, event.name or str(event.id))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark\'s name
        progress = event.progress
        status = self._begun(progress.runId, progress.name or str(progress.id))
        late = sum(operator.numRowsDroppedByWatermark for operator in progress.stateOperators)
        status["late_rows"] += late
        self._write(status, **measures(progress))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark\'s name
        status = self._statuses.get(event.runId, {})
        if "batch_id" in status:
            self._write(status, rows_per_s=0.0, input_rows=0, lag=0)

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
    return {
        "batch_id": progress.batchId,
        "batch_ms": progress.batchDuration,
        "steps_ms": dict(progress.durationMs),
        "rows_per_s": round(progress.processedRowsPerSecond or 0.0, 1),
        "input_rows": progress.numInputRows or 0,
        "lag": sum(lag(source) for source in progress.sources),
        "state_rows": sum(operator.numRowsTotal for operator in progress.stateOperators),
    }


def lag(source: SourceProgress) -> int:
    """Records between where a Kafka source is and where its topics end; 0 for a source that does not say."""
    try:
        end, latest = json.loads(source.endOffset), json.loads(source.latestOffset)
        return sum(
            max(0, offset - end.get(topic, {}).get(partition, 0))
            for topic, partitions in latest.items()
            for partition, offset in partitions.items()
        )
    except (TypeError, ValueError, AttributeError):
        return 0


def first_line(error: str) -> str:
    """The part of a Java exception that a person reads."""
    return error.strip().split("\n", 1)[0][:ERROR_CHARACTERS]
