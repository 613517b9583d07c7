"""Spark for a measurement, in a JVM of its own."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from jobs.runtime.spark_session import build_session

END_S = 60


@contextmanager
def session(master: str, extra: Mapping[str, str]) -> Iterator[SparkSession]:
    """A Spark session that the next measurement, with settings of its own, does not find; nor its JVM, which pyspark
    would use again: heap and compiler are settled when a JVM starts. Raises subprocess.TimeoutExpired if that does not
    end."""
    spark = build_session("bench", master, dict(extra))
    try:
        yield spark
    finally:
        spark.stop()
        _end_jvm()


def _end_jvm() -> None:
    context: Any = SparkContext
    gateway = context._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()  # by which pyspark's JVM is told to end
    gateway.proc.wait(END_S)
    context._gateway = context._jvm = None
