"""The Spark session of the micro-batch applications, with everything that was measured to matter.

The routers have their own settings on top (`extra`); what must hold for both stands here.
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
    # Else pyspark looks for the caller's line whenever a column is mentioned: five round trips to the JVM and a search
    # for IPython, which is half of the time that making a plan takes.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
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
    # Beside what Spark takes for a secret by itself: Kafka's logins and keys, in what it shows and logs of a query.
    "spark.redaction.regex": r"(?i)secret|password|token|access[.]?key|jaas|keystore|truststore",
}

ON_ONE_MACHINE = {
    # The loopback address: the driver is its own executor, and no other machine has to find it.
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
    """A session with Delta and Kafka, UTC, tuned for micro-batches; `extra` settings go over these.

    Of an application that was submitted, master, name, jars and addresses are the submission's, as is every other
    setting that came with it: those go over all. Else the session runs in this process, with the threads that `master`
    (`local[N]`) says; `spark.driver.memory` in `extra` counts if it has no JVM yet. Raises JarsError if it needs the
    jars and they are not resolved.
    """
    # It looks at pandas now and then, which is not used with it here; the warning would be in every output.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    settings = SESSION | STREAMS | dict(extra or {})
    builder = SparkSession.builder
    if is_submitted(os.environ):
        SparkContext._ensure_initialized()
        settings |= dict(SparkConf().getAll())
    else:
        # What runs Python beside Spark is to have the same libraries; it takes the first `python3` otherwise.
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
