"""`waystation status` where no stack runs, and of queries that are no more."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.cli import status
from jobs.errors import TopicsError
from jobs.stack.topics import TopicEnd
from schemas.readiness import write_json
from schemas.settings import Settings, load_settings

BASE = Path(__file__).parents[4] / "conf" / "base.toml"
Run = Callable[..., int]


def written(query: str, part: str) -> dict[str, Any]:
    return {"query": query, "part": part, "positions": {"ws.ingress": {"0": 5}}, "lag": 1, "lags": {"ws.ingress": 1}}


def write(data: Path, *statuses: dict[str, Any]) -> None:
    (data / "status").mkdir()
    for one in statuses:
        write_json(data / "status" / f"{one['query']}.json", one)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Brokers that were asked where topics end; what they answer: one topic of 25 records."""
    found: list[str] = []

    def ends(bootstrap: str, prefix: str, _timeout_s: float) -> list[TopicEnd]:
        found.append(bootstrap)
        return [TopicEnd(f"{prefix}ingress", [25])]

    monkeypatch.setattr(status, "admin_client", lambda bootstrap, client: bootstrap)
    monkeypatch.setattr(status, "topic_ends", ends)
    return found


def test_it_shows_what_applications_have_written_and_lags_by_the_configured_broker(
    run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    """As of applications that were submitted; and it says that it does."""
    monkeypatch.setenv("WAYSTATION_KAFKA__BOOTSTRAP", "kafka.example:9092")
    write(tmp_path, written("router-active", "router-active"), written("routes", "ledger"))
    assert run("status", "--json") == 0
    out, err = capfd.readouterr()
    report = json.loads(out)
    assert [(query["query"], query["lag"]) for query in report["queries"]] == [("router-active", 20), ("routes", 20)]
    assert [(topic["name"], topic["lag"]) for topic in report["topics"]] == [("ws.ingress", 20)]
    assert (report["ready"], report["processes"]) == (None, [])
    assert asked == ["kafka.example:9092"]
    assert f"no stack is running in {tmp_path}" in err
    assert "kafka.example:9092" in err


def test_tables_of_the_stack_are_left_out(
    run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str], asked: list[str]
) -> None:
    write(tmp_path, written("routes", "ledger"))
    assert run("status") == 0
    shown = capfd.readouterr().out
    assert "streaming queries" in shown
    assert "processes" not in shown
    assert "listeners" not in shown


def test_a_broker_that_does_not_answer_leaves_the_lags_that_queries_noted(
    run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object) -> None:
        raise TopicsError("silence")

    monkeypatch.setattr(status, "topic_ends", silent)
    write(tmp_path, written("routes", "ledger"))
    assert run("status", "--json") == 0
    out, err = capfd.readouterr()
    assert [query["lag"] for query in json.loads(out)["queries"]] == [1]
    assert "does not answer" in err


def settings(standby: str) -> Settings:
    return load_settings([BASE], {"WAYSTATION_ROUTER__STANDBY_QUERY": standby})


ALL = [
    written("router-active", "router"),
    written("router-active-standby", "router-active"),
    written("routes", "ledger"),
]


@pytest.mark.parametrize(
    ("standby", "parts", "left"),
    [
        ("true", {"broker", "gateway", "ledger", "router"}, ["router-active", "routes"]),
        ("true", None, ["router-active", "router-active-standby", "routes"]),
        ("false", None, ["router-active", "routes"]),
        ("false", {"ledger", "router", "router-active"}, ["router-active", "routes"]),
    ],
)
def test_queries_that_are_no_more_are_left_out(standby: str, parts: set[str] | None, left: list[str]) -> None:
    """The standby queries of an earlier `stack.router_processes = 2`, or of before
    `router.standby_query` was switched off."""
    assert [query["query"] for query in status.present(ALL, settings(standby), parts)] == left
