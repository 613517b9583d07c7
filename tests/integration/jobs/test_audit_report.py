"""The audit over a ledger that the real router and the real pipelines wrote: nothing differs, and faults are found."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from jobs.audit.__main__ import report, request
from jobs.audit.completeness import completeness_watermarks
from jobs.audit.explain import explain
from jobs.query.ledger_reader import LedgerReader
from tests import draw
from tests.integration.conftest import BEGIN, SHARDS, WrittenLedger

WHOLE = ["--since", "2026-01-01", "--until", "2026-01-03"]


def audited(spark: SparkSession, tables: str, *arguments: str) -> dict[str, Any]:
    return report(spark, tables, request(arguments, BEGIN), SHARDS, completeness_watermarks(tables, 60))


def test_what_routers_decide_is_right(spark: SparkSession, written_ledger: WrittenLedger) -> None:
    """R3, R7: of all messages of two days, and of one of them."""
    found = audited(spark, written_ledger.tables, *WHOLE)
    assert (found["messages"], found["right"], found["differs"], found["later"]) == (60, 60, 0, 0)
    assert (found["kinds"], found["examples"], found["shards"], found["everyone"]) == ({}, [], SHARDS, 0)
    of_a_day = audited(spark, written_ledger.tables, "--date", "2026-01-02")
    assert (of_a_day["since"], of_a_day["messages"], of_a_day["right"]) == ("2026-01-02T00:00:00.000Z", 30, 30)


def test_seeded_faults_are_found(spark: SparkSession, written_ledger: WrittenLedger, tmp_path: Path) -> None:
    """R3: an instruction dropped, one too many, a wrong number, a wrong shard, a message that is lost; and each by
    `explain` too."""
    tables, ids = str(tmp_path / "tables"), written_ledger.ids
    shutil.copytree(written_ledger.tables, tables)
    dropped, many, number, shard, lost, left = (ids[n] for n in (20, 21, 24, 29, 32, 59))
    uri = f"{tables}/instructions"
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    database.register("i", DeltaTable(uri).to_pyarrow_dataset())
    faulty = database.sql(
        f"""
        SELECT * EXCLUDE (shard, "number", date),
               CAST(CASE WHEN message_id = '{shard}' THEN 2 ELSE shard END AS INT) AS shard,
               CAST(CASE WHEN message_id = '{number}' THEN 1 ELSE "number" END AS INT) AS "number", date
        FROM i WHERE message_id NOT IN ('{dropped}', '{left}')
        UNION ALL BY NAME
        SELECT * REPLACE ('{many}' AS message_id, CAST(21 AS BIGINT) AS "offset",
                          TIMESTAMPTZ '2026-01-01 23:51:00+00' AS message_appended)
        FROM i WHERE message_id = '{ids[25]}'
        """
    )
    write_deltalake(uri, faulty.to_arrow_table(), mode="overwrite")
    database.register("m", DeltaTable(f"{tables}/messages").to_pyarrow_dataset())
    kept = database.sql(f"SELECT * FROM m WHERE id <> '{lost}'").to_arrow_table()
    write_deltalake(f"{tables}/messages", kept, mode="overwrite")
    found = audited(spark, tables, *WHOLE, "--examples", "4")
    assert (found["messages"], found["right"], found["differs"], found["later"]) == (59, 54, 5, 1)
    assert found["kinds"] == {"missing": 2, "numbering": 1, "superfluous": 2, "unknown": 1}
    by_id = {one["message_id"]: one for one in found["examples"]}
    assert list(by_id) == [dropped, many, number, shard], "the first of them"
    assert by_id[dropped] == {
        "message_id": dropped, "partition": 0, "offset": 20, "destination": "town/alerts/a", "wanted": [1],
        "appended": "2026-01-01T23:50:00.000Z", "instructed": [], "untouched": False, "verdict": "differs",
        "differences": [{"kind": "missing", "scope": "routed", "shards": [1]}],
    }  # fmt: skip
    watermarks, reader = completeness_watermarks(tables, 60), LedgerReader(tables, {})
    for name in (dropped, many, number, shard):
        (one,) = explain(reader, name, SHARDS, watermarks)
        same = [{**d._asdict(), "shards": list(d.shards)} for d in one.judgement.differences]
        assert by_id[name]["differences"] == same, name
    assert explain(reader, left, SHARDS, watermarks)[0].judgement.verdict == "later"


@draw.long_test
def test_the_command(written_ledger: WrittenLedger) -> None:
    """As a process of its own, told everything by its environment; and one sentence, and status 2, for what cannot be
    audited."""
    command = [sys.executable, "-m", "jobs.cli.main", "--data", str(Path(written_ledger.tables).parent), "audit"]
    at_once = os.environ | {"WAYSTATION_STACK__LEDGER_NICENESS": "0"}  # whatever other tests do at the same time
    ended = subprocess.run([*command, "--date", "2026-01-02", "--json"], capture_output=True, text=True, env=at_once)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["right"] == 30
    refused = subprocess.run([*command, "--date", "2025-01-02", "--json"], capture_output=True, text=True, env=at_once)
    assert (refused.returncode, refused.stdout, refused.stderr) == (
        2,
        "",
        "the ledger has no messages between 2025-01-02T00:00:00.000Z and 2025-01-03T00:00:00.000Z: choose another "
        "period\n",
    )


def test_a_date_that_is_none_is_a_usage_error() -> None:
    command = [sys.executable, "-m", "jobs.cli.main", "audit", "--date", "the day before"]
    refused = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"COLUMNS": "200"})
    assert (refused.returncode, refused.stdout) == (2, "")
    assert (
        "Invalid value for '--date': 'the day before' is not a date: write 2026-11-22, today or yesterday (UTC)"
        in refused.stderr
    )


@pytest.fixture(autouse=True)
def _uncached(spark: SparkSession) -> Any:
    yield
    spark.catalog.clearCache()
