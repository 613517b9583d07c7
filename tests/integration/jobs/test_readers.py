"""The ledger's tables as the real pipelines wrote them, read by every engine: the same rows, types and comments."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyspark.sql import SparkSession

from jobs.errors import QueryError
from jobs.query.analysis import register_ledger
from jobs.query.ledger_reader import LedgerReader, installed_views
from pipelines.sources import read_table
from schemas.tables import TABLES
from tests.integration.conftest import WrittenLedger

Rows = list[dict[str, Any]]


def by_duckdb(uri: str, sql: str = "SELECT * FROM t") -> Rows:
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    database.register("t", DeltaTable(uri).to_pyarrow_dataset())
    return list(database.sql(sql).to_arrow_table().to_pylist())


def by_deltalake(uri: str, sql: str = "SELECT * FROM t") -> Rows:
    return list(pa.table(QueryBuilder().register("t", DeltaTable(uri)).execute(sql)).to_pylist())


def by_polars(uri: str, sql: str = "SELECT * FROM t") -> Rows:
    return list(pl.SQLContext(t=pl.scan_delta(uri)).execute(sql).collect().to_arrow().to_pylist())


ENGINES: dict[str, Callable[..., Rows]] = {"duckdb": by_duckdb, "deltalake": by_deltalake, "polars": by_polars}


def ordered(rows: Rows) -> list[str]:
    """Rows as text, names in order: times as they are in UTC, whatever their class of zone."""
    return sorted(str(sorted((name, _plain(value)) for name, value in row.items())) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return value.isoformat() if hasattr(value, "isoformat") else value


@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_engine_reads_the_same_rows(spark: SparkSession, written_ledger: WrittenLedger, name: str) -> None:
    uri = f"{written_ledger.tables}/{name}"
    rows = spark.read.format("delta").load(uri).toArrow().to_pylist()
    assert rows
    wanted = ordered(rows)
    for engine, read in ENGINES.items():
        assert ordered(read(uri)) == wanted, engine
        if "date" in TABLES[name].partition_by:
            of_a_day = "SELECT count(*) AS n FROM t WHERE date = DATE '2026-01-01'"
            assert read(uri, of_a_day) == [{"n": sum(str(row["date"]) == "2026-01-01" for row in rows)}], engine


def test_types_are_those_declared(written_ledger: WrittenLedger) -> None:
    """Times come with their zone, and nulls as nulls."""
    uri = f"{written_ledger.tables}/messages"
    assert by_duckdb(uri, "SELECT DISTINCT typeof(appended) AS t FROM t") == [{"t": "TIMESTAMP WITH TIME ZONE"}]
    schema = pl.scan_delta(uri).collect_schema()
    assert (schema["appended"], schema["payload"]) == (pl.Datetime("us", "UTC"), pl.Binary())
    assert (schema["date"], schema["offset"], schema["partition"]) == (pl.Date(), pl.Int64(), pl.Int32())
    for read in ENGINES.values():
        assert read(uri, "SELECT count(*) AS n, count(expires) AS e, count(payload) AS p FROM t") == [
            {"n": 60, "e": 30, "p": 52}
        ]


@pytest.mark.parametrize("name", sorted(TABLES))
def test_comments_are_in_the_tables(spark: SparkSession, written_ledger: WrittenLedger, name: str) -> None:
    """As Spark's DESCRIBE shows them, and any reader of the Delta log."""
    table, uri = TABLES[name], f"{written_ledger.tables}/{name}"
    described = {row.col_name: row.comment for row in spark.sql(f"DESCRIBE TABLE delta.`{uri}`").collect()}
    (detail,) = spark.sql(f"DESCRIBE DETAIL delta.`{uri}`").collect()
    assert (detail["name"], detail["description"]) == (name, table.doc)
    assert [described[column.name] for column in table.columns] == [column.doc for column in table.columns]
    fields = {field.name: field.metadata for field in DeltaTable(uri).schema().fields}
    assert [fields[column.name]["comment"] for column in table.columns] == [column.doc for column in table.columns]


def view_by_spark(spark: SparkSession, tables: str, view: str) -> Rows:
    assert register_ledger(spark, tables) == [*TABLES, *installed_views()]
    return list(spark.table(view).toArrow().to_pylist())


def view_by_duckdb(tables: str, view: str) -> Rows:
    found = LedgerReader(tables).query(f"SELECT * FROM {view}")
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]


def view_by_deltalake(tables: str, view: str) -> Rows:
    builder = QueryBuilder()
    for name in TABLES:
        builder = builder.register(name, DeltaTable(f"{tables}/{name}"))
    return list(pa.table(builder.execute(installed_views("datafusion")[view])).to_pylist())


def view_by_polars(tables: str, view: str) -> Rows:
    frames = pl.SQLContext({name: pl.scan_delta(f"{tables}/{name}") for name in TABLES})
    return list(frames.execute(installed_views("polars")[view]).collect().to_arrow().to_pylist())


@pytest.mark.drawn("views read by other engines", 3)
@pytest.mark.parametrize("view", installed_views())
def test_every_engine_has_the_same_views(spark: SparkSession, written_ledger: WrittenLedger, view: str) -> None:
    wanted = ordered(view_by_spark(spark, written_ledger.tables, view))
    assert wanted
    for read in (view_by_duckdb, view_by_deltalake, view_by_polars):
        assert ordered(read(written_ledger.tables, view)) == wanted, read.__name__


def test_sessions_and_traffic(written_ledger: WrittenLedger) -> None:
    reader = LedgerReader(written_ledger.tables)
    sessions = reader.query('SELECT client, "user", how, reason, seconds FROM session_history ORDER BY client').rows
    assert sessions == [
        ("bob", "robert", "lost", "connection_lost", 26 * 3600 + 210), ("eve", "robert", None, None, None),
    ]  # fmt: skip
    columns = "messages, senders, deliveries, round(fan_out, 3)"
    first_hour = reader.query(
        f"SELECT level_1, level_2, {columns} FROM topic_traffic WHERE date = '2026-01-01' ORDER BY 1, 2 NULLS FIRST"
    ).rows
    # 6 messages of each kind; odd ones are delivered by each shard that was instructed, `#` for ten minutes.
    assert first_hour == [
        ("@", None, 6, 3, 3, 0.5), ("elsewhere", "é", 6, 3, 1, 0.167), ("town", None, 6, 3, 1, 0.167),
        ("town", "alerts", 12, 3, 8, 0.667),
    ]  # fmt: skip


def test_a_registered_table_shows_what_is_appended_later(
    spark: SparkSession, written_ledger: WrittenLedger, tmp_path: Path
) -> None:
    shutil.copytree(f"{written_ledger.tables}/messages", tmp_path / "messages")
    assert register_ledger(spark, str(tmp_path)) == ["messages"]
    uri = str(tmp_path / "messages")
    write_deltalake(uri, read_table(spark, str(tmp_path), TABLES["messages"]).toArrow(), mode="append")
    assert spark.sql("SELECT count(*) FROM messages").collect()[0][0] == 120
    with pytest.raises(QueryError, match="there are no tables in"):
        register_ledger(spark, str(tmp_path / "nowhere"))
