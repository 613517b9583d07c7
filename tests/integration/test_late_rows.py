"""What comes later than the message window: dropped by the watermark, and counted as late in the query's status."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from jobs.progress import StatusListener, status_file
from pipelines import completion, ledger
from pipelines.streams import StreamId
from schemas.events import CompletionEvent, Delivery, ProgressEvent, decode, encode
from schemas.readiness import read_json
from tests.integration.streamed import streamed
from tests.waiting import wait_for

DAY_MS = 86_400_000
START_MS = 1_700_000_000_000
WINDOW_DAYS = 7
QUERY = "late"

Records = list[tuple[Any, ...]]


@pytest.fixture
def status(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[[int], dict[str, Any]]]:
    """The status file of the query once it has done its batch of that number."""
    listener = StatusListener(tmp_path, "tests", time.time)
    spark.streams.addListener(listener)

    def after(batch: int) -> dict[str, Any]:
        def read() -> dict[str, Any]:
            return read_json(status_file(tmp_path, QUERY)) or {}

        wait_for(lambda: read().get("batch_id", -1) >= batch, f"the status of batch {batch}")
        return read()

    yield after
    spark.streams.removeListener(listener)


def relinquish(message_day: float, number: int, limit: int | None, heard_day: float) -> Records:
    """The end of an instruction of the message appended on `message_day`, as it comes on `heard_day`."""
    event = ProgressEvent(
        kind="relinquish",
        id=f"m{message_day:g}",
        partition=0,
        offset=0,
        appended_ms=START_MS + int(message_day * DAY_MS),
        shard=number,
        number=number,
        limit=limit,
        deliveries=[Delivery(client=f"c{number}", outcome="delivered", qos=1, at_us=1)],
    )
    return [(event.id.encode(), encode(event), "progress", 0, 0, START_MS + int(heard_day * DAY_MS), [])]


BATCHES = [
    relinquish(0, 0, None, 0) + relinquish(2, 0, None, 2),
    relinquish(8, 0, 1, 8),
    relinquish(8.1, 0, 1, 8.1),  # from here on what is older than day 1.1 is late
    relinquish(0, 1, 2, 8.2) + relinquish(2, 1, 2, 8.2),
]
"""Two messages, of days 0 and 2, whose second of two instructions ends on day 8: late for the first by a day."""


def run(spark: SparkSession, directory: Path, transform: Callable[[DataFrame], DataFrame], mode: str) -> list[Row]:
    found = streamed(spark, directory, BATCHES, transform, mode, StreamId(QUERY).name)
    return [row for batch in found for row in batch]


def test_a_relinquish_after_the_message_window_completes_nothing_and_is_counted(
    spark: SparkSession, tmp_path: Path, status: Callable[[int], dict[str, Any]]
) -> None:
    """R4: its message stays incomplete; a message that the window still holds completes at the same time."""
    rows = run(spark, tmp_path, lambda records: completion.completions(records, 4, WINDOW_DAYS), "update")
    assert [decode(CompletionEvent, row.value).id for row in rows] == ["m8", "m8.1", "m2"]
    assert status(len(BATCHES) - 1)["late_rows"] == 1


def test_an_outcome_after_the_message_window_is_no_row_and_is_counted(
    spark: SparkSession, tmp_path: Path, status: Callable[[int], dict[str, Any]]
) -> None:
    rows = run(spark, tmp_path, lambda records: ledger.outcomes(records, WINDOW_DAYS), "append")
    kept = sorted((row.message_id, row.client) for row in rows)
    assert kept == [("m0", "c0"), ("m2", "c0"), ("m2", "c1"), ("m8", "c0"), ("m8.1", "c0")]
    assert status(len(BATCHES) - 1)["late_rows"] == 1
