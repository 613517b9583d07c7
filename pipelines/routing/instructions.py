"""Routing: from messages of `ingress` and the routes table to instructions (R2, R3, R7, R8).

`instructions = route(messages, routes)` is a pure function of the message (destination, append time, position) and of
the routes (`[effective_from, effective_until)`). So the active router, the backup, a rerun, and an analyst years later
get the same instructions. A message appended later than the routes are known for goes to every shard: more work, but
nothing is lost.

Uses only what Real-Time Mode allows: projections, broadcast hash joins with a static side, one generator.
"""

from dataclasses import dataclass
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.origin import origin_of
from pipelines.routing.route_buckets import BucketedRoutes, RouteBuckets
from pipelines.routing.time_slices import slice_of
from schemas.envelope import EVERYONE, INGRESS_HEADERS, RECEIPT_FLAG, ROUTED, Meta
from schemas.identity import CATCH_ALL, INBOX_MARK, ROUTE_DEPTH
from schemas.tables import FAR_FUTURE


@dataclass(frozen=True)
class RoutingPlan:
    """What routing needs to know besides messages and routes.

    `egress` and `progress` are topic names; `progress_partitions` and `shards` are their partition counts;
    `route_lead_s` is the time from a route's event to its effect, in seconds; `router` is the name written on each
    copy.
    """

    egress: str
    progress: str
    progress_partitions: int
    shards: int
    route_lead_s: float
    router: str


def route(messages: DataFrame, routes: BucketedRoutes, plan: RoutingPlan) -> DataFrame:
    """Instructions and zero-touch records for `messages`.

    `messages`: Kafka source columns with headers (`key, value, headers, partition, offset, timestamp`). `routes`: the
    routes table in buckets, with the catch-all key. Returns Kafka sink columns `topic, key, value, headers, partition`:
    one row per instruction, or one row on `progress` for a message that nobody wants. Records without a valid envelope
    are left out; the ledger quarantines them.
    """
    return (
        messages.transform(addressed)
        .transform(with_routes, routes, plan)
        .transform(with_shards, plan)
        .transform(numbered)
        .transform(as_records, plan)
    )


def addressed(messages: DataFrame) -> DataFrame:
    """Messages with a valid envelope, their destination, and the route keys to look up (`key_0` the catch-all)."""
    # Written out header by header: this becomes generated code, where a lambda would be interpreted for every message.
    named = [F.col("headers")[place]["key"] == name for place, name in enumerate(INGRESS_HEADERS)]
    is_envelope = reduce(and_, [F.col("key").isNotNull(), F.size("headers") == len(INGRESS_HEADERS), *named])
    destination = F.col("key").cast("string")
    return messages.where(is_envelope).withColumn("destination", destination).transform(with_route_keys)


def with_route_keys(messages: DataFrame) -> DataFrame:
    """Adds the route keys that `destination` can have: `key_0` the catch-all, `key_n` its n leading levels."""
    levels = range(1, ROUTE_DEPTH + 1)
    keys = [F.substring_index("destination", "/", level).alias(f"key_{level}") for level in levels]
    # The catch-all key is derived from a column: a join on a literal would become a nested-loop join.
    catch_all = F.concat(F.substring("destination", 1, 0), F.lit(CATCH_ALL)).alias("key_0")
    return messages.select("*", catch_all, *keys)


def with_routes(messages: DataFrame, routes: BucketedRoutes, plan: RoutingPlan) -> DataFrame:
    """Adds `targets` (the candidate routes, without most of those not in effect at `timestamp`) and `known_until` (the
    time until which the routes are known to be complete, `as_of + route_lead`), by broadcast hash joins, one a key."""
    # Computed per route row rather than per message: Spark adds intervals through the calendar, which is slow.
    known_until = F.col("as_of") + F.expr(f"INTERVAL {plan.route_lead_s} SECONDS")
    known = routes.rows.select("bucket", "route_keys", "targets", known_until.alias("known_until"))
    joined, levels = messages, range(ROUTE_DEPTH + 1)
    for level in levels:
        side = F.broadcast(known.select(*(F.col(name).alias(f"{name}_{level}") for name in known.columns)))
        joined = joined.join(side, routes.buckets.of(F.col(f"key_{level}")) == F.col(f"bucket_{level}"), how="left")
    slices = [_slices_of(level, routes.buckets).alias(f"slices_{level}") for level in levels]
    found = [_targets_at(F.col("timestamp"), F.col(f"slices_{level}")) for level in levels]
    # Every side has the same columns, though only the catch-all's row has `known_until`, so that the joins share one
    # broadcast. A second broadcast would lengthen the pause between batches by a third.
    until = F.coalesce(*(f"known_until_{level}" for level in levels))
    sliced = joined.select("*", *slices, until.alias("known_until"))
    return sliced.select("*", F.concat(*found).alias("targets"))


def with_shards(messages: DataFrame, plan: RoutingPlan) -> DataFrame:
    """Adds `shards`, the distinct shards to instruct, ascending, and `scope`, how they were decided.

    An inbox goes to its client's shard without any route. A message appended when the routes are no longer known to be
    complete (`known_until` or later) goes to every shard.
    """
    appended = F.col("timestamp")
    client = F.expr(f"substring(destination, {len(INBOX_MARK) + 1})")
    inbox = F.array((F.crc32(client) % plan.shards).cast("int"))
    everyone = F.array(*(F.lit(shard).cast("int") for shard in range(plan.shards)))
    to_inbox = F.col("destination").startswith(INBOX_MARK)
    stale = F.col("known_until").isNull() | (appended >= F.col("known_until"))
    targets = F.col("targets")
    latest_start, earliest_end = F.array_max(targets["effective_from"]), F.array_min(targets["effective_until"])
    all_wanted = (latest_start <= appended) & (appended < earliest_end)
    several = F.size("targets") > 1
    wanting = F.sort_array(F.array_distinct(F.coalesce("shards_at", targets["shard"])))
    # Nearly every message has one candidate or none.
    only, none = F.col("targets")[0], F.array().cast("array<int>")
    is_wanted = (only["effective_from"] <= appended) & (appended < only["effective_until"])
    routed = (
        F.when(F.size("targets") == 0, none)
        .when(several, wanting)
        .when(is_wanted, F.array(only["shard"]))
        .otherwise(none)
    )
    shards = F.when(to_inbox, inbox).when(stale, everyone).otherwise(routed)
    scope = F.when(~to_inbox & stale, EVERYONE).otherwise(ROUTED)
    return (
        messages.transform(_with_shards_at, several & ~all_wanted)
        .select("*", shards.alias("shards"), scope.alias("scope"))
        .drop("shards_at")
    )


def numbered(messages: DataFrame) -> DataFrame:
    """One row per instruction: `shard`, `number` 0 … n-1, `limit` n on the last and null on the others (R3).

    A message without shards keeps one row with null `shard`.
    """
    exploded = messages.select("*", F.posexplode_outer("shards").alias("number", "shard"))
    last = F.col("number") == F.size("shards") - 1
    return exploded.withColumn("limit", F.when(last, F.size("shards")))


def as_records(instructions: DataFrame, plan: RoutingPlan) -> DataFrame:
    """Kafka records: instructions on `egress`, partition = shard; zero-touch records on `progress`, key message id."""
    untouched = F.col("shard").isNull()
    message_id = F.col("headers")[0]["value"]
    progress_partition = (F.crc32(message_id) % plan.progress_partitions).cast("int")
    return instructions.select(
        F.when(untouched, plan.progress).otherwise(plan.egress).alias("topic"),
        F.when(untouched, message_id).otherwise(F.col("key")).alias("key"),
        F.when(untouched, _zero_touch_event(message_id)).otherwise(F.col("value")).alias("value"),
        F.when(~untouched, F.concat("headers", _instruction_headers(plan))).alias("headers"),
        F.coalesce("shard", progress_partition).alias("partition"),
    )


def _with_shards_at(messages: DataFrame, needed: Column) -> DataFrame:
    """Adds `shards_at`: the shards of those `targets` for which `effective_from <= timestamp < effective_until`; null
    where it is not `needed`.

    This avoids a lambda, which would keep Spark from compiling the whole stage. The targets are sorted by start, with
    the moment among them, after equal starts: those before it have begun. Their ends are treated likewise. Each step is
    a column, because a single expression would be evaluated again wherever it is used.
    """
    moment, targets = F.col("timestamp"), F.col("targets")
    latest, last_shard = F.lit(FAR_FUTURE), F.lit(2**31 - 1)
    starts, ends = targets["effective_from"].alias("at"), targets["effective_until"].alias("until")
    start = F.struct(moment.alias("at"), latest.alias("until"), last_shard.alias("shard"))
    end = F.struct(moment.alias("at"), last_shard.alias("shard"))
    by_start = F.concat(F.arrays_zip(starts, ends, targets["shard"].alias("shard")), F.array(start))
    begun = F.slice("by_start", F.lit(1), _place(F.col("by_start"), start) - 1)
    remaining = F.arrays_zip(F.col("begun")["until"].alias("at"), F.col("begun")["shard"].alias("shard"))
    by_end = F.when(F.col("begun").isNotNull(), F.sort_array(F.concat(remaining, F.array(end))))
    at = F.slice("by_end", _place(F.col("by_end"), end) + 1, F.size("by_end"))["shard"]
    return (
        messages.withColumn("by_start", F.when(needed, F.sort_array(by_start)))
        .withColumn("begun", begun)
        .withColumn("by_end", by_end)
        .withColumn("shards_at", at)
        .drop("by_start", "begun", "by_end")
    )


def _slices_of(level: int, buckets: RouteBuckets) -> Column:
    """The targets of this level's key, in slices, in the bucket that was joined; null if the key is absent or there is
    no bucket."""
    key, all_keys, all_targets = (F.col(f"{column}_{level}") for column in ("key", "route_keys", "targets"))
    sub_bucket = buckets.sub_bucket_of(key, F.size(all_keys))
    return F.get(F.get(all_targets, sub_bucket), _place(F.get(all_keys, sub_bucket), key) - 1)


def _targets_at(moment: Column, slices: Column) -> Column:
    """The targets in the slice of `moment`; none if there are no `slices`."""
    return F.coalesce(F.get(slices, slice_of(moment, F.size(slices))), F.array())


def _place(elements: Column, element: Column) -> Column:
    return F.array_position(elements, element).cast("int")


def _instruction_headers(plan: RoutingPlan) -> Column:
    """`instr` as :class:`schemas.envelope.Instruction` encodes it, and `router`."""
    appended_ms = F.unix_millis("timestamp")
    limit = F.coalesce(F.col("limit").cast("string"), F.lit(""))
    text = F.concat_ws(";", F.col("partition"), F.col("offset"), F.col("number"), limit, appended_ms, F.col("scope"))
    return F.array(_header("instr", text), _header("router", F.lit(plan.router)))


def _header(name: str, text: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value"))


def _flags() -> Column:
    """The flags of :class:`schemas.envelope.Meta`."""
    meta = F.col("headers")[INGRESS_HEADERS.index("meta")]["value"].cast("string")
    return F.coalesce(F.get(F.split(meta, ";"), F.lit(1 + Meta._fields.index("flags"))), F.lit(""))


def _zero_touch_event(message_id: Column) -> Column:
    """:class:`schemas.events.ProgressEvent` of kind `untouched`: nobody wants the message, limit 0 (R7)."""
    event = F.struct(
        F.lit(1).alias("v"),
        F.lit("untouched").alias("kind"),
        message_id.cast("string").alias("id"),
        F.col("partition"),
        F.col("offset"),
        F.unix_millis("timestamp").alias("appended_ms"),
        F.lit(0).alias("limit"),
        origin_of(F.col("destination"), _flags()).alias("origin"),
        F.when(_flags().contains(RECEIPT_FLAG), F.lit(True)).alias("is_awaited"),  # without it, no field
    )
    return F.to_json(event).cast("binary")
