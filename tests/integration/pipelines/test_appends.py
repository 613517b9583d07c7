"""Appending batches to a Delta table: once each, nothing of tries that failed, statistics that readers can rely on."""

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.sinks import ensure_tables
from pipelines.spark_schemas import table_schema
from pipelines.storage.appends import Appends
from pipelines.storage.seen import SeenKeys
from pipelines.storage.table_files import LONGEST_STATISTIC, QUERY_ID, TableFiles
from schemas.settings import DAY_S
from schemas.table import Table
from schemas.tables import QUARANTINE, TABLES

DATE = date(2026, 11, 22)
DAY = datetime(2026, 11, 21, 23, 59, 59, 999_000, tzinfo=UTC)


def rows_of(spark: SparkSession, table: Table, rows: list[dict[str, Any]]) -> DataFrame:
    schema = table_schema(table)
    return spark.createDataFrame([[row.get(name) for name in schema.names] for row in rows], schema).coalesce(1)


def quarantined(spark: SparkSession, *offsets: int, reason: str | None = "why") -> DataFrame:
    rows = [
        {
            "topic": "t",
            "partition": 0,
            "offset": offset,
            "reason": reason,
            "record": b"\x00",
            "at": DAY + timedelta(microseconds=offset),
            "appended": DAY + timedelta(microseconds=offset),
            "date": (DAY + timedelta(microseconds=offset)).date(),
        }
        for offset in offsets
    ]
    return rows_of(spark, QUARANTINE, rows)


@pytest.fixture
def uri(spark: SparkSession, tmp_path: Path) -> str:
    spark.sparkContext.setLocalProperty(QUERY_ID, "a-query")
    ensure_tables(str(tmp_path))
    return str(tmp_path / QUARANTINE.name)


def offsets(uri: str) -> list[int]:
    return sorted(DeltaTable(uri).to_pyarrow_table(columns=["offset"])["offset"].to_pylist())


def test_a_batch_is_appended_once_whoever_repeats_it(spark: SparkSession, uri: str) -> None:
    """Also by another process, which has only the table to go by."""
    append = Appends(TableFiles(uri, QUARANTINE))
    append(quarantined(spark, 1, 2), 0)
    append(quarantined(spark, 3), 1)
    for again in (append, Appends(TableFiles(uri, QUARANTINE))):
        again(quarantined(spark, 1, 2), 0)
        again(quarantined(spark, 3), 1)
    assert offsets(uri) == [1, 2, 3]
    spark.sparkContext.setLocalProperty(QUERY_ID, "another-query")
    append(quarantined(spark, 4), 0)
    assert offsets(uri) == [1, 2, 3, 4]


def test_bad_rows_go_to_quarantine_before_the_good_are_in_the_table(spark: SparkSession, uri: str) -> None:
    """At least once: what fails on the way is repeated with its batch; of one that is there nothing is reported."""
    given: list[list[int]] = []

    def judged(*marks: tuple[int, str | None]) -> DataFrame:
        bad = F.map_from_entries(
            F.array(*(F.struct(F.lit(offset), F.lit(mark).cast("string")) for offset, mark in marks))
        )
        return quarantined(spark, *(offset for offset, _ in marks)).withColumn("quarantined", bad[F.col("offset")])

    def quarantine(batch: DataFrame) -> None:
        given.append(sorted(row.offset for row in batch.where("quarantined IS NOT NULL").collect()))
        assert offsets(uri) == [1]
        if len(given) == 1:
            raise OSError("the broker does not answer")

    append = Appends(TableFiles(uri, QUARANTINE), quarantine)
    append(judged((1, None)), 0)
    assert (given, offsets(uri)) == ([], [1])
    batch = judged((2, None), (3, "why"), (4, "why"))
    with pytest.raises(OSError, match="does not answer"):
        append(batch, 1)
    append(batch, 1)
    append(batch, 1)
    assert (given, offsets(uri)) == ([[3, 4], [3, 4]], [1, 2])
    assert "quarantined" not in DeltaTable(uri).to_pyarrow_table().column_names


def test_a_batch_without_rows_is_no_commit(spark: SparkSession, uri: str) -> None:
    before = DeltaTable(uri).version()
    Appends(TableFiles(uri, QUARANTINE))(quarantined(spark), 0)
    assert DeltaTable(uri).version() == before


def test_after_a_batch_without_rows_the_table_is_not_read_again(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    """R4: all of a batch may be bad. The keys of days would be read and stored again, and the copies be recognised only
    then."""
    files = TableFiles(uri, QUARANTINE)
    reads: list[int] = []

    def recent(columns: Sequence[str], kept_s: int) -> Iterable[pa.RecordBatch]:
        reads.append(kept_s)
        return files.since(columns, kept_s)

    append = Appends(files, seen=SeenKeys(tmp_path / "seen.sqlite", QUARANTINE.key, DAY_S, recent))
    append(quarantined(spark, 1, 2), 0)
    append(quarantined(spark), 1)
    append(quarantined(spark, 2, 3), 2)
    assert (offsets(uri), len(reads)) == ([1, 2, 3], 1)


def test_what_a_try_wrote_that_failed_is_nowhere(
    spark: SparkSession, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended after Spark had written its files: they are in no answer, and VACUUM takes them away."""

    def crash(*arguments: Any, **options: Any) -> None:
        raise SystemExit("killed")

    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "create_write_transaction", crash)
        with pytest.raises(SystemExit):
            Appends(TableFiles(uri, QUARANTINE))(quarantined(spark, 1, 2), 0)
    left = set(Path(uri).rglob("*.parquet"))
    assert left
    assert offsets(uri) == []
    Appends(TableFiles(uri, QUARANTINE))(quarantined(spark, 1, 2), 0)
    assert offsets(uri) == [1, 2]
    DeltaTable(uri).vacuum(full=True, retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert not {file for file in left if file.exists()}
    assert offsets(uri) == [1, 2]


def test_a_batch_over_midnight_is_in_two_partitions(spark: SparkSession, uri: str) -> None:
    Appends(TableFiles(uri, QUARANTINE))(quarantined(spark, 0, 999, 1000, 2000), 0)
    found = {a["partition"]["date"]: a["num_records"] for a in pa.table(DeltaTable(uri).get_add_actions()).to_pylist()}
    assert found == {date(2026, 11, 21): 2, date(2026, 11, 22): 2}


def test_statistics_pass_over_no_row(spark: SparkSession, uri: str) -> None:
    """Spark and deltalake find every row by its values, also by times that statistics cannot tell exactly."""
    append = Appends(TableFiles(uri, QUARANTINE))
    append(quarantined(spark, 1, 501, 999, reason="a" * LONGEST_STATISTIC), 0)
    append(quarantined(spark, 5, reason="b" * (LONGEST_STATISTIC + 1)), 1)
    append(quarantined(spark, 7, reason=None), 2)
    found = pa.table(DeltaTable(uri).get_add_actions(flatten=True)).to_pylist()
    by_rows = {action["min.offset"]: action for action in found}
    assert by_rows[1]["num_records"] == 3
    assert (by_rows[1]["min.offset"], by_rows[1]["max.offset"]) == (1, 999)
    assert by_rows[1]["max.reason"] == "a" * LONGEST_STATISTIC
    assert by_rows[5]["max.reason"] is None
    assert (by_rows[7]["null_count.reason"], by_rows[7]["max.reason"]) == (1, None)
    table = spark.read.format("delta").load(uri)
    for row in table.collect():
        at = row["at"].replace(tzinfo=UTC)
        assert table.where(F.col("at") == F.lit(at)).where(F.col("offset") == row["offset"]).count() == 1
        assert table.where(F.col("reason").eqNullSafe(row["reason"])).where(F.col("offset") == row["offset"]).count()
        found_in = ds.field("at") == pa.scalar(at, pa.timestamp("us", "UTC"))
        rows = DeltaTable(uri).to_pyarrow_dataset().filter(found_in & (ds.field("offset") == row["offset"]))
        assert rows.count_rows() == 1


@pytest.mark.parametrize(
    "table", [table for table in TABLES.values() if "date" in table.partition_by], ids=lambda t: t.name
)
def test_every_history_table_can_be_appended_to(spark: SparkSession, tmp_path: Path, table: Table) -> None:
    """Also a row of nulls, of which statistics can tell nothing but that."""
    spark.sparkContext.setLocalProperty(QUERY_ID, "a-query")
    ensure_tables(str(tmp_path))
    uri = str(tmp_path / table.name)
    Appends(TableFiles(uri, table))(rows_of(spark, table, [{"date": DATE}]), 0)
    assert DeltaTable(uri).to_pyarrow_table().to_pylist() == [dict.fromkeys(table_schema(table).names) | {"date": DATE}]
