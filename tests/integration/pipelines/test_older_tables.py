"""Tables of an earlier version go on: what they lack is added, what they hold stays (R11)."""

from datetime import UTC, date, datetime
from pathlib import Path

import duckdb
from deltalake import DeltaTable, QueryBuilder, Schema, write_deltalake
from pyspark.sql import SparkSession

from pipelines.sinks import ensure_tables
from pipelines.spark_schemas import table_schema
from schemas.tables import PRESENCE_HISTORY

AT = datetime(2024, 5, 1, tzinfo=UTC)


def test_a_table_gets_the_columns_it_lacks(spark: SparkSession, tmp_path: Path) -> None:
    """R11: `presence_history` had no `user`."""
    uri = str(tmp_path / "presence_history")
    columns = tuple(column for column in PRESENCE_HISTORY.columns if column.name != "user")
    earlier = table_schema(PRESENCE_HISTORY._replace(columns=columns))
    table = DeltaTable.create(uri, Schema.from_json(earlier.json()), partition_by=["date"])
    row = ("old", "lost", "g", 1, 0, AT, None, None, "why", AT, date(2024, 5, 1))
    write_deltalake(table, spark.createDataFrame([row], earlier).toArrow(), mode="append")
    for _ in range(2):
        ensure_tables(str(tmp_path))
    assert DeltaTable(uri).version() == 2, "added once"
    spark.createDataFrame(
        [("new", "connected", "g", 2, 0, AT, None, None, None, "alice", AT, date(2024, 5, 1))],
        table_schema(PRESENCE_HISTORY),
    ).write.format("delta").mode("append").save(uri)
    found = QueryBuilder().register("t", DeltaTable(uri)).execute('SELECT client, "user" FROM t ORDER BY epoch')
    rows = duckdb.from_arrow(found.read_all()).fetchall()
    assert rows == [("old", None), ("new", "alice")]
