"""Status files: what is reckoned from a progress, and written, without Spark."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from jobs.progress import StatusListener, lag, status_file
from schemas.readiness import read_json


def source(end: str | None, latest: str | None) -> Any:
    return SimpleNamespace(endOffset=end, latestOffset=latest)


def test_lag_is_summed_over_topics_and_partitions() -> None:
    assert lag(source('{"a":{"0":5,"1":7},"b":{"0":1}}', '{"a":{"0":9,"1":7},"b":{"0":3}}')) == 6
    assert lag(source(None, '{"a":{"0":9}}')) == 0
    assert lag(source('{"a":{"0":9}}', "null")) == 0


def test_error_stays_until_the_query_goes_again(tmp_path: Path) -> None:
    listener = StatusListener(tmp_path, "ledger", clock=lambda: 12.5)
    progress = SimpleNamespace(
        runId=1,
        id=0,
        name="messages-1",
        batchId=4,
        batchDuration=20,
        durationMs={"queryPlanning": 3},
        processedRowsPerSecond=10.04,
        numInputRows=3,
        sources=[source('{"a":{"0":5}}', '{"a":{"0":6}}')],
        stateOperators=[SimpleNamespace(numRowsTotal=7, numRowsDroppedByWatermark=2)],
    )

    def event(**fields: Any) -> Any:
        return SimpleNamespace(**fields)

    def status() -> dict[str, Any]:
        return read_json(status_file(tmp_path, "messages")) or {}

    listener.onQueryStarted(event(runId=1, id=0, name="messages-1"))
    listener.onQueryProgress(event(progress=progress))
    assert status() == {
        "query": "messages",
        "part": "ledger",
        "batch_id": 4,
        "batch_ms": 20,
        "steps_ms": {"queryPlanning": 3},
        "rows_per_s": 10.0,
        "input_rows": 3,
        "lag": 1,
        "state_rows": 7,
        "late_rows": 2,
        "at_ms": 12500,
        "error": None,
    }
    listener.onQueryTerminated(event(runId=1, exception="disk full\n\tat java…"))
    assert status()["error"] == "disk full"
    listener.onQueryStarted(event(runId=2, id=0, name="messages-1"))
    assert status()["error"] == "disk full"
    listener.onQueryProgress(event(progress=SimpleNamespace(**(vars(progress) | {"runId": 2}))))
    assert status()["error"] is None
    listener.onQueryIdle(event(runId=2))
    assert (status()["input_rows"], status()["batch_id"]) == (0, 4)
