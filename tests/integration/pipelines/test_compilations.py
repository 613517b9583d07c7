"""What Spark compiles for a batch: nothing that it has compiled for an earlier one."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipelines.ledger import history
from schemas.events import PresenceEvent, encode
from tests.integration.pipelines.ledger_records import AT_MS, headers
from tests.integration.pipelines.streamed import streamed

EVENT = encode(PresenceEvent(client="c", event="connected", gateway="g", epoch=1, seq=1, at_us=AT_MS * 1000))


@pytest.mark.parametrize("transform", [history.messages, history.presence_history])
def test_later_batches_are_not_compiled_anew(
    compiling_spark: SparkSession, tmp_path: Path, transform: Callable[[DataFrame], DataFrame]
) -> None:
    """A value that changes from batch to batch would stand in the generated code, and cost more than the batch. (Of the
    queries with a watermark that is the watermark's own condition, which is small.)"""
    jvm = compiling_spark._jvm
    assert jvm is not None
    compiled = jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    counts: list[int] = []

    batches = [[(b"k", EVENT, "t", 0, offset, AT_MS + offset, headers())] for offset in range(4)]
    found = streamed(compiling_spark, tmp_path, batches, transform, after=lambda: counts.append(compiled.getCount()))
    assert [len(rows) for rows in found] == [1, 1, 1, 1]
    assert counts == [counts[0]] * 4
    assert counts[0] > 0, "it does compile"
