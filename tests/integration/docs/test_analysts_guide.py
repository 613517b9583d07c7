"""Every example of docs/analysts.md runs, as it stands there, over a ledger that the real pipelines wrote."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs.cli.results import csv_lines
from jobs.query.ledger_reader import LedgerReader
from tests.documents import ROOT, code_blocks
from tests.integration.conftest import WrittenLedger

GUIDE = (ROOT / "docs" / "analysts.md").read_text()


def test_examples_in_sql(written_ledger: WrittenLedger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reader = LedgerReader(written_ledger.tables)
    (messages,) = reader.results("SELECT * FROM messages")
    (tmp_path / "messages.csv").write_text("".join(csv_lines(messages)), encoding="utf-8")
    assert len(code_blocks(GUIDE, "sql")) > 8
    for example in code_blocks(GUIDE, "sql"):
        results = [(result.columns, list(result.rows)) for result in reader.results(example)]
        assert results, example


@pytest.mark.parametrize("example", code_blocks(GUIDE, "python"), ids=lambda example: example.split("\n", 1)[0])
def test_examples_in_python(
    spark: SparkSession,
    written_ledger: WrittenLedger,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    example: str,
) -> None:
    """In a directory whose `.waystation/tables` are the tables. Spark's working directory is another: it is told."""
    (tmp_path / ".waystation").mkdir()
    (tmp_path / ".waystation" / "tables").symlink_to(written_ledger.tables)
    monkeypatch.chdir(tmp_path)
    written = example.replace(".waystation/tables", f"{tmp_path}/.waystation/tables").replace(
        '"dropped', f'"{tmp_path}/dropped'
    )
    names: dict[str, object] = {}
    exec(compile(written, "docs/analysts.md", "exec"), names)
    if "done" in names:
        assert names["done"] == {0: 59}
        assert names["new"].num_rows == 53  # type: ignore[attr-defined]
    if "query" in names:
        assert spark.read.format("delta").load(f"{tmp_path}/dropped").count() == 0
