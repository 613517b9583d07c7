"""Status files: what is reckoned from a progress, and written, without Spark."""

import contextlib
import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from jobs.observe.progress import StatusListener, first_line, measures, offsets, status_file
from pipelines.storage.local_database import LocalDatabase, Taken, file_of, measures_of
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
        "timestamp": "2026-01-01T00:00:00.000Z",
        "eventTime": {},
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


def test_lag_is_of_what_was_there_when_the_batch_began() -> None:
    """A router takes what comes during its batch, too: it ends behind where the topic ended when it began."""
    measured = measures(progress(source('{"a":{"0":500,"1":600}}', '{"a":{"0":520,"1":508}}')))
    assert (measured["lags"], measured["lag"]) == ({"a": 20}, 20)


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
        "state": None,
        "failures": 0,
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


def test_of_an_error_stays_what_a_person_reads() -> None:
    assert first_line("  disk full\n\tat java…") == "disk full"
    python = "it ended: Traceback (most recent call last):\n  File 'x'\n    y()\nOSError: disk full\n\n at z"
    assert first_line(python) == "it ended: OSError: disk full"
    tree = "OSError: store error\n   \x1b[31m↳\x1b[0m cannot copy\n      \x1b[31m↳\x1b[0m disk full\n\n SQLSTATE: 1"
    whole = first_line(f"Traceback (most recent call last):\n  x\n{tree}")
    assert whole == "OSError: store error: cannot copy: disk full"
    assert first_line("Traceback (most recent call last):") == "Traceback (most recent call last):"
    assert len(first_line("x" * 10_000)) == 500


def test_a_failure_is_counted_once_and_progress_of_before_it_does_not_hide_it(tmp_path: Path) -> None:
    """The application tells of it, Spark tells of it, and Spark may tell of the last batch later than either."""
    listener = StatusListener(tmp_path, "ledger", clock=lambda: 12.5)
    done = progress(source('{"a":{"0":5}}', '{"a":{"0":6}}'))

    def status() -> tuple[str | None, int]:
        written = read_json(status_file(tmp_path, "messages")) or {}
        return written["error"], written["failures"]

    listener.onQueryStarted(SimpleNamespace(runId=1, id=0, name="messages-1"))  # type: ignore[arg-type]
    listener.onQueryProgress(SimpleNamespace(progress=done))  # type: ignore[arg-type]
    listener.failed("messages", "disk full")
    listener.onQueryProgress(SimpleNamespace(progress=done))  # type: ignore[arg-type]
    listener.onQueryTerminated(SimpleNamespace(runId=1, exception="disk full"))  # type: ignore[arg-type]
    assert status() == ("disk full", 1)
    listener.onQueryStarted(SimpleNamespace(runId=2, id=0, name="messages-1"))  # type: ignore[arg-type]
    again = SimpleNamespace(**(vars(done) | {"runId": 2}))
    listener.onQueryProgress(SimpleNamespace(progress=again))  # type: ignore[arg-type]
    assert status() == (None, 1)


def test_watchers_are_told_by_query_what_was_measured(tmp_path: Path) -> None:
    told: list[tuple[Any, ...]] = []

    class Watching:
        def begun(self, query: str) -> None:
            told.append(("begun", query))

        def progressed(self, query: str, measured: Any) -> None:
            told.append(("progressed", query, measured["input_rows"]))

        def rested(self, query: str, topics: Any) -> None:
            told.append(("rested", query, list(topics)))

        def failed(self, query: str, error: str) -> None:
            told.append(("failed", query, error))

    listener = StatusListener(tmp_path, "ledger", lambda: 12.5, [Watching()])
    done = SimpleNamespace(progress=progress(source('{"a":{"0":5}}', None)))
    listener.onQueryStarted(SimpleNamespace(runId=1, id=0, name="messages-1"))  # type: ignore[arg-type]
    listener.onQueryIdle(SimpleNamespace(runId=1))  # type: ignore[arg-type]
    listener.onQueryProgress(done)  # type: ignore[arg-type]
    listener.onQueryProgress(done)  # type: ignore[arg-type]
    listener.onQueryIdle(SimpleNamespace(runId=1))  # type: ignore[arg-type]
    listener.failed("messages", "disk full\n\tat java…")
    assert told == [
        ("begun", "messages"),
        ("rested", "messages", []),
        ("progressed", "messages", 3),
        ("progressed", "messages", 3),
        ("rested", "messages", ["a"]),
        ("failed", "messages", "disk full"),
    ]


def test_a_status_that_cannot_be_written_ends_nothing_and_is_written_later(tmp_path: Path) -> None:
    """As on a full disk: a failure is reported by the application's own loop, and the watchers need to know it."""
    failed: list[str] = []
    watching = SimpleNamespace(failed=lambda query, error: failed.append(query), begun=lambda query: None)
    listener = StatusListener(tmp_path, "ledger", lambda: 12.5, [watching])
    in_the_way = status_file(tmp_path, "messages")
    in_the_way.mkdir(parents=True)
    with structlog.testing.capture_logs() as logged:
        listener.failed("messages", "disk full")
        listener.failed("messages", "disk full")
        assert (failed, len(logged)) == (["messages", "messages"], 1)
        in_the_way.rmdir()
        listener.failed("messages", "disk full")
    assert [line["event"] for line in logged][1:] == ["the status is written again"]
    assert (read_json(status_file(tmp_path, "messages")) or {})["failures"] == 3


def test_what_a_query_remembers_is_told_from_its_file(tmp_path: Path) -> None:
    told: list[Any] = []

    class Watching:
        def progressed(self, query: str, measured: Any) -> None:
            told.append(measured["state"])

        def begun(self, query: str) -> None: ...

    file = file_of(tmp_path / "states", "messages")
    database = LocalDatabase(file, "")
    with database.connection:
        database.take(Taken(1, "q", 4), 7, 3, 2, 1)
    listener = StatusListener(tmp_path, "ledger", lambda: 12.5, [Watching()])  # type: ignore[list-item]
    listener.onQueryProgress(SimpleNamespace(progress=progress(source('{"a":{"0":5}}', None))))  # type: ignore[arg-type]
    written = (read_json(status_file(tmp_path, "messages")) or {})["state"]
    assert told == [written]
    assert written.pop("disk_bytes") > 0
    assert written == {"rows": 7, "updated_rows": 3, "removed_rows": 2, "copies": 1}


def test_a_file_has_one_connection(tmp_path: Path) -> None:
    """Looking at what a query remembers opens no second one; no other process can; a later run takes the file over."""
    file = file_of(tmp_path, "messages")
    first = LocalDatabase(file, "")
    with first.connection:
        first.take(Taken(1, "q", 4), 7, 3, 2, 1)
    assert (measures_of(file) or {})["rows"] == 7
    other = sqlite3.connect(file, timeout=0)
    with contextlib.closing(other), pytest.raises(sqlite3.OperationalError, match="locked"):
        other.execute("SELECT * FROM batches")
    second = LocalDatabase(file, "")
    assert second.taken == Taken(1, "q", 4)
    with pytest.raises(sqlite3.OperationalError, match="belongs to a later run"):
        _ = first.connection
    assert (measures_of(file) or {})["rows"] == 7
    del first, second
    assert (measures_of(file) or {})["rows"] == 7, "read from the file, which nobody has open"
