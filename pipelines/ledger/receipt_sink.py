"""Sends receipts: messages to the inboxes of senders that ask for them (Q13; :mod:`schemas.receipts`)."""

import base64
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession

from pipelines.kafka.writer import KafkaWriter, Out
from pipelines.ledger.completion import RELINQUISHED, counts, message_of
from pipelines.ledger.receipts import ENDS, ReceiptState
from pipelines.storage.keyed_states import KeyedStates
from pipelines.storage.local_database import file_of
from schemas.envelope import Meta, ingress_headers
from schemas.identity import derived_message_id, inbox_of, partition_of
from schemas.origin import PLATFORM_FLAG
from schemas.receipts import RECEIPTS_SOURCE, receipt_payload

QOS = 1


class ReceiptSink:
    """Has the state of each message that a receipt is asked for, in `directory`, for `kept_s` after its last event; a
    receipt that is not due by then is never sent. If the file is lost, it is rebuilt from `replay`
    (:class:`pipelines.ledger.completion_sink.CompletionSink`).

    Exactly once on `ingress`: a receipt's id is derived from that of its message, and receipts that are there already
    are skipped. Earlier processes may have sent those of the first batch after a start, which may be a repeated one;
    and, if the checkpoint was lost, those of all batches up to the latest receipt that is there. `clock` gives seconds
    since the epoch.
    """

    def __init__(
        self,
        writer: KafkaWriter,
        ingress: str,
        partitions: int,
        shards: int,
        kept_s: int,
        directory: Path,
        replay: Callable[[SparkSession], DataFrame | None],
        clock: Callable[[], float],
    ) -> None:
        self._writer = writer
        self._ingress = ingress
        self._partitions = partitions
        self._shards = shards
        self._replay = replay
        self._clock = clock
        self._states = KeyedStates(file_of(directory, "receipts"), kept_s, self._earlier)
        self._there: dict[bytes, int] | None = None

    def begin(self, spark: SparkSession, query: str, batch_id: int) -> bool:
        """Have the states ready for a batch; False if they already include it."""
        return self._states.begin(spark, query, batch_id)

    def take(
        self, query: str, batch_id: int, rows: Collection[Mapping[str, Any]], complete: Collection[str], since_ms: int
    ) -> None:
        """A batch: its rows of :func:`pipelines.ledger.completion.relinquished` for which receipts wait, and the ids of
        messages that are complete by now. `since_ms`: the earliest append time of the batch. Raises NotWritten."""
        by_id: dict[str, list[Mapping[str, Any]]] = {}
        for row in rows:
            by_id.setdefault(row["id"], []).append(row["awaited"])
        known = self._states.known(by_id)
        now = {
            id: ReceiptState.decode(known.get(id)).after(events, is_complete=id in complete)
            for id, events in by_id.items()
        }
        due = {id: state for id, state in now.items() if state.is_due}
        if due:
            self._writer.write(self._receipts(due, self._receipts_there(since_ms)))
        states = {id: state.settled().encode() for id, state in now.items()}
        self._states.finish(query, batch_id, states, since_ms if by_id else 0)

    def _receipts(self, due: Mapping[str, ReceiptState], there: Collection[bytes]) -> Iterator[Out]:
        meta = Meta(QOS, PLATFORM_FLAG, None, int(self._clock() * 1e6), None)
        for id, state in due.items():
            request = state.request
            assert request is not None  # otherwise it is not due
            receipt_id = derived_message_id(f"{RECEIPTS_SOURCE}/{id}", request.kind)
            if receipt_id.encode() not in there:
                payload = receipt_payload(
                    id, request.kind, state.outcomes, state.read_by, is_complete=state.is_complete
                )
                headers = ingress_headers(receipt_id, RECEIPTS_SOURCE, meta, base64.b64decode(request.properties))
                partition, key = partition_of(request.to, self._partitions), inbox_of(request.to).encode()
                yield Out(self._ingress, partition, key, msgspec.json.encode(payload), headers)

    def _receipts_there(self, since_ms: int) -> Collection[bytes]:
        """The ids of receipts of earlier processes that were appended at `since_ms` or later; asked for once. By the
        broker's clock, a receipt is later than the events that make it due."""
        if self._there is None:
            self._there = self._writer.ids_since(self._ingress, self._partitions, since_ms, RECEIPTS_SOURCE)
        elif self._there and since_ms > max(self._there.values()):
            self._there = {}
        return self._there

    def _earlier(self, spark: SparkSession) -> Iterator[tuple[str, bytes, int]]:
        """As if the batches until now had been taken."""
        rows = self._replay(spark)
        if rows is None:
            return
        ordered = rows.where("awaited IS NOT NULL").orderBy("id").toLocalIterator()
        for id, of_message in groupby(ordered, attrgetter("id")):
            events = list(of_message)
            ends = [tuple(row[name] for name in RELINQUISHED) for row in events if row.awaited.kind in ENDS]
            complete = {message_of(of) for of, count in counts(ends, self._shards).items() if count.is_complete}
            awaited = [row.awaited.asDict(recursive=True) for row in events]
            state = ReceiptState().after(awaited, is_complete=id in complete).settled()
            yield id, state.encode(), max(row.completed_ms for row in events)
