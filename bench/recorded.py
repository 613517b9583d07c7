"""Records as files that a streaming query reads as if they came from Kafka."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from bench.life import Written

_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
SPARK_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)


def write_batch(directory: Path, number: int, records: Iterable[Written]) -> None:
    """One file in a directory for each topic."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for one in records:
        rows.setdefault(one.topic, []).append(_row(one))
    for topic, found in rows.items():
        (directory / topic).mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(found, _SCHEMA), directory / topic / f"{number}.parquet")


def stream(spark: SparkSession, directory: Path, topic: str) -> DataFrame:
    """A batch of the query for each file."""
    files = spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(directory / topic))
    return files.coalesce(1)


def _row(one: Written) -> dict[str, Any]:
    headers = None if one.headers is None else [{"key": name, "value": content} for name, content in one.headers]
    return {
        "key": one.key,
        "value": one.value,
        "topic": one.topic,
        "partition": one.partition,
        "offset": one.offset,
        "timestamp": datetime.fromtimestamp(one.at_ms / 1000, UTC),
        "headers": headers,
    }
