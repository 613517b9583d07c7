"""The Spark session of the micro-batch applications, with everything that was measured to matter.

The routers have their own settings on top (`extra`); what must hold for both stands here.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from jobs.stack.jars import spark_jars

SESSION = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    # The default, 100, is less than the ledger's queries have: each batch would compile some of them anew.
    "spark.sql.codegen.cache.maxEntries": "1000",
    # A batch is seldom of more than one date or two: their files are written at once, without sorting the batch first.
    "spark.sql.maxConcurrentOutputFileWriters": "4",
    # No empty `_SUCCESS` beside them: the table's log says what is written.
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # Timestamps that DuckDB, deltalake and Polars read natively, with statistics.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # The default, 50, makes every small commit take seconds.
    "spark.databricks.delta.snapshotPartitions": "1",
    # The loopback address: the driver is its own executor, and no other machine has to find it.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

STREAMS = {
    # Halves the cost of a trigger. (RawLocalFileSystem would save more, and break RocksDB's snapshots.)
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # To know the number of rows of state would cost a read for each write.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    # All state stores of the process share one bounded cache.
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
    "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": "256",
    # Evicting state gives no rows in any of our queries: it can wait for the next batch with data.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # Every trigger lists the checkpoint's logs; ten batches are enough to go back.
    "spark.sql.streaming.minBatchesToRetain": "10",
}


def build_session(app_name: str, master: str, extra: Mapping[str, str] | None = None) -> SparkSession:
    """A session with Delta and Kafka, UTC, tuned for micro-batches; `extra` settings go over these.

    `spark.driver.memory` in `extra` counts if this process has no JVM yet. Raises JarsError if the jars are not
    resolved.
    """
    # What runs Python beside an executor is to have the same libraries; Spark takes the first `python3` otherwise.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = SESSION | STREAMS | {"spark.jars": ",".join(str(Path(jar)) for jar in spark_jars(os.environ))}
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in (settings | dict(extra or {})).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
