"""Separates good records from bad ones, in the same way for every topic.

A :class:`Format` parses a Kafka record into a struct, never failing, and lists what can be wrong with it. `parsed`
returns only records without errors. `judged` returns all records, the bad ones with the first reason that applies.

`from_json` silently turns what it cannot read into nulls. So it is asked for the corrupt record too, and every required
field is checked. It is laxer than msgspec in two harmless ways: a number in place of a string is read as its digits,
and text after the closing brace is ignored.
"""

import types
import typing
from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.spark_schemas import event_schema
from schemas.events import CLOCKS_APART_S, Event

LATEST_MS = 253_402_300_799_000
"""The last second of the year 9999. Later times are implausible and would overflow a timestamp."""
LATEST_INT = 2**31 - 1
SKEW = f"INTERVAL {CLOCKS_APART_S} SECONDS"
"""How far brokers' clocks may differ. A message that claims to be younger than a record about it by more than that is
refused: one such record would push a watermark past everything else."""
KEPT_BYTES = 64 * 1024
REASON_CHARS = 1_000
"""A reason may quote a header, which may be as large as a record."""
_CORRUPT = "_corrupt"


class Complaint(NamedTuple):
    """A record is bad if `bad` is true (null counts as good). `words` are the message: columns, and strings taken
    literally."""

    bad: Column
    words: tuple[Column | str, ...]

    def text(self) -> Column:
        """The words as one text; null if there is nothing to complain about."""
        parts = [F.lit(w) if isinstance(w, str) else F.coalesce(w.cast("string"), F.lit("null")) for w in self.words]
        return F.when(self.bad, F.concat(*parts))


class Format(NamedTuple):
    """`parse()` makes a struct from the columns of a Kafka record; `complaints(struct)` lists what can be wrong with
    it.

    Both are functions because a Column exists only within a session.
    """

    parse: Callable[[], Column]
    complaints: Callable[[Column], list[Complaint]]


def parsed(records: DataFrame, form: Format, with_ends: bool = False) -> DataFrame:
    """The good records: columns of the Kafka source and the struct `record`. With `with_ends`, records without a value
    too, which end their key on a compacted topic."""
    is_good = ~_is_bad(form.complaints(F.col("record")))
    return _fenced(records, form).where(is_good | F.col("value").isNull() if with_ends else is_good)


def judged(records: DataFrame, form: Format) -> DataFrame:
    """All records, with `record` and `quarantined`: null for good records, and for bad ones a struct of what
    :func:`quarantine_records` reports.

    Nothing here depends on the batch. A value that did would be part of the generated code, which would then be
    compiled anew for every batch.
    """
    kept = F.base64(F.substring(F.coalesce("value", F.lit(b"")), 1, KEPT_BYTES)).alias("record")
    # Built only once: building them takes thousands of round trips to the JVM.
    complaints = form.complaints(F.col("record"))
    reason = F.substring(F.coalesce(*(complaint.text() for complaint in complaints)), 1, REASON_CHARS)
    appended_ms = F.unix_millis("timestamp").alias("appended_ms")
    what = F.struct("topic", "partition", "offset", reason.alias("reason"), kept, appended_ms)
    return _fenced(records, form).withColumn("quarantined", _fence(F.when(_is_bad(complaints), what)))


def quarantine_records(rows: DataFrame) -> DataFrame:
    """The bad records among the result of :func:`judged`, as Kafka records for the topic `quarantine`: `key` is their
    topic, `value` a :class:`schemas.events.QuarantineEvent` with the current time."""
    now = F.unix_micros(F.current_timestamp()).alias("at_us")
    event = F.struct(F.lit(1).alias("v"), "quarantined.*", now)
    return rows.where("quarantined IS NOT NULL").select(
        F.col("quarantined.topic").cast("binary").alias("key"), F.to_json(event).cast("binary").alias("value")
    )


def _is_bad(complaints: list[Complaint]) -> Column:
    """Whether any complaint applies."""
    return F.coalesce(reduce(or_, (complaint.bad for complaint in complaints)), F.lit(False))


def _fenced(records: DataFrame, form: Format) -> DataFrame:
    return records.select("*", _fence(form.parse()).alias("record"))


def _fence(value: Column) -> Column:
    """`value`, computed once and where it is written: the optimiser treats it as nondeterministic.

    Otherwise it moves filters below the projection, and every record is parsed or judged once for each mention.
    `from_json` is interpreted; alone in its projection, it leaves the others compiled.
    """
    return F.when(F.spark_partition_id() >= 0, value)


def event_format(kind: type[Event], more: Callable[[Column], list[Complaint]] = lambda event: []) -> Format:
    """The format of a topic of JSON events: what the declaration of `kind` demands, and then `more`."""
    schema = event_schema(kind).add(_CORRUPT, "string")

    def parse() -> Column:
        return F.from_json(text("value"), schema, {"columnNameOfCorruptRecord": _CORRUPT})

    def complaints(event: Column) -> list[Complaint]:
        return [*_event_complaints(event, kind), *more(event)]

    return Format(parse, complaints)


def complaint(bad: Column, *words: Column | str) -> Complaint:
    """A complaint, with its words as separate arguments."""
    return Complaint(bad, words)


def numeral(digits: Column, kind: str) -> Column:
    """The number of type `kind` in `digits`; null if there is none. An empty text is common where a number is optional,
    and a failed cast would cost an exception each time."""
    return F.nullif(digits, F.lit("")).try_cast(kind)


def text(binary: str | Column) -> Column:
    """The binary column as UTF-8 text; null if it is not UTF-8."""
    return F.try_validate_utf8((F.col(binary) if isinstance(binary, str) else binary).cast("string"))


def moment_ms(milliseconds: Column) -> Column:
    """A timestamp; null if it is out of range, where Spark's own function would fail the query."""
    return F.when(milliseconds.between(0, LATEST_MS), F.timestamp_millis(milliseconds))


def moment_us(microseconds: Column) -> Column:
    """As :func:`moment_ms`, of microseconds."""
    return F.when(microseconds.between(0, LATEST_MS * 1000), F.timestamp_micros(microseconds))


def younger_than_record(appended: Column) -> Complaint:
    """Complaint about a message whose append time is after that of the record about it."""
    late = appended > F.col("timestamp") + F.expr(SKEW)
    return complaint(late, "the message's append time ", appended, " is after that of the record, ", F.col("timestamp"))


def not_a_small_number(value: Column, name: str) -> Complaint:
    """Complaint about a number that cannot be an index or count: below 0 or beyond 32 bits."""
    return complaint(~value.between(0, LATEST_INT), f"{name} ", value, f" is not between 0 and {LATEST_INT}")


def _event_complaints(event: Column, kind: type[Event]) -> list[Complaint]:
    unread = event.isNull() | event[_CORRUPT].isNotNull()
    return [
        complaint(F.col("value").isNull(), "the record has no value"),
        complaint(unread, f"the value is not the JSON of a {kind.__name__}, or a field has the wrong type"),
        complaint(event["v"] != 1, f"{kind.__name__} version ", event["v"], " is not 1"),
        *_field_complaints(event, kind),
    ]


def _field_complaints(event: Column, kind: type[Event]) -> list[Complaint]:
    """What the declaration of an event demands of its fields, including those of structs in lists."""
    hints = typing.get_type_hints(kind)
    found: list[Complaint] = []
    for field in msgspec.structs.fields(kind):
        value, hint, name = event[field.name], _without_none(hints[field.name]), field.name
        if field.required and hint is hints[name]:
            found.append(complaint(value.isNull(), f"{name} is missing"))
        if typing.get_origin(hint) is typing.Literal:
            found.append(_not_one_of(value, typing.get_args(hint), name))
        if typing.get_origin(hint) is list:
            found += _element_complaints(value, typing.get_args(hint)[0], name)
        if name.endswith(("_ms", "_us")):
            found.append(_no_time(value, name))
    return found


def _has_null(array: Column) -> Column:
    """Nulls sort first."""
    return (F.size(array) > 0) & F.get(F.sort_array(array), F.lit(0)).isNull()


def _not_one_of(value: Column, words: Sequence[str], name: str) -> Complaint:
    return complaint(~value.isin(*words), f"{name} '", value, f"' is not one of {', '.join(words)}")


def _no_time(value: Column, name: str) -> Complaint:
    moment = moment_ms(value) if name.endswith("_ms") else moment_us(value)
    return complaint(value.isNotNull() & moment.isNull(), f"{name} ", value, " is out of range")


def _element_complaints(array: Column, kind: type, within: str) -> list[Complaint]:
    """What the declaration demands of each element of an array, and of its fields if it is a struct.

    Checked field by field, because functions over elements would be interpreted.
    """
    found = [complaint(_has_null(array), f"{within} has a null element")]
    if not issubclass(kind, msgspec.Struct):
        return found
    hints = typing.get_type_hints(kind)
    for field in msgspec.structs.fields(kind):
        values, hint, name = array[field.name], hints[field.name], f"{within}.{field.name}"
        if field.required:
            found.append(complaint(_has_null(values), f"{name} is missing"))
        if typing.get_origin(hint) is typing.Literal:
            words = typing.get_args(hint)
            others = F.array_except(values, F.array(*map(F.lit, words)))
            found.append(_not_one_of(F.get(others, F.lit(0)), words, name))
        if field.name.endswith(("_ms", "_us")):
            found += [_no_time(extreme(values), name) for extreme in (F.array_min, F.array_max)]
    return found


def _without_none(hint: typing.Any) -> typing.Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return next(argument for argument in typing.get_args(hint) if argument is not type(None))
    return hint
