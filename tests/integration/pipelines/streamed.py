"""A stream from rows written to files, batch by batch, and what comes out of each batch."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from pipelines.sinks import ensure_table
from pipelines.sources import read_table, table_uri
from pipelines.storage.appends import Appends
from pipelines.storage.seen import SeenKeys
from pipelines.storage.table_files import TableFiles
from schemas.settings import DAY_S
from schemas.table import Table
from schemas.tables import QUARANTINE

KAFKA = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)


def kafka_rows(spark: SparkSession, rows: Sequence[tuple[Any, ...]]) -> DataFrame:
    """Kafka source columns from `(key, value, topic, partition, offset, ms, headers)`."""
    layout = KAFKA.replace("timestamp timestamp", "timestamp long")
    return spark.createDataFrame(list(rows), layout).withColumn("timestamp", F.timestamp_millis("timestamp"))


def streamed(
    spark: SparkSession,
    directory: Path,
    batches: Sequence[Sequence[tuple[Any, ...]]],
    transform: Callable[[DataFrame], DataFrame],
    mode: str = "append",
    name: str | None = None,
    after: Callable[[], None] = lambda: None,
) -> list[list[Row]]:
    """What `transform` of a stream gives for each batch of Kafka rows; `name` of the query, for those who listen;
    `after` is called at the end of each batch."""
    given: dict[int, list[Row]] = {}

    def keep(rows: DataFrame, batch_id: int) -> None:
        given[batch_id] = rows.collect()
        after()

    in_batches(spark, directory, batches, transform, keep, mode, name)
    return [given.get(number, []) for number in range(len(batches))]


def appended_once(
    spark: SparkSession,
    directory: Path,
    batches: Sequence[Sequence[tuple[Any, ...]]],
    transform: Callable[[DataFrame], DataFrame],
    table: Table,
    kept_days: int = 7,
) -> list[list[Row]]:
    """What each batch of Kafka rows adds to `table` by way of `transform`, without copies, and without bad ones."""
    tables = str(directory / "tables")
    ensure_table(tables, table)
    files = TableFiles(table_uri(tables, table), table)
    seen = SeenKeys(directory / "states" / "seen.sqlite", table.key, kept_days * DAY_S, files.since)
    append = Appends(files, None if table is QUARANTINE else lambda bad: None, seen)
    given: dict[int, list[Row]] = {}

    def keep(rows: DataFrame, batch_id: int) -> None:
        append(rows, batch_id)
        known = [row for batch in given.values() for row in batch]
        given[batch_id] = [row for row in read_table(spark, tables, table).collect() if row not in known]

    in_batches(spark, directory, batches, transform, keep)
    return [given.get(number, []) for number in range(len(batches))]


def in_batches(
    spark: SparkSession,
    directory: Path,
    batches: Sequence[Sequence[tuple[Any, ...]]],
    transform: Callable[[DataFrame], DataFrame],
    write: Callable[[DataFrame, int], None],
    mode: str = "append",
    name: str | None = None,
) -> None:
    """Has `write` take what `transform` makes of batches of Kafka rows, one after the other."""
    for number, batch in enumerate(batches):
        source = directory / "source"
        kafka_rows(spark, batch).coalesce(1).write.mode("append").parquet(str(source / f"batch={number:04}"))
    # The file source takes files by their time of writing, which is the order of the batches.
    stream = spark.readStream.schema(KAFKA).option("maxFilesPerTrigger", 1).parquet(str(directory / "source" / "*"))

    writer = transform(stream).writeStream.outputMode(mode).foreachBatch(write)
    query = writer.option("checkpointLocation", str(directory / "checkpoint")).start(queryName=name)
    try:
        query.processAllAvailable()
    finally:
        query.stop()
