"""Completion: any order, copies, never early (R4), at once for a message nobody wants (R7)."""

import random
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from pipelines.kafka.writer import Out
from pipelines.ledger.completion import relinquished
from pipelines.ledger.completion_sink import CompletionSink
from pipelines.ledger.receipt_sink import ReceiptSink
from pipelines.storage.local_database import LocalDatabase
from pipelines.storage.table_files import QUERY_ID
from schemas.events import CompletionEvent, ProgressEvent, RecipientOutcome, decode, encode
from schemas.settings import DAY_S
from tests.integration.pipelines.streamed import in_batches, kafka_rows

SHARDS = 130
START_MS = 1_700_000_000_000
BATCHES = 5


def progress(message: int, number: int, touches: int, scope: str = "routed") -> ProgressEvent:
    """The relinquish of instruction `number` of `touches`; an untouched message's record if there are none."""
    last = number == touches - 1
    return ProgressEvent(
        kind="relinquish" if touches else "untouched",
        id=f"m{message}",
        partition=0,
        offset=message,
        appended_ms=START_MS + message,
        scope=scope,
        shard=number if touches else None,
        number=number if touches else None,
        limit=touches if last or not touches else None,
    )


def outcome(message: int) -> ProgressEvent:
    """A report of a delivery that ends nothing."""
    delivery = RecipientOutcome(client="c", outcome="delivered", qos=1, at_us=1)
    event = progress(message, 0, 2)
    return ProgressEvent(
        kind="outcome", id=event.id, partition=0, offset=0, appended_ms=event.appended_ms, shard=0, number=0, limit=2,
        deliveries=[delivery],
    )  # fmt: skip


@settings(
    max_examples=2,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(touches=st.lists(st.integers(0, 4) | st.just(SHARDS), min_size=20, max_size=60), seed=st.integers())
def test_complete_exactly_when_all_are_relinquished(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, touches: list[int], seed: int
) -> None:
    """R4, R7: in any order, with copies and reports of deliveries among them; and a message whose instructions are not
    all relinquished is never complete, whatever comes instead."""
    rng = random.Random(seed)
    events = []
    for message, n in enumerate(touches):
        whole = [progress(message, number, n) for number in range(n or 1)]
        missing = n and rng.random() < 0.3
        heard = rng.sample(whole, len(whole) - 1) if missing else whole
        events += heard + (rng.choices(heard, k=3) if heard else []) + [outcome(message)]
    rng.shuffle(events)
    rows = [
        (event.id.encode(), encode(event), "progress", 0, offset, START_MS + 5000 + offset, [])
        for offset, event in enumerate(events)
    ]
    size = -(-len(rows) // BATCHES)
    batches = [rows[start : start + size] for start in range(0, len(rows), size)]
    found = completed(spark, tmp_path_factory.mktemp("completion"), batches, SHARDS)

    heard_numbers: dict[str, set[int | None]] = defaultdict(set)
    due: dict[str, int] = {}
    for number, batch in enumerate(batches):
        for row in batch:
            event = decode(ProgressEvent, row[1])
            if event.kind == "outcome":
                continue
            heard_numbers[event.id].add(event.number)
            wanted = touches[int(event.id[1:])]
            if event.id not in due and len(heard_numbers[event.id]) == max(wanted, 1):
                due[event.id] = number
        given_now = set(found[number])
        first_now = {id for id, when in due.items() if when == number}
        assert first_now <= {event.id for event in given_now} <= due.keys(), f"batch {number}"
        for event in given_now:
            assert event.touches == touches[int(event.id[1:])]
            assert event.appended_ms == START_MS + int(event.id[1:])
            assert START_MS + 5000 <= event.completed_ms < START_MS + 5000 + len(rows)
    assert due, "nothing to complete"


def test_the_decisions_of_two_routers_are_counted_apart(spark: SparkSession, tmp_path: Path) -> None:
    """R4: one router knows the routes (two instructions), its peer sends to everyone (four): what is relinquished of
    both must not add up to either."""
    events = [
        progress(1, 0, 4, "everyone"),
        progress(1, 1, 2, "routed"),
        progress(1, 3, 4, "everyone"),
        progress(1, 2, 4, "everyone"),
        progress(1, 0, 2, "routed"),
    ]
    batches = [[(b"m1", encode(event), "progress", 0, n, START_MS + n, [])] for n, event in enumerate(events)]
    found = completed(spark, tmp_path, batches, 4)
    assert [len(events) for events in found] == [0, 0, 0, 0, 1]
    assert found[4][0].touches == 2


def test_a_message_whose_recipient_comes_back_after_days_is_complete(spark: SparkSession, tmp_path: Path) -> None:
    """R4: whatever was relinquished meanwhile; and nothing is kept of what is complete."""
    day = 86_400_000
    batches = [
        [row(progress(1, 0, 2), 0), row(progress(2, 0, 1), 0)],
        [row(progress(3, 0, 2), 6 * day)],
        [row(progress(1, 1, 2), 6 * day), row(progress(4, 0, 0), 6 * day)],
    ]
    found = completed(spark, tmp_path, batches, 4)
    assert [[event.id for event in events] for events in found] == [["m2"], [], ["m1", "m4"]]
    assert open_decisions(tmp_path) == {"routed m3"}


def test_what_was_in_flight_is_known_again_without_the_file(spark: SparkSession, tmp_path: Path) -> None:
    """R4: from the topic, as far as batches had taken it, by Spark; numbers of more than one word among them."""
    first = [row(progress(1, 0, SHARDS), 0), row(progress(1, SHARDS - 1, SHARDS), 0), row(progress(2, 0, 1), 0)]
    rest = [row(progress(1, number, SHARDS), 1) for number in range(1, SHARDS - 1)]

    def replay(session: SparkSession) -> DataFrame:
        shutil.rmtree(tmp_path / "lost", ignore_errors=True)
        return relinquished(kafka_rows(session, first))

    assert completed(spark, tmp_path / "before", [first], SHARDS)[0][0].id == "m2"
    sink, written = sink_of(tmp_path / "lost", SHARDS, replay)
    spark.sparkContext.setLocalProperty(QUERY_ID, "a-query")
    sink(relinquished(kafka_rows(spark, rest)), 7)
    assert [(event.id, event.touches) for event in written] == [("m1", SHARDS)]


def test_a_number_that_no_message_has_completes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    far = progress(1, 2**31 - 1, 2**31 - 1)
    found = completed(spark, tmp_path, [[row(far, 0), row(progress(1, 0, 1), 0)]], 4)
    assert [[event.touches for event in events] for events in found] == [[1]]


class Written(list[CompletionEvent]):
    """Stands for a writer to Kafka."""

    def write(self, records: Iterable[Out]) -> None:
        self.extend(decode(CompletionEvent, record.value or b"") for record in records if record.topic == "completion")


def row(event: ProgressEvent, after_ms: int) -> tuple[Any, ...]:
    return (event.id.encode(), encode(event), "progress", 0, 0, START_MS + after_ms, [])


def sink_of(
    directory: Path, shards: int, replay: Callable[[SparkSession], DataFrame | None] = lambda _spark: None
) -> tuple[CompletionSink, Written]:
    written: Any = Written()
    counted = 2, shards, 7 * DAY_S, directory, replay
    receipts = ReceiptSink(written, "ingress", *counted, clock=lambda: START_MS / 1000)
    return CompletionSink(written, "completion", *counted, receipts), written


def completed(
    spark: SparkSession, directory: Path, batches: Sequence[Sequence[tuple[Any, ...]]], shards: int
) -> list[list[CompletionEvent]]:
    """The events that each batch of Kafka rows gives."""
    sink, written = sink_of(directory, shards)
    given: dict[int, list[CompletionEvent]] = {}

    def keep(rows: DataFrame, batch_id: int) -> None:
        sink(rows, batch_id)
        given[batch_id] = list(written)
        written.clear()

    in_batches(spark, directory, batches, relinquished, keep)
    return [given.get(number, []) for number in range(len(batches))]


def open_decisions(directory: Path) -> set[str]:
    database = LocalDatabase(directory / "completion.sqlite", "")  # takes the file over from the query
    return {key.decode() for (key,) in database.connection.execute("SELECT key FROM states")}
