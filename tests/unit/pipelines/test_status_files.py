"""Status files: what is reckoned from a progress, and written, without Spark."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from jobs.progress import StatusListener, measures, offsets, status_file
from schemas.readiness import read_json


def source(end: str | None, latest: str | None) -> Any:
    return SimpleNamespace(endOffset=end, latestOffset=latest)


def progress(*sources: Any, **fields: Any) -> Any:
    values = {
        "runId": 1,
        "id": 0,
        "name": "messages-1",
        "batchId": 4,
        "batchDuration": 20,
        "durationMs": {"queryPlanning": 3},
        "processedRowsPerSecond": 10.04,
        "numInputRows": 3,
        "sources": list(sources),
        "stateOperators": [SimpleNamespace(numRowsDroppedByWatermark=2)],
    }
    return SimpleNamespace(**values | fields)


def test_lag_is_by_topic_and_summed() -> None:
    measured = measures(
        progress(
            source('{"a":{"0":5,"1":7},"b":{"0":1}}', '{"a":{"0":9,"1":7},"b":{"0":3}}'),
            source('{"c":{"0":4}}', '{"c":{"0":4}}'),
        )
    )
    assert measured["positions"] == {"a": {0: 5, 1: 7}, "b": {0: 1}, "c": {0: 4}}
    assert measured["lags"] == {"a": 4, "b": 2, "c": 0}
    assert measured["lag"] == 6


def test_a_source_that_does_not_say_where_its_topic_ends_has_a_position_and_no_lag() -> None:
    measured = measures(progress(source('{"a":{"0":9}}', None)))
    assert (measured["positions"], measured["lags"], measured["lag"]) == ({"a": {0: 9}}, {}, None)


def test_a_source_without_offsets_is_at_no_position() -> None:
    for text in (None, "", "null", "3", '"x"', '{"a": 1}', '{"a": {"x": 1}}', '{"a": {"0": null}}'):
        assert offsets(text) == {}, text
    measured = measures(progress(source(None, '{"a":{"0":9}}')))
    assert (measured["positions"], measured["lags"], measured["lag"]) == ({}, {}, None)


def test_error_stays_until_the_query_goes_again(tmp_path: Path) -> None:
    listener = StatusListener(tmp_path, "ledger", clock=lambda: 12.5)
    done = progress(source('{"a":{"0":5}}', '{"a":{"0":6}}'))

    def event(**fields: Any) -> Any:
        return SimpleNamespace(**fields)

    def status() -> dict[str, Any]:
        return read_json(status_file(tmp_path, "messages")) or {}

    listener.onQueryStarted(event(runId=1, id=0, name="messages-1"))
    listener.onQueryProgress(event(progress=done))
    assert status() == {
        "query": "messages",
        "part": "ledger",
        "batch_id": 4,
        "batch_ms": 20,
        "steps_ms": {"queryPlanning": 3},
        "rows_per_s": 10.0,
        "input_rows": 3,
        "positions": {"a": {"0": 5}},
        "lags": {"a": 1},
        "lag": 1,
        "late_rows": 2,
        "at_ms": 12500,
        "error": None,
    }
    listener.onQueryTerminated(event(runId=1, exception="disk full\n\tat java…"))
    assert status()["error"] == "disk full"
    listener.onQueryStarted(event(runId=2, id=0, name="messages-1"))
    assert status()["error"] == "disk full"
    listener.onQueryProgress(event(progress=SimpleNamespace(**(vars(done) | {"runId": 2}))))
    assert status()["error"] is None
    listener.onQueryIdle(event(runId=2))
    assert (status()["input_rows"], status()["batch_id"]) == (0, 4)
    assert (status()["lags"], status()["lag"]) == ({"a": 0}, 0)
