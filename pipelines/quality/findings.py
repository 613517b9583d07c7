"""Violations of expectations: findings for some dates, from the history tables.

Each expectation (:mod:`pipelines.quality.expectations`) has one Spark query, however many dates are judged; those that
look at single rows share one query per table. The queries read the rows of the dates. Of the rows that these refer to
they read only some columns, from `since` to the day after. A finding is small: counts and some examples.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from importlib import resources
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.quality.expectations import (
    ACROSS,
    DELIVERY_LATENCY,
    ROUTING_LATENCY,
    of_required,
    of_uniqueness,
)
from schemas.sql import named_blocks
from schemas.table import Table
from schemas.tables import COMPLETIONS, HISTORY, INSTRUCTIONS, MESSAGES, OUTCOMES, PRESENCE_HISTORY, QUARANTINE

ACCURACY = 10_000
"""Of a quantile: its rank is exact to one part in this many."""

NEVER = datetime(9999, 1, 1, tzinfo=UTC)

Faults = DataFrame
"""`date, expectation, example`: one row per violation."""


class Scope(NamedTuple):
    """What is judged: rows of `dates` appended before `until`. What they refer to is looked up from the date `since`
    on, and the last offset of a partition from `positions_since` on. `watermarks` has the completeness watermark of
    each table that has rows: its youngest append time. `ingress` is the name of that topic."""

    dates: Sequence[date]
    until: datetime
    since: date
    positions_since: date
    watermarks: Mapping[str, datetime]
    ingress: str


class Bounds(NamedTuple):
    """Parameters: `skew_s`, by how much clocks may differ; the `quantile` of latencies and their limits in
    milliseconds; and how many `examples` a finding names."""

    skew_s: float
    quantile: float
    routing_ms: int
    delivery_ms: int
    examples: int

    def latency_ms(self, expectation: str) -> int:
        return {ROUTING_LATENCY: self.routing_ms, DELIVERY_LATENCY: self.delivery_ms}[expectation]


def findings(spark: SparkSession, tables: Mapping[str, DataFrame], scope: Scope, bounds: Bounds) -> Iterator[DataFrame]:
    """`date, name, judged, unexpected, observed, examples`, from the history tables by name, in many small DataFrames.

    Not in one: Spark plans the rest of a query anew after each of its stages, so one query of thirty parts takes
    several times as long as thirty queries.

    There is a row for each date and table, with the table's `name` and the number of rows `judged`. For each date and
    violated expectation: its name, the number `unexpected`, some `examples`. For each date and latency, violated or
    not: also the number `judged`, and the quantile `observed` in milliseconds.
    """
    views = _views(tables, scope)
    blocks = named_blocks(resources.files("pipelines.quality").joinpath("findings.sql").read_text())
    literals = {
        "since": scope.since.isoformat(),
        "messages_watermark": scope.watermarks.get(MESSAGES.name, NEVER).isoformat(),
        "instructions_watermark": scope.watermarks.get(INSTRUCTIONS.name, NEVER).isoformat(),
        "outcomes_watermark": scope.watermarks.get(OUTCOMES.name, NEVER).isoformat(),
        "skew": str(bounds.skew_s),
    }
    named: dict[str, Any] = {**views, **literals}

    def answer(name: str) -> DataFrame:
        return spark.sql(blocks[name], **{word: named[word] for word in _placeholders(blocks[name])})

    for table in HISTORY:
        rows = views[f"judged_{table.name}"]
        yield _counted(rows, table.name).unionByName(_gathered(_local(rows, table, bounds.skew_s), bounds))
        if table is not OUTCOMES:
            yield _gathered(_copied(views[f"recent_{table.name}"], table, scope.dates), bounds)
    for name in (of_uniqueness(OUTCOMES).name, *(across.name for across in ACROSS)):
        faults = answer(name).where(F.col("date").isin(*scope.dates))
        yield _gathered(faults.select("date", F.lit(name).alias("expectation"), "example"), bounds)
    for name in (ROUTING_LATENCY, DELIVERY_LATENCY):
        yield _measured(answer(name), name, bounds)


def _views(tables: Mapping[str, DataFrame], scope: Scope) -> dict[str, DataFrame]:
    """The DataFrames that the blocks of `findings.sql` refer to."""
    first, last, day = min(scope.dates), max(scope.dates), timedelta(days=1)
    views: dict[str, DataFrame] = {}
    for table in HISTORY:
        rows = tables[table.name]
        settled = rows.where(F.col("appended") < F.lit(scope.until))
        views[table.name] = rows.where(F.col("date").between(scope.since, last + day))
        views[f"judged_{table.name}"] = settled.where(F.col("date").isin(*scope.dates))
        views[f"recent_{table.name}"] = settled.where(F.col("date").between(first - day, last))
    places = tables[MESSAGES.name].where(F.col("appended") < F.lit(scope.until))
    views["placed_messages"] = places.where(F.col("date").between(first, last))
    earlier = places.where((F.col("date") >= scope.positions_since) & (F.col("date") < first))
    newest = F.max(F.struct("appended", "offset", "date")).alias("newest")
    views["earlier_messages"] = earlier.groupBy("partition").agg(newest).select("partition", "newest.*")
    of_ingress = tables[QUARANTINE.name].where((F.col("topic") == scope.ingress) & (F.col("date") >= scope.since))
    views["quarantined"] = of_ingress.select("partition", "offset")
    return views


def _placeholders(sql: str) -> set[str]:
    return {part.partition("}")[0] for part in sql.split("{")[1:]}


def _local(rows: DataFrame, table: Table, skew_s: float) -> Faults:
    """Violations visible in a single row: a required column is null, or times are out of order."""
    required = [column.name for column in table.columns if column.required]
    missing = F.concat_ws(", ", *(F.when(F.col(name).isNull(), F.lit(name)) for name in required))
    checks = {of_required(table).name: (missing != "", F.concat(F.lit("without "), missing))}
    for wrong, words in _disorder(table, F.expr(f"INTERVAL {round(skew_s * 1e6)} MICROSECONDS")):
        checks[f"time_{table.name}"] = (wrong, words)
    found = [
        F.when(wrong, F.struct(F.lit(name).alias("expectation"), _example(table, words).alias("example")))
        for name, (wrong, words) in checks.items()
    ]
    exploded = rows.select("date", F.explode(F.array_compact(F.array(*found))).alias("fault"))
    return exploded.select("date", "fault.expectation", "fault.example")


def _disorder(table: Table, skew: Column) -> list[tuple[Column, Column]]:
    """Whether a row's own times are out of order, and which they are; at most one pair."""
    order = {
        MESSAGES.name: [("accepted", "appended")],
        INSTRUCTIONS.name: [("message_appended", "appended")],
        OUTCOMES.name: [("message_appended", "appended"), ("at", "appended")],
        COMPLETIONS.name: [("message_appended", "completed"), ("completed", "appended")],
        PRESENCE_HISTORY.name: [("at", "appended")],
    }.get(table.name)
    if order is None:
        return []
    wrong = [F.col(earlier) > F.col(later) + skew for earlier, later in order]
    names = dict.fromkeys(name for pair in order for name in pair)
    return [(F.coalesce(reduce(Column.__or__, wrong), F.lit(False)), _named(*names))]


def _copied(rows: DataFrame, table: Table, dates: Sequence[date]) -> Faults:
    """Rows that already exist, on the same day or the day before."""
    copied = rows.groupBy(*table.key).agg(F.max("date").alias("last"), F.count(F.lit(1)).alias("copies"))
    faults = copied.where((F.col("copies") > 1) & F.col("last").isin(*dates))
    return faults.select(
        F.col("last").alias("date"),
        F.lit(of_uniqueness(table).name).alias("expectation"),
        _named(*table.key).alias("example"),
    )


def _example(table: Table, words: Column) -> Column:
    return F.concat_ws(": ", _named(*table.key), words)


def _named(*columns: str) -> Column:
    """`partition 0, offset 17`; nulls are left out."""
    return F.concat_ws(", ", *(F.concat(F.lit(f"{name} "), F.col(name).cast("string")) for name in columns))


def _gathered(faults: Faults, bounds: Bounds) -> DataFrame:
    return (
        faults.groupBy("date", F.col("expectation").alias("name"))
        .agg(
            F.count(F.lit(1)).alias("unexpected"),
            F.min_by("example", "example", bounds.examples).alias("examples"),
        )
        .select(
            "date",
            "name",
            F.lit(None).cast("long").alias("judged"),
            "unexpected",
            F.col("unexpected").cast("double").alias("observed"),
            "examples",
        )
    )


def _counted(rows: DataFrame, name: str) -> DataFrame:
    nothing = {
        "unexpected": F.lit(0).cast("long"),
        "observed": F.lit(0.0),
        "examples": F.lit(None).cast("array<string>"),
    }
    return (
        rows.groupBy("date")
        .agg(F.count(F.lit(1)).alias("judged"))
        .select(
            "date", F.lit(name).alias("name"), "judged", *(value.alias(column) for column, value in nothing.items())
        )
    )


def _measured(times: DataFrame, name: str, bounds: Bounds) -> DataFrame:
    """The quantile of `ms`; rows above the limit are unexpected if the quantile exceeds it."""
    above = F.col("ms") > bounds.latency_ms(name)
    slow = F.when(
        above, F.concat(F.lit("message "), "message_id", F.lit(": "), F.col("ms").cast("string"), F.lit(" ms"))
    )
    return (
        times.groupBy("date")
        .agg(
            F.count(F.lit(1)).alias("judged"),
            F.count_if(above).alias("unexpected"),
            F.percentile_approx("ms", bounds.quantile, ACCURACY).cast("double").alias("observed"),
            F.max_by(slow, "ms", bounds.examples).alias("examples"),
        )
        .select(
            "date",
            F.lit(name).alias("name"),
            "judged",
            "unexpected",
            "observed",
            F.array_compact("examples").alias("examples"),
        )
    )
