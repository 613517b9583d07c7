"""Recomputes every message's routing decision from the history of routes, and compares it with its instructions.

The routers' own functions find the shards that a message should go to: :func:`pipelines.routing.routes.stepped` folds
`routes_history`, and :func:`pipelines.routing.instructions.with_routes` and `with_shards` decide.
:func:`pipelines.routing.decisions.judge` states what must hold of one message's instructions; here are the same rules
for all messages.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipelines.routing.decisions import (
    DIFFERS,
    LATER,
    MISSING,
    NUMBERING,
    RIGHT,
    SUPERFLUOUS,
    UNDECIDED,
    UNKNOWN,
    UNTOUCHED,
    Reach,
)
from pipelines.routing.instructions import RoutingPlan, numbered, with_route_keys, with_routes, with_shards
from pipelines.routing.route_buckets import BucketedRoutes
from pipelines.routing.routes import stepped
from schemas.envelope import EVERYONE, ROUTED
from schemas.identity import CATCH_ALL, INBOX_MARK, ROUTE_DEPTH

SLICES = 96
FEW = 32
"""A route key with more than `FEW` intervals in the period is looked up by the slice of the period, a quarter of an
hour of a day. Routing sorts all candidates of a message, which would take long for keys that come and go by the minute.
The slices turn n intervals into a small multiple of n rows, whatever the routes were."""

SLICED = "\0"
"""Separates slice and route key: no topic contains this character."""

DIFFERENCES = "array<struct<kind:string,scope:string,shards:array<int>>>"


class Period(NamedTuple):
    """Messages appended in [since, until), UTC."""

    since: datetime
    until: datetime

    def holds(self, moment: Column) -> Column:
        return (moment >= F.lit(self.since)) & (moment < F.lit(self.until))

    def slice_of(self, moment: Column) -> Column:
        """The number, 0 … `SLICES`-1, of this period's slice that contains the moment."""
        begin, length = F.unix_micros(F.lit(self.since)), (self.until - self.since) // timedelta(microseconds=1)
        return F.floor((F.unix_micros(moment) - begin) * SLICES / length)


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
    """The routes table as it would be if it held all `intervals` that matter in `period`, complete up to its end.

    `route_key, targets, as_of`; keys with many intervals are in slices (:func:`with_sliced_keys`).
    """
    since, until = F.lit(period.since), F.lit(period.until)
    last = F.least("effective_until", until) - F.expr("INTERVAL 1 MICROSECOND")
    slices = F.sequence(period.slice_of(F.greatest("effective_from", since)), period.slice_of(last))
    sliced = F.transform(slices, lambda number: _sliced_key(number, F.col("route_key")))
    is_few = F.count("*").over(Window.partitionBy("route_key")) <= FEW
    target = F.struct("shard", "effective_from", "effective_until")
    matters = (F.col("effective_from") < until) & (F.col("effective_until") > since)
    pieces = (
        intervals.where(matters)
        .withColumn("keys", F.when(is_few, F.array("route_key")).otherwise(sliced))
        .select(F.explode("keys").alias("route_key"), target.alias("target"))
    )
    # The row that gives the time up to which the routes are known.
    known = intervals.sparkSession.range(1).select(F.lit(CATCH_ALL).alias("route_key"), until.alias("as_of"))
    return (
        pieces.unionByName(known, allowMissingColumns=True)
        .groupBy("route_key")
        .agg(F.collect_list("target").alias("targets"), F.max("as_of").alias("as_of"))
    )


def wanted(messages: DataFrame, routes: BucketedRoutes, period: Period, shards: int) -> DataFrame:
    """`message_id, copy` for rows of `messages`: `copy` is the message as a struct `partition, offset, appended,
    destination, wanted` (the shards it should go to, ascending). All messages must be of `period`, and so must
    `routes`, as returned by :func:`routes_in`."""
    depth = 2 * ROUTE_DEPTH + 1
    plan = RoutingPlan("", "", 1, shards, 0.0, "", depth)
    return (
        messages.select("id", "partition", "offset", "destination", F.col("appended").alias("timestamp"))
        .transform(with_route_keys)
        .transform(with_sliced_keys, period)
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


def with_sliced_keys(messages: DataFrame, period: Period) -> DataFrame:
    """Adds to `key_0` … `key_n` the keys under which routes with many intervals are found at `timestamp`."""
    number = period.slice_of(F.col("timestamp"))
    levels = range(ROUTE_DEPTH + 1)
    return messages.select(
        "*", *(_sliced_key(number, F.col(f"key_{n}")).alias(f"key_{ROUTE_DEPTH + 1 + n}") for n in levels)
    )


def doubtful(copies: DataFrame, ledger: Ledger, period: Period, reach: Reach) -> DataFrame:
    """`message_id` of the messages whose instructions are not plainly those that the routes ask for; these are few.

    Wanted and actual instructions become 64-bit marks, one per row, which cancel each other out. Spark aggregates such
    numbers in compiled code; examining each message (:func:`judged`) takes many times as long.
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
            _before(F.col("appended"), reach.routes).alias("routes_known"),
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


def judged(copies: DataFrame, ledger: Ledger, period: Period, shards: int, reach: Reach) -> DataFrame:
    """One row per message of `period`, and one for each id that has instructions but no message.

    `copies` are those of :func:`wanted`. Returns `message_id, partition, offset, destination, appended, wanted,
    instructed (array of scope, shard, number, limit), untouched, differences (array of kind, scope, shards), verdict`;
    the terms are those of :mod:`pipelines.routing.decisions`.
    """
    return (
        _gathered(copies, ledger, period)
        .select("*", F.posexplode_outer("copies").alias("nth", "copy"))
        .transform(_apart)
        .transform(_with_findings, shards, reach)
        .select(
            "message_id",
            "copy.partition",
            "copy.offset",
            "copy.destination",
            "appended",
            "copy.wanted",
            F.transform(
                F.concat("by_routes", "to_everyone", "elsewhere"),
                lambda one: F.struct(*(one[name].alias(name) for name in ("scope", "shard", "number", "limit"))),
            ).alias("instructed"),
            "untouched",
            F.when(F.col("verdict") == DIFFERS, F.col("sure"))
            .otherwise(F.array().cast(DIFFERENCES))
            .alias("differences"),
            "verdict",
        )
    )


def _gathered(copies: DataFrame, ledger: Ledger, period: Period) -> DataFrame:
    """One row per message id: `copies`, `instructions`, whether it was reported as `untouched`, and the append time
    that instructions and reports give. One shuffle for all, because the tables are far larger than memory."""
    rows, reports = _of_period(ledger, period)
    entry = F.struct("partition", "offset", "scope", "shard", "number", "limit")
    instructions = rows.select("message_id", entry.alias("instruction"), "message_appended")
    untouched = reports.select("message_id", F.lit(True).alias("untouched"), "message_appended")
    return (
        copies.unionByName(instructions, allowMissingColumns=True)
        .unionByName(untouched, allowMissingColumns=True)
        .groupBy("message_id")
        .agg(
            F.collect_list("copy").alias("copies"),
            F.collect_list("instruction").alias("instructions"),
            F.count("untouched").alias("reports"),
            F.min("message_appended").alias("message_appended"),
        )
        .withColumn("untouched", F.col("reports") > 0)
    )


def _of_period(ledger: Ledger, period: Period) -> tuple[DataFrame, DataFrame]:
    """The rows of `instructions`, and the `untouched` ones of `outcomes`, about messages of `period`."""
    # Records that follow from a message are appended on its day or later, or on the day before, because brokers' clocks
    # may differ. The statistics of other days' files exclude them.
    begin = period.since.date() - timedelta(days=1)
    of_period = (F.col("date") >= F.lit(begin)) & period.holds(F.col("message_appended"))
    untouched = ledger.outcomes.where(of_period & (F.col("outcome") == "untouched"))
    return ledger.instructions.where(of_period), untouched


def _apart(gathered: DataFrame) -> DataFrame:
    """Adds this copy's instructions, `by_routes` and `to_everyone`, and on the first copy those that belong to no copy
    (`elsewhere`); all ascending."""
    copy = F.col("copy")

    def is_of(one: Column, place: Column) -> Column:
        return (one["partition"] == place["partition"]) & (one["offset"] == place["offset"])

    def ordered(chosen: Column) -> Column:
        return F.array_sort(
            F.transform(
                chosen, lambda one: F.struct(*(one[name].alias(name) for name in ("shard", "number", "limit", "scope")))
            )
        )

    def of_scope(scope: str) -> Column:
        return ordered(F.filter("instructions", lambda one: is_of(one, copy) & (one["scope"] == scope)))

    stray = F.filter("instructions", lambda one: ~F.exists("copies", lambda place: is_of(one, place)))
    none = F.filter("instructions", lambda one: F.lit(False))
    return gathered.select(
        "*",
        F.coalesce(copy["appended"], F.col("message_appended")).alias("appended"),
        of_scope(ROUTED).alias("by_routes"),
        of_scope(EVERYONE).alias("to_everyone"),
        ordered(F.when(F.coalesce("nth", F.lit(0)) == 0, stray).otherwise(none)).alias("elsewhere"),
    )


def _with_findings(messages: DataFrame, shards: int, reach: Reach) -> DataFrame:
    """Adds `sure`, the certain differences, and `verdict`."""
    is_known = F.col("copy").isNotNull()
    wanted, everyone = F.col("copy.wanted"), F.array(*(F.lit(shard) for shard in range(shards)))
    is_inbox = F.col("copy.destination").startswith(INBOX_MARK)
    by_routes, to_everyone, untouched = F.col("by_routes"), F.col("to_everyone"), F.col("untouched")
    is_wanted = F.size(wanted) > 0
    is_routed = (F.size(by_routes) > 0) | (is_wanted & (F.size(to_everyone) == 0) & ~untouched)
    is_undecided = (F.size(by_routes) + F.size(to_everyone) == 0) & ~untouched & ~is_wanted
    none = F.array().cast("array<int>")
    of_all = F.when(is_inbox, none).otherwise(everyone)
    found = F.array(
        *_compared(ROUTED, wanted, by_routes, is_known & is_routed),
        *_compared(EVERYONE, of_all, to_everyone, is_known & (F.size(to_everyone) > 0)),
        _difference(UNTOUCHED, ROUTED, wanted, is_known & untouched & is_wanted),
        _difference(UNDECIDED, ROUTED, none, is_known & is_undecided),
        _difference(UNKNOWN, ROUTED, _shards_of(F.col("elsewhere")), ~is_known | (F.size("elsewhere") > 0)),
    )
    appended = F.col("appended")
    not_yet = {
        MISSING: ~_before(appended, reach.instructions),
        UNDECIDED: ~_before(appended, reach.untouched),
        UNKNOWN: ~is_known & ~_before(appended, reach.messages),
    }

    def is_sure(one: Column) -> Column:
        late = [(one["kind"] == kind) & condition for kind, condition in not_yet.items()]
        return ~(late[0] | late[1] | late[2])

    verdict = (
        F.when(is_known & ~_before(appended, reach.routes), LATER)
        .when(F.size("found") == 0, RIGHT)
        .when(F.size("sure") == 0, LATER)
        .otherwise(DIFFERS)
    )
    return (
        messages.withColumn("found", F.array_compact(found))
        .withColumn("sure", F.filter("found", is_sure))
        .withColumn("verdict", verdict)
    )


def _compared(scope: str, wanted: Column, instructed: Column, applies: Column) -> list[Column]:
    """The differences in one decision; null where there is none."""
    given = _shards_of(instructed)
    missing, superfluous = F.array_except(wanted, given), F.array_except(given, wanted)
    same = (F.size(missing) == 0) & (F.size(superfluous) == 0)

    def right(shard: Column, number: Column) -> Column:
        limit = F.when(number == F.size(wanted) - 1, F.size(wanted))
        return F.struct(shard.alias("shard"), number.alias("number"), limit.alias("limit"), F.lit(scope).alias("scope"))

    is_numbered = instructed.eqNullSafe(F.transform(wanted, right))
    return [
        _difference(MISSING, scope, missing, applies & (F.size(missing) > 0)),
        _difference(SUPERFLUOUS, scope, superfluous, applies & (F.size(superfluous) > 0)),
        _difference(NUMBERING, scope, wanted, applies & same & ~is_numbered),
    ]


def _difference(kind: str, scope: str, shards: Column, condition: Column) -> Column:
    found = F.struct(F.lit(kind).alias("kind"), F.lit(scope).alias("scope"), shards.alias("shards"))
    return F.when(condition, found)


def _shards_of(instructed: Column) -> Column:
    return F.array_distinct(instructed["shard"])


def _before(moment: Column, end: datetime | None) -> Column:
    return F.lit(False) if end is None else moment < F.lit(end)


def _sliced_key(number: Column, route_key: Column) -> Column:
    return F.concat(number.cast("string"), F.lit(SLICED), route_key)
