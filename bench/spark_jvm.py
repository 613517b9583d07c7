"""Each measurement has a JVM of its own."""

from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

END_S = 60


def stop_with_jvm(spark: SparkSession) -> None:
    """Stop the session, and the JVM that pyspark would give to the next one of this process: heap and compiler are
    settled when a JVM starts, so the next one would be measured with those of this. Raises subprocess.TimeoutExpired if
    it does not end."""
    spark.stop()
    context: Any = SparkContext
    gateway = context._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()  # by which pyspark's JVM is told to end
    gateway.proc.wait(END_S)
    context._gateway = context._jvm = None
