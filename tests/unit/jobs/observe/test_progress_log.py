"""Lines in the log about streaming queries: which, when, and with what."""

from typing import Any

import msgspec
import pytest
import structlog
from structlog.testing import capture_logs

from jobs.observe.progress_log import ProgressLog
from tests.unit.jobs.observe.recorded import LOG, measured, progress_of

TRIGGER_S = 10.0
QUERY = "outcomes"


@pytest.fixture
def told() -> ProgressLog:
    structlog.reset_defaults()  # the level that another test may have set
    log = ProgressLog(LOG, lambda: 0.0)
    log.expect({QUERY: TRIGGER_S})
    return log


def batch(**changes: Any) -> dict[str, Any]:
    return measured(progress_of(QUERY)) | {"batch_ms": 100, "lag": 0} | changes


def lines(told: ProgressLog, *batches: dict[str, Any]) -> list[tuple[str, str]]:
    """Level and event of what is said above debug level about these batches."""
    with capture_logs() as said:
        for one in batches:
            told.progressed(QUERY, one)
    return [(line["log_level"], line["event"]) for line in said if line["log_level"] != "debug"]


def test_each_batch_is_a_line_at_debug_level(told: ProgressLog) -> None:
    with capture_logs() as said:
        told.progressed(QUERY, batch())
    assert [(line["log_level"], line["event"], line["query"]) for line in said] == [("debug", "batch ended", QUERY)]
    assert said[0]["batch_ms"] == 100
    assert said[0]["input_rows"] == progress_of(QUERY)["numInputRows"]


def test_now_and_then_a_line_sums_up_what_a_query_has_done(told: ProgressLog) -> None:
    """Batch time, rows a second, lag and state, at info level, once a `progress_every_s` and not for each batch."""
    now = [0.0]
    told = ProgressLog(LOG, lambda: now[0])
    told.begun(QUERY)
    with capture_logs() as said:
        for at in (20.0, 40.0, 60.0, 80.0):
            now[0] = at
            told.progressed(QUERY, batch(batch_ms=int(at), input_rows=200, lag=7))
        for at in (125.0, 190.0, 250.0):
            now[0] = at
            told.progressed(QUERY, batch(input_rows=200 if at == 125 else 0))
    summed = [line for line in said if line["event"] == "query progress"]
    assert [(line["log_level"], line["query"]) for line in summed] == [("info", QUERY)] * 2
    first, second = summed
    assert (first["over_s"], first["batches"], first["rows"], first["rows_per_s"]) == (60.0, 3, 600, 10.0)
    assert (first["longest_batch_ms"], first["lag"], first["state"]) == (60, 7, None)
    assert (second["over_s"], second["rows"]) == (65.0, 400)


def test_sums_can_be_left_out() -> None:
    now = [0.0]
    told = ProgressLog(msgspec.structs.replace(LOG, progress_every_s=0), lambda: now[0])
    told.begun(QUERY)
    now[0] = 1e6
    assert lines(told, batch(input_rows=5)) == []


def test_started_and_recovered_are_said_once(told: ProgressLog) -> None:
    with capture_logs() as said:
        told.begun(QUERY)
        told.progressed(QUERY, batch())
        told.failed(QUERY, "disk full")
        told.begun(QUERY)
        told.rested(QUERY, {})
        told.progressed(QUERY, batch())
    events = [line["event"] for line in said if line["log_level"] != "debug"]
    assert events == ["query started", "query started", "query recovered"]


def test_a_slow_batch_is_said_with_what_took_longest_but_not_the_first_of_a_run(told: ProgressLog) -> None:
    slow = batch(batch_ms=31_000, steps_ms={"triggerExecution": 31_000, "addBatch": 20_000, "walCommit": 9_000})
    assert lines(told, slow) == []
    assert lines(told, batch(batch_ms=30_000)) == []
    with capture_logs() as said:
        told.progressed(QUERY, slow)
    warned = said[-1]
    assert (warned["event"], warned["took_s"], warned["trigger_s"]) == ("slow batch", 31.0, TRIGGER_S)
    assert warned["longest_step"] == "addBatch"
    told.begun(QUERY)
    assert lines(told, slow) == []


def test_a_lag_is_said_when_it_passes_the_bound_when_it_doubles_and_when_it_is_over(told: ProgressLog) -> None:
    grows, over = ("warning", "query lags"), ("info", "query caught up")
    assert lines(told, *[batch(lag=lag) for lag in (999, 1000, 1500, 1999)]) == [grows]
    assert lines(told, *[batch(lag=lag) for lag in (2000, 3000, 4100)]) == [grows, grows]
    assert lines(told, batch(lag=None), batch(lag=1200)) == []
    assert lines(told, batch(lag=10), batch(lag=20)) == [over]
    assert lines(told, batch(lag=1000)) == [grows]
