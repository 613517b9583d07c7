"""What follows from relinquished instructions: completions on `completion` (R4, R7), and receipts (Q13)."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from pipelines.kafka.writer import KafkaWriter, Out
from pipelines.ledger.completion import RELINQUISHED, Count, counts, decision, in_flight, message_of, numbers_of
from pipelines.ledger.receipt_sink import ReceiptSink
from pipelines.ledger.receipts import ENDS
from pipelines.storage.keyed_states import KeyedStates
from pipelines.storage.local_database import file_of
from pipelines.storage.table_files import query_id
from schemas.events import CompletionEvent, encode
from schemas.identity import partition_of

ONLY = 1
"""The limit of a decision with a single instruction. The record that carries it also relinquishes the only instruction,
so nothing earlier has to be looked up."""

Replay = Callable[[SparkSession], DataFrame | None]
"""All rows of :func:`pipelines.ledger.completion.relinquished` from finished batches, re-read; None if there are
none."""


class CompletionSink:
    """Takes the batches of :func:`pipelines.ledger.completion.relinquished`: a callback for `foreachBatch`.

    Contract: a message is reported complete at least once, and never before the last relinquish of a decision on it. It
    may be reported again with a later `completed_ms` after a crash, because of copies of relinquishes, or when a second
    decision completes. Consumers take the first report and drop the rest by id, as the ledger does.

    What is in flight is remembered in `directory` for `kept_s` after its last relinquish. A decision without a
    relinquish for that long stays incomplete. If the file is lost, it is rebuilt from `replay`. `receipts` takes each
    batch too, before this one does: so it has any batch that this one has.
    """

    def __init__(
        self,
        writer: KafkaWriter,
        topic: str,
        partitions: int,
        shards: int,
        kept_s: int,
        directory: Path,
        replay: Replay,
        receipts: ReceiptSink,
    ) -> None:
        self._receipts = receipts
        self._writer = writer
        self._topic = topic
        self._partitions = partitions
        self._shards = shards
        self._replay = replay
        self._open = KeyedStates(file_of(directory, "completion"), kept_s, self._in_flight)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        query = query_id(batch.sparkSession)
        if not self._open.begin(batch.sparkSession, query, batch_id):
            return
        has_receipts = not self._receipts.begin(batch.sparkSession, query, batch_id)
        rows = batch.toArrow()
        awaited = rows.filter(rows["awaited"].is_valid()).select(["id", "awaited"]).to_pylist()
        ends = rows if not awaited else rows.filter([_ends_instruction(of) for of in rows["awaited"].to_pylist()])
        news = counts(zip(*(ends[name].to_pylist() for name in RELINQUISHED), strict=True), self._shards)
        known = self._open.known(of for of, count in news.items() if count.limit is None or count.limit > ONLY)
        now = {of: count.with_(Count.decode(known[of])) if of in known else count for of, count in news.items()}
        self._writer.write(self._told(message_of(of), count) for of, count in now.items() if count.is_complete)
        # The oldest time: a record stamped by a clock that is ahead must not cause anything to be forgotten.
        since_ms = min(rows["completed_ms"].to_pylist(), default=0)
        if not has_receipts:
            complete = {message_of(of) for of, count in now.items() if count.is_complete}
            self._receipts.take(query, batch_id, awaited, complete, since_ms)
        states = {
            of: None if count.is_complete else count.encode()
            for of, count in now.items()
            if of in known or not count.is_complete
        }
        self._open.finish(query, batch_id, states, since_ms)

    def _told(self, id: str, count: Count) -> Out:
        event = CompletionEvent(
            id=id, touches=count.limit or 0, appended_ms=count.appended_ms, completed_ms=count.completed_ms
        )
        return Out(self._topic, partition_of(id, self._partitions), id.encode(), encode(event))

    def _in_flight(self, spark: SparkSession) -> Iterator[tuple[str, bytes, int]]:
        relinquished = self._replay(spark)
        if relinquished is not None:
            for row in in_flight(relinquished, self._shards).toLocalIterator():
                yield _state(row)


def _ends_instruction(awaited: dict[str, Any] | None) -> bool:
    """As :func:`pipelines.ledger.completion.ends_instruction`."""
    return awaited is None or awaited["kind"] in ENDS


def _state(row: Row) -> tuple[str, bytes, int]:
    count = Count(numbers_of(row.words), row.limit, row.appended_ms, row.completed_ms)
    return decision(row.id, row.scope), count.encode(), row.completed_ms
