"""Completion: a message is complete when all its instructions are relinquished, in any order (R4, R7).

Each routing decision on a message (`scope`) numbers its instructions 0 … n-1, and the last instruction carries n. So a
message is complete exactly when n distinct numbers of one scope are relinquished. Copies add no number, and n is
unknown until the last instruction is relinquished. For a message that nobody wants the router reports n = 0, and it is
complete at once.

Only what is in flight is remembered, beside the driver (:mod:`pipelines.ledger.completion_sink`). A stateful operator
of Spark would keep each message for days and scan all of them in every batch.
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.ledger.receipts import ENDS, awaited
from pipelines.records import (
    Complaint,
    Format,
    complaint,
    event_format,
    moment_ms,
    not_a_small_number,
    parsed,
    younger_than_record,
)
from schemas.envelope import ROUTED
from schemas.events import ProgressEvent
from schemas.receipts import KINDS

WORD_BITS = 63

RELINQUISHED = ("id", "scope", "number", "limit", "appended_ms", "completed_ms")
"""The columns of :func:`relinquished` that :func:`counts` takes, in order."""


def progress_format() -> Format:
    """The format of `progress`."""

    def more(event: Column) -> list[Complaint]:
        touched, asked = event["kind"].isin("outcome", "relinquish"), event["kind"] == "asked"
        kind = event["receipt"]["kind"]
        return [
            complaint(event["id"] == "", "id is empty"),
            complaint(
                asked & (kind.isNull() | event["receipt"]["to"].isNull()), "the receipt, or its kind, is missing"
            ),
            complaint((event["kind"] == "read") & event["read_by"].isNull(), "read_by is missing"),
            complaint(asked & ~kind.isin(*KINDS), "the receipt '", kind, f"' is not one of {', '.join(KINDS)}"),
            complaint(touched & event["shard"].isNull(), "shard is missing"),
            # An outcome without a number comes from a direct delivery, which has no instruction (see the gateway's
            # home).
            complaint((event["kind"] == "relinquish") & event["number"].isNull(), "number is missing"),
            *(not_a_small_number(event[name], name) for name in ("shard", "number", "limit")),
            younger_than_record(moment_ms(event["appended_ms"])),
        ]

    return event_format(ProgressEvent, more)


def relinquished(records: DataFrame) -> DataFrame:
    """Finished instructions, including copies: `id, scope, number, limit, appended_ms` of the message, `completed_ms`
    of the record.

    A message without instructions is one row with limit 0 and no number. `awaited` is null unless a receipt is asked
    for (:func:`pipelines.ledger.receipts.awaited`): then there are rows of other events too, of which only that counts
    (:func:`ends_instruction`).
    """
    event = F.col("record")
    untouched = event["kind"] == "untouched"
    return (
        parsed(records, progress_format())
        .where((event["kind"] != "outcome") | event["is_awaited"])
        .select(
            event["id"].alias("id"),
            F.coalesce(event["scope"], F.lit(ROUTED)).alias("scope"),
            F.when(~untouched, event["number"]).alias("number"),
            F.when(untouched, 0).otherwise(event["limit"]).alias("limit"),
            event["appended_ms"].alias("appended_ms"),
            F.unix_millis("timestamp").alias("completed_ms"),
            awaited(event).alias("awaited"),
        )
    )


def ends_instruction() -> Column:
    """Which rows of :func:`relinquished` are finished instructions."""
    return F.col("awaited").isNull() | F.col("awaited.kind").isin(*ENDS)


class Count(NamedTuple):
    """What is known about a decision on a message: the relinquished `numbers`, as bits; their `limit`, if the last one
    is among them; when the message was appended, and when the latest relinquish was (ms since the epoch)."""

    numbers: int
    limit: int | None
    appended_ms: int
    completed_ms: int

    @property
    def is_complete(self) -> bool:
        return self.numbers.bit_count() == self.limit

    def with_(self, other: "Count") -> "Count":
        """The combined knowledge of both: the same in any order and with any copies."""
        limit = other.limit if self.limit is None else self.limit
        completed_ms = max(self.completed_ms, other.completed_ms)
        return Count(self.numbers | other.numbers, limit, self.appended_ms, completed_ms)

    def encode(self) -> bytes:
        limit = "" if self.limit is None else self.limit
        return f"{self.numbers:x} {limit} {self.appended_ms} {self.completed_ms}".encode()

    @classmethod
    def decode(cls, text: bytes) -> "Count":
        numbers, limit, appended_ms, completed_ms = text.decode().split(" ")
        return cls(int(numbers, 16), int(limit) if limit else None, int(appended_ms), int(completed_ms))


def counts(relinquishes: Iterable[tuple[str, str, int | None, int | None, int, int]], shards: int) -> dict[str, Count]:
    """The counts by decision (:func:`decision`) of :func:`relinquished` instructions. `shards` is the most that a
    message can have; greater numbers are ignored."""
    found: dict[str, Count] = {}
    for id, scope, number, limit, appended_ms, completed_ms in relinquishes:
        one = Count(1 << number if number is not None and number < shards else 0, limit, appended_ms, completed_ms)
        of = decision(id, scope)
        before = found.get(of)
        found[of] = one if before is None else before.with_(one)
    return found


def decision(id: str, scope: str) -> str:
    """The key of a routing decision. Ids are mostly ordered by time, so keys of the same time are adjacent."""
    return f"{scope} {id}"


def message_of(of: str) -> str:
    """The message id of a :func:`decision`."""
    return of.partition(" ")[2]


def in_flight(instructions: DataFrame, shards: int) -> DataFrame:
    """The decisions that are not complete, from all :func:`relinquished` instructions, counted by Spark. One row each:
    `id, scope, words, limit, appended_ms, completed_ms`. `words` are the numbers as bits, 63 per word, for at most
    `shards` numbers."""
    words = [f"word_{word}" for word in range((shards - 1) // WORD_BITS + 1)]
    bits = [F.coalesce(F.bit_or(_bit_in_word(word)), F.lit(0)).alias(name) for word, name in enumerate(words)]
    ones = reduce(lambda total, name: total + F.bit_count(name), words, F.lit(0))
    return (
        instructions.where(ends_instruction())
        .groupBy("id", "scope")
        .agg(
            *bits,
            F.max("limit").alias("limit"),
            F.max("appended_ms").alias("appended_ms"),
            F.max("completed_ms").alias("completed_ms"),
        )
        .where(F.col("limit").isNull() | (ones != F.col("limit")))
        .select("id", "scope", F.array(*words).alias("words"), "limit", "appended_ms", "completed_ms")
    )


def numbers_of(words: Sequence[int]) -> int:
    """The numbers of a row of :func:`in_flight`, in the form of a :class:`Count`."""
    return sum(word << (place * WORD_BITS) for place, word in enumerate(words))


def _bit_in_word(word: int) -> Column:
    bit = F.call_function("shiftleft", F.lit(1).cast("long"), (F.col("number") % WORD_BITS).cast("int"))
    return F.when(F.floor(F.col("number") / WORD_BITS) == word, bit)
