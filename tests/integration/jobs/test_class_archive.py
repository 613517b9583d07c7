"""Spark's JVM maps the archive of its classes."""

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs.stack.class_archive import class_archive


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux tells what a process has mapped")
def test_the_jvm_of_a_session_has_mapped_it(spark: SparkSession, java_home: Path) -> None:
    """One that does not fit, for whatever reason, would be left out and nobody would notice."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    archive = class_archive(java_home, os.environ)
    assert str(archive) in Path(f"/proc/{gateway.proc.pid}/maps").read_text()
