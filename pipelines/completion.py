"""Completion: a message is complete when all its instructions are relinquished, in whatever order (R4, R7).

Each routing decision on a message (`scope`) numbers its instructions 0 … n-1 and its last one carries n. So a message
is complete exactly when n distinct numbers of one scope are relinquished: copies add no number, and as long as the last
instruction is out, n is unknown. A message that nobody wants has n = 0 from the router and is complete at once.

Contract: one event at least, none before the last relinquish; copies of relinquishes that come after may repeat it with
a later `completed_ms` (consumers take the first and drop the rest by id; so does the ledger). If both scopes of a
message complete, each is reported. A relinquish that comes later than `window_days` after its message, measured against
the youngest message seen, is dropped by the watermark without a trace but the query's count of late rows: the message
then stays incomplete.
"""

from functools import reduce

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
EVICTION = "1 hour"
"""Width of the event-time windows that are part of the grouping key. All records of a message carry the same append
time, so any width keeps them together; the window is only what lets the watermark evict them."""


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


def completions(records: DataFrame, shards: int, window_days: int) -> DataFrame:
    """Completion events for the topic `completion`: `key` message id, `value` CompletionEvent; update mode.

    `records` of `progress`; `shards` bounds the instructions of a message.
    """
    return (
        relinquished(records)
        .withWatermark("message_appended", f"{window_days} days")
        .transform(counted, shards)
        .where(F.col("count") == F.col("limit"))
        .transform(_as_records)
    )


def relinquished(records: DataFrame) -> DataFrame:
    """Finished instructions, copies included: `id, scope, number, limit, message_appended, appended`.

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
            moment_ms(event["appended_ms"]).alias("message_appended"),
            F.col("timestamp").alias("appended"),
        )
    )


def counted(instructions: DataFrame, shards: int) -> DataFrame:
    """Per message and scope the `count` of distinct numbers, the `limit` if known, and when the last one came.

    The numbers are a bit set of as many 63-bit words as `shards` needs: a few bytes of state a message, no sort, no
    fallback of the aggregation to sorting as with `collect_set`.
    """
    words = [f"word_{word}" for word in range((shards - 1) // WORD_BITS + 1)]
    bits = [F.coalesce(F.bit_or(_bit_in_word(word)), F.lit(0)).alias(name) for word, name in enumerate(words)]
    ones = reduce(lambda total, name: total + F.bit_count(name), words, F.lit(0))
    return (
        instructions.groupBy("id", "scope", F.window("message_appended", EVICTION))
        .agg(
            *bits,
            F.max("limit").alias("limit"),
            F.max("message_appended").alias("message_appended"),
            F.max("appended").alias("completed"),
        )
        .withColumn("count", ones)
    )


def _bit_in_word(word: int) -> Column:
    bit = F.call_function("shiftleft", F.lit(1).cast("long"), (F.col("number") % WORD_BITS).cast("int"))
    return F.when(F.floor(F.col("number") / WORD_BITS) == word, bit)


def _as_records(complete: DataFrame) -> DataFrame:
    event = F.struct(
        F.lit(1).alias("v"),
        "id",
        F.col("limit").alias("touches"),
        F.unix_millis("message_appended").alias("appended_ms"),
        F.unix_millis("completed").alias("completed_ms"),
    )
    return complete.select(F.col("id").cast("binary").alias("key"), F.to_json(event).cast("binary").alias("value"))
