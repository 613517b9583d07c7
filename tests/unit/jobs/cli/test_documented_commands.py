"""Every SQL and every command of the guides that reads the ledger, run as somebody would paste it."""

import io
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.unit.jobs.ledger_tables import append
from tests.unit.jobs.report.report_ledger import completion, instruction, live, message, outcome, presence

ROOT = Path(__file__).parents[4]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
READING = re.compile(r"^waystation (query|journey|explain|report) ")
ROWS = re.compile(r"^(?:first )?(\d+) rows?(?:;|$)", re.MULTILINE)


def blocks(language: str) -> list[Any]:
    return [
        pytest.param(block, id=f"{page.stem}-{number}")
        for page in PAGES
        for number, block in enumerate(
            re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
        )
    ]


def commands() -> list[Any]:
    """Lines of the blocks for a shell that read the ledger."""
    lines = [line for block in blocks("sh") for line in block.values[0].splitlines()]
    return [pytest.param(line, id=line) for line in lines if READING.match(line) or "| waystation query" in line]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger in which every example finds something, whatever the date."""
    data = tmp_path_factory.mktemp("data")
    tables, at = str(data / "tables"), datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=10)
    later = at + timedelta(seconds=2)
    messages = [message("m1", at, payload=b"\xff hello"), message("m2", later, payload=b"", qos=1)]
    append(tables, "messages", [one | {"origin": "client"} for one in messages])
    append(tables, "messages", [message("today", datetime.now(UTC))])
    append(tables, "instructions", [instruction("m1", at, 1)])
    lost = outcome("m1", at, 3, "eve", outcome="dropped", number=1)
    append(tables, "outcomes", [outcome("m1", at, 2), lost, outcome("m2", later, 2)])
    append(tables, "completions", [completion("m1", at, 4)])
    wanted = {"shard": 0, "effective_from": at, "effective_until": datetime(9999, 1, 1, tzinfo=UTC)}
    append(tables, "routes", [{"route_key": "#", "bucket": -1, "targets": [wanted]}])
    append(
        tables,
        "routes_history",
        [{"shard": 0, "route_key": "#", "op": "add", "effective": at, "offset": 0, "appended": at}],
    )
    append(tables, "presence_history", [presence("bob", at, "connected", at), presence("bob", at, "lost", later)])
    append(tables, "presence", [live("bob", at)])
    result = {
        "run_id": "r1", "run_at": at, "suite": "s", "expectation": "A message is routed in time",
        "table_name": "messages",
        "success": False, "judged": 1, "unexpected": 1, "observed": 1.0, "table_version": 1, "table_rows": 1,
        "date": at.date(),
    }  # fmt: skip
    append(tables, "quality_results", [result])
    return data


@pytest.mark.parametrize("sql", blocks("sql"))
def test_sql_is_pasted_and_finds_something(run, data, capfd, monkeypatch, tmp_path, sql: str) -> None:
    monkeypatch.chdir(tmp_path)
    if "read_csv" in sql:
        assert run("--data", str(data), "query", "--format", "csv", "SELECT * FROM messages") == 0
        (tmp_path / "messages.csv").write_text(capfd.readouterr().out)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(sql.encode())))
    assert run("--data", str(data), "query", "-") == 0
    found = [int(rows) for rows in ROWS.findall(capfd.readouterr().out)]
    assert found
    assert all(found)


@pytest.mark.parametrize("line", commands())
def test_a_command_is_pasted(data: Path, tmp_path: Path, line: str) -> None:
    """By a shell: quotes, pipes and comments are as they stand."""
    (tmp_path / "waystation").write_text(f'#!/bin/sh\nexec {sys.executable} -m jobs.cli.main "$@"\n')
    (tmp_path / "waystation").chmod(0o755)
    environment = os.environ | {
        "WAYSTATION_DATA": str(data), "PYTHONPATH": str(ROOT), "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }  # fmt: skip
    ended = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_there_are_some() -> None:
    assert len(blocks("sql")) > 15
    assert len(commands()) > 8
