"""A stream from rows written to files, batch by batch, and what comes out of each batch."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

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
    for number, batch in enumerate(batches):
        source = directory / "source"
        kafka_rows(spark, batch).coalesce(1).write.mode("append").parquet(str(source / f"batch={number:04}"))
    given: dict[int, list[Row]] = {}
    # The file source takes files by their time of writing, which is the order of the batches.
    stream = spark.readStream.schema(KAFKA).option("maxFilesPerTrigger", 1).parquet(str(directory / "source" / "*"))

    def keep(rows: DataFrame, batch_id: int) -> None:
        given[batch_id] = rows.collect()
        after()

    writer = transform(stream).writeStream.outputMode(mode).foreachBatch(keep)
    query = writer.option("checkpointLocation", str(directory / "checkpoint")).start(queryName=name)
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return [given.get(number, []) for number in range(len(batches))]
