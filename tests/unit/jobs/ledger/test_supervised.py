"""A query that cannot start is reported and tried again; the application goes on."""

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError
from pyspark.sql.streaming import StreamingQuery

from jobs.ledger.__main__ import Supervised
from pipelines.storage.checkpoints import DamagedCheckpoint

SPARK: Any = SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=lambda *_: None))


@pytest.mark.parametrize(
    "error",
    [pa.ArrowInvalid("Parquet magic bytes not found"), DeltaError("x"), DamagedCheckpoint("x"), FileNotFoundError("x")],
    ids=lambda error: type(error).__name__,
)
def test_a_start_that_fails_is_tried_again(error: Exception) -> None:
    """Whatever is damaged or gone: a file of a table that a power failure has cut off, a log, a checkpoint."""
    failed: dict[str, str] = {}
    outcomes: list[Any] = [error, SimpleNamespace(isActive=True)]

    def start() -> StreamingQuery:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        found: StreamingQuery = outcome
        return found

    query = Supervised(SPARK, "feed_copies", start, 2.0, failed.__setitem__)
    query.watch(0.0)
    assert failed == {"feed_copies": str(error)}
    query.watch(1.9)
    assert query.query is None
    query.watch(2.0)
    assert query.query is not None
