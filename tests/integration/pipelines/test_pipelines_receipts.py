"""Receipts (Q13): from events on `progress` to messages to inboxes, by Spark."""

import base64
import json
import random
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipelines.kafka.writer import Out
from pipelines.ledger.completion import relinquished
from pipelines.ledger.completion_sink import CompletionSink
from pipelines.ledger.receipt_sink import ReceiptSink
from pipelines.storage.table_files import QUERY_ID
from schemas.envelope import Meta
from schemas.events import ProgressEvent, RecipientOutcome, encode
from schemas.receipts import RECEIPTS_SOURCE, ReceiptKind, ReceiptRequest
from schemas.settings import DAY_S
from tests.integration.pipelines.streamed import in_batches, kafka_rows

START_MS = 1_700_000_000_000
PROPERTIES = b"\x05\x09\x00\x02id"


class Kafka(list[Out]):
    """Stands for a writer. `there`: receipts that an earlier process has written, and when."""

    def __init__(self) -> None:
        self.there: dict[bytes, int] = {}

    def write(self, records: Iterable[Out]) -> None:
        self.extend(record for record in records if record.topic == "ingress")

    def ids_since(self, topic: str, partitions: int, since_ms: int, source: str) -> dict[bytes, int]:
        assert (topic, partitions, source) == ("ingress", 2, RECEIPTS_SOURCE)
        assert since_ms >= START_MS
        return {id: appended_ms for id, appended_ms in self.there.items() if appended_ms >= since_ms}


def row(event: ProgressEvent, after_ms: int = 0) -> tuple[Any, ...]:
    return (event.id.encode(), encode(event), "progress", 0, 0, START_MS + after_ms, [])


def asked(message: str, kind: ReceiptKind = "completed") -> ProgressEvent:
    request = ReceiptRequest(kind=kind, to="van", properties=base64.b64encode(PROPERTIES).decode())
    return ProgressEvent(
        kind="asked", id=message, partition=0, offset=-1, appended_ms=0, is_awaited=True, receipt=request
    )  # fmt: skip


def ended(message: str, number: int, touches: int, *clients: str, kind: Any = "relinquish") -> ProgressEvent:
    """An instruction of `touches` that is finished, with what became of the message for these clients."""
    deliveries = [RecipientOutcome(client=client, outcome="delivered", qos=1, at_us=1) for client in clients]
    return ProgressEvent(
        kind=kind, id=message, partition=0, offset=7, appended_ms=START_MS, shard=number, number=number,
        limit=touches if number == touches - 1 else None, deliveries=deliveries, is_awaited=True,
    )  # fmt: skip


def read(message: str, client: str) -> ProgressEvent:
    return ProgressEvent(
        kind="read", id=message, partition=-1, offset=-1, appended_ms=0, is_awaited=True, read_by=client
    )  # fmt: skip


def untouched(message: str) -> ProgressEvent:
    return ProgressEvent(
        kind="untouched", id=message, partition=0, offset=7, appended_ms=START_MS, limit=0, is_awaited=True
    )  # fmt: skip


def sink_of(
    directory: Path, replay: Callable[[SparkSession], DataFrame | None] = lambda _spark: None
) -> tuple[CompletionSink, Kafka]:
    kafka: Any = Kafka()
    counted = 2, 8, 7 * DAY_S, directory, replay
    receipts = ReceiptSink(kafka, "ingress", *counted, clock=lambda: START_MS / 1000)
    return CompletionSink(kafka, "completion", *counted, receipts), kafka


def told(records: Sequence[Out]) -> dict[str, tuple[int, bool]]:
    """Recipients, and whether it was complete, by message; each is told once."""
    found = [json.loads(record.value or b"") for record in records]
    assert len({one["message_id"] for one in found}) == len(found)
    return {one["message_id"]: (one["recipients"], one["complete"]) for one in found}


def test_each_message_has_its_receipt_once_in_any_order(spark: SparkSession, tmp_path: Path) -> None:
    """With copies, over several batches, beside messages without receipts. Only homes write theirs in order."""
    events = [asked("none"), untouched("none")]
    events += [asked("two"), ended("two", 0, 2, "a", "b", kind="outcome"), ended("two", 0, 2), ended("two", 1, 2, "c")]
    events += [asked("first", "delivered"), ended("first", 0, 2, "a", kind="outcome")]
    events += [asked("open"), ended("open", 0, 2, "a")]
    events += [asked("fine", "failed"), ended("fine", 0, 1, "a")]
    events += [asked("seen", "read"), ended("seen", 0, 1, "a"), *(read("seen", client) for client in "xa")]
    plain = ProgressEvent(kind="untouched", id="plain", partition=0, offset=8, appended_ms=START_MS, limit=0)
    events += [plain, *events[:5]]
    random.shuffle(events)
    of_homes = [at for at, event in enumerate(events) if event.kind in ("outcome", "relinquish")]
    outcomes_first = sorted((events[at] for at in of_homes), key=lambda event: event.kind)
    for at, event in zip(of_homes, outcomes_first, strict=True):
        events[at] = event
    rows = [row(event, after_ms) for after_ms, event in enumerate(events)]
    sink, kafka = sink_of(tmp_path / "states")
    in_batches(spark, tmp_path, [rows[:6], rows[6:12], rows[12:]], relinquished, sink)
    receipts = told(kafka)
    assert receipts.pop("first")[0] == 1
    assert receipts.pop("seen") == (1, True)
    assert receipts == {"none": (0, True), "two": (3, True)}


def test_a_receipt_is_a_message_to_the_senders_inbox(spark: SparkSession, tmp_path: Path) -> None:
    sink, kafka = sink_of(tmp_path / "states")
    in_batches(spark, tmp_path, [[row(asked("m")), row(untouched("m"))]], relinquished, sink)
    [receipt] = kafka
    assert receipt.key == b"@van"
    headers = dict(receipt.headers)
    assert list(headers) == ["id", "src", "meta", "props"]
    assert (headers["src"], headers["props"]) == (b"$receipts", PROPERTIES)
    meta = Meta.decode(headers["meta"])
    assert (meta.qos, meta.flags, meta.expires) == (1, "p", None)


def test_a_batch_that_is_repeated_after_a_crash_tells_nobody_twice(spark: SparkSession, tmp_path: Path) -> None:
    """The process ended after Kafka had the receipt, and before the batch was done. Nor do all batches that are
    repeated because the checkpoint was lost."""
    batches = [[row(asked(name), at), row(untouched(name), at)] for at, name in enumerate("abc")]
    sink, kafka = sink_of(tmp_path / "first")
    in_batches(spark, tmp_path / "a", batches, relinquished, sink)
    assert len(told(kafka)) == 3
    again, later = sink_of(tmp_path / "second")
    later.there = {dict(record.headers)["id"]: START_MS + 2 for record in kafka}
    in_batches(spark, tmp_path / "b", [*batches, [row(asked("d"), 3), row(untouched("d"), 3)]], relinquished, again)
    assert told(later).keys() == {"d"}


@pytest.mark.parametrize("is_told", [False, True])
def test_what_waits_is_known_again_without_the_file(spark: SparkSession, tmp_path: Path, is_told: bool) -> None:
    """From the topic, as far as batches had taken it; what was told then is not told again."""
    first = [row(asked("m")), row(ended("m", 0, 2, "a"))] + ([row(ended("m", 1, 2, "b"))] if is_told else [])

    def replay(session: SparkSession) -> DataFrame:
        shutil.rmtree(tmp_path / "lost", ignore_errors=True)
        return relinquished(kafka_rows(session, first))

    sink, kafka = sink_of(tmp_path / "lost", replay)
    spark.sparkContext.setLocalProperty(QUERY_ID, "a-query")
    sink(relinquished(kafka_rows(spark, [row(ended("m", 1, 2, "b", "a"))])), 7)
    assert told(kafka) == ({} if is_told else {"m": (2, True)})
