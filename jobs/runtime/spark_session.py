"""The Spark session of the micro-batch applications, with every setting that measurements showed to matter.

The routers add settings of their own (`extra`); those for both are here.
"""

import os
import sys
import warnings
from collections.abc import Mapping

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from jobs.runtime.submitted import is_submitted
from jobs.stack.class_archive import archive_options
from jobs.stack.jars import spark_jars

JAVA_OPTIONS = "spark.driver.extraJavaOptions"

SESSION = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    # Otherwise pyspark looks up the caller's line whenever a column is used: five round trips to the JVM and a search
    # for IPython, which is half of the time that building a plan takes.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # The default, 100, is less than the ledger's queries need: each batch would recompile some code.
    "spark.sql.codegen.cache.maxEntries": "1000",
    # A batch seldom has more than one or two dates: their files are written at the same time, without sorting first.
    "spark.sql.maxConcurrentOutputFileWriters": "4",
    # No empty `_SUCCESS` file: the table's log records what was written.
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # Timestamps that DuckDB, deltalake and Polars read natively, with statistics.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # The default, 50, makes every small commit take seconds.
    "spark.databricks.delta.snapshotPartitions": "1",
    # What Spark regards as secret by default, plus Kafka's logins and keys: hidden in what it shows and logs of a
    # query.
    "spark.redaction.regex": r"(?i)secret|password|token|access[.]?key|jaas|keystore|truststore",
}

ON_ONE_MACHINE = {
    # The loopback address: the driver is its own executor, and no other machine has to reach it.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

STREAMS = {
    # Halves the cost of a trigger.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Every trigger lists the checkpoint's logs; ten batches are enough to go back.
    "spark.sql.streaming.minBatchesToRetain": "10",
}


def build_session(app_name: str, master: str, extra: Mapping[str, str] | None = None) -> SparkSession:
    """A session with Delta and Kafka, UTC, tuned for micro-batches; `extra` settings override these.

    For a submitted application, the submission sets master, name, jars and addresses, and all other settings that came
    with it override these. Otherwise the session runs in this process, with the threads in `master` (`local[N]`);
    `spark.driver.memory` in `extra` counts if the process has no JVM yet. Raises JarsError if it needs the jars and
    they are not resolved.
    """
    # pyspark occasionally checks pandas, which is not used with it here; the warning would be in every output.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    settings = SESSION | STREAMS | dict(extra or {})
    builder = SparkSession.builder
    if is_submitted(os.environ):
        SparkContext._ensure_initialized()
        settings |= dict(SparkConf().getAll())
    else:
        # Spark's Python processes must have the same libraries; by default Spark uses the first `python3`.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        jars = ",".join(str(jar) for jar in spark_jars(os.environ))
        settings = ON_ONE_MACHINE | {"spark.jars": jars} | settings
        settings[JAVA_OPTIONS] = f"{settings.get(JAVA_OPTIONS, '')} {archive_options()}"
        builder = builder.appName(app_name).master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
