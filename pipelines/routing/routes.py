"""Route events folded into the routes table (R6, R7): which shard wants which route key, from when until when.

An `add` takes effect `route_lead` after its append time, a `drop` DROP_LEADS times as long after it. So an `add` that
is appended within `route_lead` after a `drop` is in effect before the route would end, and undoes the `drop` without a
gap: an owner of a shard undoes so what an earlier one has dropped too late. For each (route key, shard):

* `add` opens an interval [effective, far future). If one is open, nothing changes, so the earliest start stays. An
  `add` that takes effect within an interval whose end is known removes that end.
* `drop` closes the open interval when it takes effect, but never before its start; an empty interval disappears.
* `tick` changes nothing.
* An interval that ended longer ago than the message window is forgotten: no message can be that old.

Contract: events are folded in order of their offsets. `as_of`, on the catch-all row, is the append time of the batch's
last record: all events appended before it are in the table. Folding a batch twice, or restarting from any earlier
offset and going on to the end, produces the same table. Meanwhile `as_of` goes back to where the fold is, so routers
rely on nothing that is not there (they send later messages to every shard).
"""

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.records import Complaint, Format, complaint, event_format, judged, not_a_small_number, parsed
from schemas.events import DROP_LEADS, RouteEvent
from schemas.identity import CATCH_ALL
from schemas.tables import FAR_FUTURE

BUCKETS = 16
CATCH_ALL_BUCKET = -1
TARGET = "struct<shard:int,effective_from:timestamp,effective_until:timestamp>"


def route_format() -> Format:
    """The format of `routes`."""

    def more(event: Column) -> list[Complaint]:
        change = event["op"] != "tick"
        keyless = F.coalesce(event["route_key"], F.lit("")) == ""
        return [
            complaint(change & keyless, "route_key is missing"),
            complaint(change & event["shard"].isNull(), "shard is missing"),
            not_a_small_number(F.when(change, event["shard"]), "shard"),
        ]

    return event_format(RouteEvent, more)


def route_events(records: DataFrame) -> DataFrame:
    """Records of `routes` as `offset, appended, op, route_key, shard, bucket`; a tick belongs to the catch-all row."""
    event = F.col("record")
    key = F.when(event["op"] == "tick", CATCH_ALL).otherwise(event["route_key"])
    return (
        parsed(records, route_format())
        .select(
            "offset",
            F.col("timestamp").alias("appended"),
            event["op"].alias("op"),
            key.alias("route_key"),
            event["shard"].try_cast("int").alias("shard"),
        )
        .withColumn("bucket", bucket_of(F.col("route_key")))
    )


def bucket_of(route_key: Column) -> Column:
    """The partition of the routes table that holds a route key."""
    return F.when(route_key == CATCH_ALL, CATCH_ALL_BUCKET).otherwise((F.crc32(route_key) % BUCKETS).cast("int"))


def touched(records: DataFrame) -> DataFrame:
    """What a batch of records of `routes` affects, one row: `buckets` of its adds and drops, `rejected` (how many
    records are bad), `as_of_us` (append time of the last record, µs since the epoch; null without records)."""
    good = F.col("quarantined").isNull()
    changed = F.when(good & (F.col("record.op") != "tick"), bucket_of(F.col("record.route_key")))
    # One partition in, one out: no shuffle for the single tick that most batches consist of.
    return (
        judged(records, route_format())
        .coalesce(1)
        .agg(
            F.collect_set(changed).alias("buckets"),
            F.count_if(~good).alias("rejected"),
            F.unix_micros(F.max_by("timestamp", "offset")).alias("as_of_us"),
        )
    )


def fold(current: DataFrame, events: DataFrame, as_of_us: int, lead_s: float, window_days: int) -> DataFrame:
    """The rows of the routes table after `events`. `current` are the rows of all buckets that the events affect.

    `as_of_us` is that of :func:`touched`; `window_days` is how long ended intervals are kept. The catch-all row is
    always present.
    """
    as_of = F.timestamp_micros(F.lit(as_of_us))
    oldest = as_of - F.expr(f"INTERVAL {window_days} DAYS")
    targets = stepped(F.col("targets"), F.col("steps"))
    living = F.filter(F.array_distinct(targets), lambda target: target["effective_until"] >= oldest)
    catch_all = F.col("route_key") == CATCH_ALL
    return (
        _with_steps(current, events, lead_s)
        .withColumn("targets", F.array_sort(living))
        .where(catch_all | (F.size("targets") > 0))
        .select(
            "route_key",
            bucket_of(F.col("route_key")).alias("bucket"),
            "targets",
            F.when(catch_all, as_of).alias("as_of"),
        )
    )


def stepped(targets: Column, steps: Column) -> Column:
    """The targets of a route key after `steps`, structs `offset, op, shard, effective` in order of offsets. `targets`
    are those before; null for none."""
    return F.aggregate(steps, F.coalesce(targets, _no_targets()), _step)


def routes_history(records: DataFrame, lead_s: float) -> DataFrame:
    """Rows of `routes_history`: every add and drop, unchanged, with the time when it takes effect."""
    return (
        route_events(records)
        .where(F.col("op") != "tick")
        .select(
            "shard",
            "route_key",
            "op",
            _effective(lead_s).alias("effective"),
            "offset",
            "appended",
            F.to_date("appended").alias("date"),
        )
    )


def in_buckets(buckets: Iterable[int]) -> str:
    """The condition that selects the partitions `buckets` and that of the catch-all row, which every batch rewrites."""
    return f"bucket IN ({', '.join(str(bucket) for bucket in sorted({CATCH_ALL_BUCKET, *buckets}))})"


def _with_steps(current: DataFrame, events: DataFrame, lead_s: float) -> DataFrame:
    """One row per route key: `targets` so far (null for a new key) and `steps`, its events in order of offsets."""
    step = F.struct("offset", "op", "shard", _effective(lead_s).alias("effective"))
    change = F.struct("route_key", F.when(F.col("op") != "tick", step).alias("step"))
    # Every event also adds the catch-all row, whose as_of advances with every batch.
    catch_all = F.struct(F.lit(CATCH_ALL).alias("route_key"), F.when(F.lit(False), step).alias("step"))
    new = events.select(F.inline(F.array(change, catch_all)))
    return (
        current.select("route_key", "targets")
        .unionByName(new, allowMissingColumns=True)
        .groupBy("route_key")
        .agg(
            F.first("targets", ignorenulls=True).alias("targets"),
            F.array_sort(F.collect_list("step")).alias("steps"),
        )
    )


def _step(targets: Column, step: Column) -> Column:
    return F.when(step["op"] == "add", _added(targets, step)).otherwise(_dropped(targets, step))


def _added(targets: Column, step: Column) -> Column:
    def covers(target: Column) -> Column:
        same, at = target["shard"] == step["shard"], step["effective"]
        return same & (target["effective_from"] <= at) & (at < target["effective_until"])

    def reopened(target: Column) -> Column:
        return F.when(covers(target), _target(target["shard"], target["effective_from"])).otherwise(target)

    opened = F.concat(targets, F.array(_target(step["shard"], step["effective"])))
    return (
        F.when(F.exists(targets, covers), F.transform(targets, reopened))
        .when(F.exists(targets, lambda target: _is_open(target, step)), targets)
        .otherwise(opened)
    )


def _dropped(targets: Column, step: Column) -> Column:
    def closed(target: Column) -> Column:
        end = F.greatest(target["effective_from"], step["effective"])
        return F.when(_is_open(target, step), _target(target["shard"], target["effective_from"], end)).otherwise(target)

    return F.filter(F.transform(targets, closed), lambda target: target["effective_from"] < target["effective_until"])


def _is_open(target: Column, step: Column) -> Column:
    return (target["shard"] == step["shard"]) & (target["effective_until"] == F.lit(FAR_FUTURE))


def _target(shard: Column, start: Column, end: Column | None = None) -> Column:
    until = F.lit(FAR_FUTURE) if end is None else end
    return F.struct(shard.alias("shard"), start.alias("effective_from"), until.alias("effective_until"))


def _no_targets() -> Column:
    return F.array().cast(f"array<{TARGET}>")


def _effective(lead_s: float) -> Column:
    """When an event takes effect."""
    lead, end = (F.expr(f"INTERVAL {leads * lead_s} SECONDS") for leads in (1, DROP_LEADS))
    return F.col("appended") + F.when(F.col("op") == "drop", end).otherwise(lead)
