"""Nothing is too late for the ledger: what comes days after its message is a row, and so is what comes after a broker's
clock has jumped ahead and back (R4)."""

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pipelines.ledger import history
from schemas.events import ProgressEvent, RecipientOutcome, encode
from schemas.tables import OUTCOMES
from tests.integration.pipelines.streamed import appended_once

DAY_MS = 86_400_000
START_MS = 1_700_000_000_000
WINDOW_DAYS = 7

Records = list[tuple[Any, ...]]


def relinquish(message_day: float, number: int, heard_day: float) -> Records:
    """The end of an instruction of the message appended on `message_day`, as it comes on `heard_day`."""
    event = ProgressEvent(
        kind="relinquish",
        id=f"m{message_day:g}",
        partition=0,
        offset=0,
        appended_ms=START_MS + int(message_day * DAY_MS),
        shard=number,
        number=number,
        limit=2,
        deliveries=[RecipientOutcome(client=f"c{number}", outcome="delivered", qos=1, at_us=1)],
    )
    return [(event.id.encode(), encode(event), "progress", 0, 0, START_MS + int(heard_day * DAY_MS), [])]


def test_an_outcome_is_a_row_however_late_it_comes(spark: SparkSession, tmp_path: Path) -> None:
    batches = [
        relinquish(0, 0, 0),
        relinquish(20, 0, 20),
        relinquish(0, 1, 21) + relinquish(20, 0, 21),
    ]
    found = appended_once(spark, tmp_path, batches, history.outcomes, OUTCOMES, WINDOW_DAYS)
    assert [sorted((row.message_id, row.client) for row in batch) for batch in found] == [
        [("m0", "c0")],
        [("m20", "c0")],
        [("m0", "c1")],
    ]


def test_a_clock_that_jumps_ahead_and_back_loses_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """A broker a year ahead for one record: all that follows is taken as before, and copies are told as before."""
    batches = [relinquish(0, 0, 0), relinquish(365, 0, 365), relinquish(1, 0, 1) + relinquish(0, 0, 1)]
    found = appended_once(spark, tmp_path, batches, history.outcomes, OUTCOMES, WINDOW_DAYS)
    assert [[row.message_id for row in batch] for batch in found][1:] == [["m365"], ["m1", "m0"]]
