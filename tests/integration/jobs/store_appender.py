"""A process of its own with a history table's query on an object store: `store_appender.py BASE OVERLAY SOURCE BATCH`.

It puts ten rows into the directory SOURCE, and copies of them and of those before, appends what is new there to the
table `quarantine`, and prints how many rows Spark reads in the table.
"""

import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.runtime.spark_session import JAVA_OPTIONS, build_session
from jobs.runtime.storage import storage_settings, use_store
from pipelines.sinks import Remembered, append_to_table, ensure_tables
from pipelines.sources import read_table
from pipelines.spark_schemas import table_schema
from pipelines.streams import StreamId
from schemas.settings import DAY_S, load_settings
from schemas.tables import QUARANTINE


def main(base: str, overlay: str, source: str, batch: str) -> None:
    settings = load_settings([Path(base), Path(overlay)], {})
    use_store(settings.storage)
    short_lived = {JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -Xss16m -XX:+UseSerialGC"}
    spark = build_session("store", "local[2]", storage_settings(settings.storage) | short_lived)
    ensure_tables(settings.tables)
    Path(source).mkdir(exist_ok=True)
    pq.write_table(rows(int(batch)), Path(source) / f"{batch}.parquet")
    stream = spark.readStream.schema(table_schema(QUARANTINE)).parquet(source)
    seen = Remembered(Path(source).parent / "states", 100 * DAY_S)
    query = append_to_table(stream, StreamId("quarantine"), settings.tables, QUARANTINE, 0.1, seen=seen)
    query.processAllAvailable()
    query.stop()
    print(read_table(spark, settings.tables, QUARANTINE).count())  # noqa: T201
    spark.stop()


def rows(batch: int) -> pa.Table:
    now = datetime(2026, 1, 1 + batch, tzinfo=UTC)
    values = {
        "topic": "t",
        "partition": 0,
        "reason": "r",
        "record": b"x",
        "at": now,
        "appended": now,
        "date": now.date(),
    }
    schema = pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("reason", pa.string()),
            ("record", pa.binary()),
            ("at", pa.timestamp("us", "UTC")),
            ("appended", pa.timestamp("us", "UTC")),
            ("date", pa.date32()),
        ]
    )
    offsets = [*range(10 * batch, 10 * batch + 10), *range(10 * batch + 5)]
    return pa.Table.from_pylist([{**values, "offset": offset} for offset in offsets], schema)


if __name__ == "__main__":
    main(*sys.argv[1:])
