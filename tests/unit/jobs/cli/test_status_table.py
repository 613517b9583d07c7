"""`waystation status` for people: what it shows of streaming queries, on a terminal of 120 columns."""

import pytest

from jobs.cli import status

QUERY = {
    "query": "presence_history",
    "part": "router-backup",
    "batch_id": 123_456,
    "batch_ms": 12_345,
    "rows_per_s": 123_456.7,
    "lag": 12_345_678,
    "freshness_s": 1234.5,
    "state": {"rows": 10_000_000, "disk_bytes": 2_500_000_000},
    "failures": 12,
    "age_s": 1234.5,
    "error": None,
}
NOTHING = {"ready": True, "processes": [], "gateways": [], "topics": [], "listeners": {}}


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def shown(capsys: pytest.CaptureFixture[str], *queries: object) -> str:
    status._show(NOTHING | {"queries": list(queries)})
    return capsys.readouterr().out


def test_large_figures_have_room(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, QUERY)
    for figure in ("presence_history", "123456 ", "12.3 s", "123457", "12345678", "1234 s", "2500 MB"):
        assert figure in text, figure
    assert "have failed" not in text
    assert max(map(len, text.splitlines())) <= 120


def test_an_error_is_shown_whole_and_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """Also one that looks like markup."""
    text = shown(capsys, QUERY, QUERY | {"query": "routes", "error": "[STREAM_FAILED] disk full [/tmp/x]"})
    assert "failed queries" in text
    assert "[STREAM_FAILED] disk full [/tmp/x]" in text


def test_a_query_that_has_done_nothing_yet_has_empty_cells(capsys: pytest.CaptureFixture[str]) -> None:
    assert "routes" in shown(capsys, {"query": "routes", "part": "ledger", "error": "no", "age_s": 1.0})
