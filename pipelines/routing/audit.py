"""Recomputes every message's routing decision from the history of routes, and compares it with its instructions.

The routers' own functions find the shards that a message should go to: :func:`pipelines.routing.routes.stepped` folds
`routes_history`, and :func:`pipelines.routing.instructions.with_routes` and `with_shards` decide. Spark then sets aside
all messages that have exactly the instructions which the routers' :func:`pipelines.routing.instructions.numbered` gives
them. What must hold of the others' instructions is in :func:`pipelines.routing.decisions.judged`.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipelines.routing.decisions import UNTOUCHED, Watermarks
from pipelines.routing.instructions import RoutingPlan, numbered, with_route_keys, with_routes, with_shards
from pipelines.routing.route_buckets import BucketedRoutes
from pipelines.routing.routes import stepped
from schemas.envelope import EVERYONE, ROUTED
from schemas.identity import CATCH_ALL


class Period(NamedTuple):
    """Messages appended in [since, until), UTC."""

    since: datetime
    until: datetime

    def holds(self, moment: Column) -> Column:
        return (moment >= F.lit(self.since)) & (moment < F.lit(self.until))


class Ledger(NamedTuple):
    """The tables that an audit reads."""

    messages: DataFrame
    routes_history: DataFrame
    instructions: DataFrame
    outcomes: DataFrame

    def about(self, ids: DataFrame) -> "Ledger":
        """The same, with only those messages whose ids are given (`message_id`)."""
        return Ledger(
            self.messages.join(ids, F.col("id") == F.col("message_id"), how="left_semi"),
            self.routes_history,
            self.instructions.join(ids, "message_id", how="left_semi"),
            self.outcomes.join(ids, "message_id", how="left_semi"),
        )


def intervals(history: DataFrame) -> DataFrame:
    """`route_key, shard, effective_from, effective_until` from rows of `routes_history`, nothing forgotten.

    The fold applies each event to all that came before, which takes long for years of events. So the events of a route
    key and shard are cut wherever no later event can affect earlier ones: the route is closed, and has ended before any
    later event takes effect. Each part, seldom more than an `add` and a `drop`, is folded separately.
    """
    of_pair = Window.partitionBy("route_key", "shard").orderBy("offset")
    # Runs from the end: Spark would compute a frame of following rows anew for each row.
    from_end = Window.partitionBy("route_key", "shard").orderBy(F.desc("offset"))
    ended = F.max("effective").over(of_pair.rowsBetween(Window.unboundedPreceding, -1))
    begins = F.min("effective").over(from_end.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    is_closed = F.coalesce(F.lag("op").over(of_pair) == "drop", F.lit(True))
    is_apart = F.coalesce(ended <= begins, F.lit(True))
    step = F.struct("offset", "op", "shard", "effective")
    return (
        history.withColumn("cut", F.when(is_closed & is_apart, 1).otherwise(0))
        .withColumn("part", F.sum("cut").over(of_pair))
        .groupBy("route_key", "shard", "part")
        .agg(F.array_sort(F.collect_list(step)).alias("steps"))
        .select("route_key", F.inline(stepped(F.lit(None), F.col("steps"))))
        .select("route_key", "shard", "effective_from", "effective_until")
    )


def routes_in(period: Period, intervals: DataFrame) -> DataFrame:
    """The routes table as it would be if it held all `intervals` that matter in `period`, complete up to its end:
    `route_key, targets, as_of`."""
    since, until = F.lit(period.since), F.lit(period.until)
    matters = (F.col("effective_from") < until) & (F.col("effective_until") > since)
    target = F.struct("shard", "effective_from", "effective_until")
    pieces = intervals.where(matters).select("route_key", target.alias("target"))
    # The row that gives the time up to which the routes are known.
    known = intervals.sparkSession.range(1).select(F.lit(CATCH_ALL).alias("route_key"), until.alias("as_of"))
    return (
        pieces.unionByName(known, allowMissingColumns=True)
        .groupBy("route_key")
        .agg(F.collect_list("target").alias("targets"), F.max("as_of").alias("as_of"))
    )


def wanted(messages: DataFrame, routes: BucketedRoutes, shards: int) -> DataFrame:
    """`message_id, copy` for rows of `messages`: `copy` is the message as a struct `partition, offset, appended,
    destination, wanted` (the shards it should go to, ascending). All messages must be of the period of `routes`, which
    :func:`routes_in` returns."""
    plan = RoutingPlan("", "", 1, shards, 0.0, "")
    return (
        messages.select("id", "partition", "offset", "destination", F.col("appended").alias("timestamp"))
        .transform(with_route_keys)
        .transform(with_routes, routes, plan)
        .transform(with_shards, plan)
        .select(
            F.col("id").alias("message_id"),
            F.struct(
                "partition",
                "offset",
                F.col("timestamp").alias("appended"),
                "destination",
                F.col("shards").alias("wanted"),
            ).alias("copy"),
        )
    )


def doubtful(copies: DataFrame, ledger: Ledger, period: Period, watermarks: Watermarks) -> DataFrame:
    """`message_id` of the messages whose instructions are not plainly those that the routes ask for; these are few.

    Wanted and actual instructions become 64-bit marks, one per row, which cancel each other out. Spark aggregates such
    numbers in compiled code; examining each message takes many times as long.
    """
    row = ("partition", "offset", "scope", "shard", "number", "limit")
    mark = F.xxhash64(*(F.coalesce(name, F.lit(-1)) if name == "limit" else F.col(name) for name in row))
    nobody = F.xxhash64(F.lit(UNTOUCHED))
    wanted = (
        copies.select("message_id", "copy.*", F.lit(ROUTED).alias("scope"))
        .withColumnRenamed("wanted", "shards")
        .transform(numbered)
        .select(
            "message_id",
            F.when(F.col("shard").isNull(), nobody).otherwise(mark).alias("mark"),
            F.lit(1).alias("balance"),
            _before(F.col("appended"), watermarks.routes).alias("routes_known"),
        )
    )
    instructions, untouched = _of_period(ledger, period)
    found = instructions.select("message_id", mark.alias("mark"), F.lit(-1).alias("balance")).unionByName(
        untouched.select("message_id", nobody.alias("mark"), F.lit(-1).alias("balance"))
    )
    is_plain = (F.col("marks") == 0) & (F.col("balance") == 0) & F.coalesce("routes_known", F.lit(False))
    return (
        wanted.unionByName(found, allowMissingColumns=True)
        .groupBy("message_id")
        .agg(
            F.bit_xor("mark").alias("marks"),
            F.sum("balance").alias("balance"),
            F.bool_and("routes_known").alias("routes_known"),
        )
        .where(~is_plain)
        .select("message_id")
    )


def to_everyone(ledger: Ledger, period: Period) -> DataFrame:
    """One row for each message of `period` that a router sent to every shard because its routes might be incomplete."""
    instructions, _ = _of_period(ledger, period)
    return instructions.where((F.col("scope") == EVERYONE) & (F.col("number") == 0)).select("message_id")


def gathered(copies: DataFrame, ledger: Ledger, period: Period) -> DataFrame:
    """What is needed to judge each message of `period`, and each id that has instructions but no message.

    `copies` are those of :func:`wanted`. Returns one row per message id: `message_id`; `copies` and `instructions`, as
    :func:`pipelines.routing.decisions.judged` describes them; `reports`, the append times of the copies that were
    reported as wanted by nobody; `appended`, the append time that instructions and reports give. Times are microseconds
    since 1970. One shuffle for all, because the tables are far larger than memory.
    """
    rows, reports = _of_period(ledger, period)
    entry = F.struct("partition", "offset", "scope", "shard", "number", "limit")
    instructions = rows.select("message_id", entry.alias("instruction"), "message_appended")
    untouched = reports.select("message_id", F.lit(True).alias("untouched"), "message_appended")
    copy = F.col("copy").withField("appended", F.unix_micros("copy.appended"))
    return (
        copies.select("message_id", copy.alias("copy"))
        .unionByName(instructions, allowMissingColumns=True)
        .unionByName(untouched, allowMissingColumns=True)
        .groupBy("message_id")
        .agg(
            F.collect_list("copy").alias("copies"),
            F.collect_list("instruction").alias("instructions"),
            F.collect_set(F.when(F.col("untouched"), F.unix_micros("message_appended"))).alias("reports"),
            F.unix_micros(F.min("message_appended")).alias("appended"),
        )
    )


def _of_period(ledger: Ledger, period: Period) -> tuple[DataFrame, DataFrame]:
    """The rows of `instructions`, and the `untouched` ones of `outcomes`, about messages of `period`."""
    # Records that follow from a message are appended on its day or later, or on the day before, because brokers' clocks
    # may differ. The statistics of other days' files exclude them.
    begin = period.since.date() - timedelta(days=1)
    of_period = (F.col("date") >= F.lit(begin)) & period.holds(F.col("message_appended"))
    untouched = ledger.outcomes.where(of_period & (F.col("outcome") == "untouched"))
    return ledger.instructions.where(of_period), untouched


def _before(moment: Column, end: datetime | None) -> Column:
    return F.lit(False) if end is None else moment < F.lit(end)
