"""The workload from which a JVM records the class archive: a little of everything that routers and ledger do.

Run as a module, `python -m jobs.stack.class_training ARCHIVE`; see :mod:`jobs.stack.class_archive`.
"""

import sys
from pathlib import Path
from subprocess import Popen
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.runtime.spark_session import JAVA_OPTIONS, build_session
from jobs.stack.class_archive import IDLE_TIMEOUT_S, QUIET
from jobs.stack.jars import SHORT_LIVED

EXIT_TIMEOUT_S = IDLE_TIMEOUT_S
"""Writing the archive has no time limit of its own: the parent process sets one."""


def train(archive: Path) -> None:
    """Start a JVM, have it work, and end it, which makes it write `archive`."""
    options = f'-XX:ArchiveClassesAtExit="{archive}" {QUIET} {" ".join(SHORT_LIVED)}'
    settings = {JAVA_OPTIONS: options, "spark.driver.memory": "512m"}
    spark = build_session("class-training", "local[2]", settings)
    jvm: Popen[bytes] = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    with TemporaryDirectory(dir=archive.parent) as directory:
        _work(spark, directory)
        spark.stop()
    assert jvm.stdin is not None
    jvm.stdin.close()  # the JVM ends when its input is closed
    jvm.wait(EXIT_TIMEOUT_S)


def _work(spark: SparkSession, directory: str) -> None:
    """Writes, reads and merges tables; runs streams; uses the functions that queries consist of."""
    rows = spark.range(50).select(
        "id",
        (F.col("id") % 7).alias("key"),
        F.current_timestamp().alias("at"),
        F.to_json(F.struct("id")).cast("binary").alias("value"),
        F.array(F.lit("a"), F.col("id").cast("string")).alias("levels"),
    )
    table, state = f"{directory}/table", f"{directory}/state"
    rows.write.format("delta").partitionBy("key").save(table)
    spark.createDataFrame([(1, "a")], "key LONG, name STRING").write.format("delta").save(state)

    stream = spark.readStream.format("delta").load(table).withWatermark("at", "0 seconds")
    known = spark.read.format("delta").load(state)
    _run(stream.join(F.broadcast(known), "key", "left").select("id", F.explode("levels")), f"{directory}/messages")
    _run(
        stream.select("id", F.from_json(F.col("value").cast("string"), "id LONG").alias("record")), f"{directory}/read"
    )


def _run(query: DataFrame, table: str) -> None:
    def append(batch: DataFrame, number: int) -> None:
        batch.persist()
        options = {"txnAppId": "training", "txnVersion": str(number)}
        batch.write.format("delta").mode("append").options(**options).save(table)
        batch.sparkSession.sql(f"SELECT count(*) FROM delta.`{table}`").collect()
        batch.unpersist()

    writer = query.writeStream.foreachBatch(append).option("checkpointLocation", f"{table}-checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    train(Path(sys.argv[1]))
