"""Completion: a message is complete when all its instructions are relinquished, in whatever order (R4, R7).

Each routing decision on a message (`scope`) numbers its instructions 0 … n-1 and its last one carries n. So a message
is complete exactly when n distinct numbers of one scope are relinquished: copies add no number, and as long as the last
instruction is out, n is unknown. A message that nobody wants has n = 0 from the router and is complete at once.

What is in flight is remembered beside the driver (:mod:`pipelines.ledger.completion_sink`), and only that: an
operator of Spark's would keep each message for days, and look through all of them in every batch.
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

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

WORD_BITS = 63


def progress_format() -> Format:
    """The format of `progress`."""

    def more(event: Column) -> list[Complaint]:
        touched = event["kind"] != "untouched"
        return [
            complaint(event["id"] == "", "id is empty"),
            complaint(touched & event["shard"].isNull(), "shard is missing"),
            # An outcome without a number is that of an own copy, which no instruction brought (see the gateway's home).
            complaint((event["kind"] == "relinquish") & event["number"].isNull(), "number is missing"),
            *(not_a_small_number(event[name], name) for name in ("shard", "number", "limit")),
            younger_than_record(moment_ms(event["appended_ms"])),
        ]

    return event_format(ProgressEvent, more)


def relinquished(records: DataFrame) -> DataFrame:
    """Finished instructions, copies included: `id, scope, number, limit, appended_ms` of the message, `completed_ms` of
    the record.

    A message without instructions is a row with limit 0 and without a number.
    """
    event = F.col("record")
    untouched = event["kind"] == "untouched"
    return (
        parsed(records, progress_format())
        .where(event["kind"] != "outcome")
        .select(
            event["id"].alias("id"),
            F.coalesce(event["scope"], F.lit(ROUTED)).alias("scope"),
            F.when(~untouched, event["number"]).alias("number"),
            F.when(untouched, 0).otherwise(event["limit"]).alias("limit"),
            event["appended_ms"].alias("appended_ms"),
            F.unix_millis("timestamp").alias("completed_ms"),
        )
    )


class Count(NamedTuple):
    """What is known of a decision on a message: `numbers` relinquished, as bits; their `limit`, if the last one is
    among them; when the message was appended, and the latest of the relinquishes (ms since the epoch)."""

    numbers: int
    limit: int | None
    appended_ms: int
    completed_ms: int

    @property
    def is_complete(self) -> bool:
        return self.numbers.bit_count() == self.limit

    def with_(self, other: "Count") -> "Count":
        """What both know: in any order, with any copies, the same."""
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
    """By decision (:func:`decision`) what :func:`relinquished` instructions make of it; `shards` is how many a message
    has at most, and a greater number is nobody's."""
    found: dict[str, Count] = {}
    for id, scope, number, limit, appended_ms, completed_ms in relinquishes:
        one = Count(1 << number if number is not None and number < shards else 0, limit, appended_ms, completed_ms)
        of = decision(id, scope)
        before = found.get(of)
        found[of] = one if before is None else before.with_(one)
    return found


def decision(id: str, scope: str) -> str:
    """What a routing decision is told by. Ids of one time stand side by side, as they are mostly ordered by it."""
    return f"{scope} {id}"


def message_of(of: str) -> str:
    """The id of the message of a :func:`decision`."""
    return of.partition(" ")[2]


def in_flight(instructions: DataFrame, shards: int) -> DataFrame:
    """Of all :func:`relinquished` instructions, counted by Spark, those of decisions that are not complete: a row each,
    `id, scope, words, limit, appended_ms, completed_ms`; `words` the numbers as bits, 63 to a word, for `shards` at
    most."""
    words = [f"word_{word}" for word in range((shards - 1) // WORD_BITS + 1)]
    bits = [F.coalesce(F.bit_or(_bit_in_word(word)), F.lit(0)).alias(name) for word, name in enumerate(words)]
    ones = reduce(lambda total, name: total + F.bit_count(name), words, F.lit(0))
    return (
        instructions.groupBy("id", "scope")
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
    """The numbers of a row of :func:`in_flight` as those of a :class:`Count`."""
    return sum(word << (place * WORD_BITS) for place, word in enumerate(words))


def _bit_in_word(word: int) -> Column:
    bit = F.call_function("shiftleft", F.lit(1).cast("long"), (F.col("number") % WORD_BITS).cast("int"))
    return F.when(F.floor(F.col("number") / WORD_BITS) == word, bit)
