"""Every SQL of the guides, run as somebody would paste it."""

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.documented_ledger import write_ledger
from tests.documents import PAGES, code_blocks

Run = Callable[..., int]

EXAMPLES = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(code_blocks(page.read_text(), "sql"))
]
ROWS = re.compile(r"^(?:first )?(\d+) rows?(?:;|$)", re.MULTILINE)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("data")
    write_ledger(data)
    return data


@pytest.mark.parametrize("sql", EXAMPLES)
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


def test_there_are_some() -> None:
    assert len(EXAMPLES) > 15
