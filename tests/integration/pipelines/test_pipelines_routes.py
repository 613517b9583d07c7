"""The fold of route events against a plain reference, and its commits (R6, R7)."""

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.routing import routes
from pipelines.sinks import RoutesTable, ensure_tables
from pipelines.sources import read_table
from pipelines.spark_schemas import table_schema
from schemas.events import RouteEvent, encode
from schemas.identity import CATCH_ALL
from schemas.tables import FAR_FUTURE, ROUTES

LEAD_S = 25
FOREVER = 10**9
LAYOUT = "offset long, appended long, op string, route_key string, shard int, bucket int"
NOT_FEW = settings(
    max_examples=3,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


class Change(NamedTuple):
    """An event of a history: `wait` seconds after the one before it; shard None is a tick."""

    wait: int
    op: str
    shard: int | None


Intervals = dict[tuple[str, int], list[tuple[int, int]]]
Event = tuple[int, int, str, str, int | None]

changes = st.builds(Change, st.integers(0, 3), st.sampled_from(["add", "add", "drop"]), st.none() | st.integers(0, 2))
histories = st.lists(st.lists(changes, max_size=12), min_size=20, max_size=40)


def reference(events: list[Event]) -> Intervals:
    """What the fold must come to, in ten lines."""
    intervals: Intervals = defaultdict(list)
    for _, appended, op, key, shard in events:
        if shard is None:
            continue
        known = intervals[key, shard]
        start, end = known[-1] if known else (0, 0)
        if op == "add" and appended + LEAD_S < end:
            known[-1] = start, FOREVER
        elif op == "add":
            known.append((appended + LEAD_S, FOREVER))
        elif end == FOREVER:
            known[-1] = start, appended + 2 * LEAD_S
    return {key: known for key, known in intervals.items() if known}


def folded(
    spark: SparkSession, current: DataFrame, batch: list[Event], window_days: int = 7, lead_s: int = LEAD_S
) -> DataFrame:
    """The table after `batch`, cut off from how it came about."""
    rows = [(offset, at, op, key, shard, None) for offset, at, op, key, shard in batch]
    events = (
        spark.createDataFrame(rows, LAYOUT)
        .withColumn("appended", F.timestamp_seconds("appended"))
        .withColumn("bucket", routes.bucket_of(F.col("route_key")))
    )
    as_of_us = max(batch)[1] * 1_000_000
    return routes.fold(current, events, as_of_us, lead_s, window_days).localCheckpoint()


def seconds(moment: datetime) -> int:
    return FOREVER if moment.year == 9999 else int(moment.replace(tzinfo=UTC).timestamp())


def intervals_of(table: DataFrame) -> Intervals:
    flat = table.select("route_key", F.inline("targets")).select(
        "route_key", "shard", F.unix_seconds("effective_from"), F.unix_seconds("effective_until")
    )
    found: Intervals = defaultdict(list)
    far = int(FAR_FUTURE.timestamp())
    for key, shard, start, end in flat.collect():
        found[key, shard].append((start, FOREVER if end == far else end))
    return {key: sorted(known) for key, known in found.items()}


def wanted(intervals: Intervals, before: int) -> set[tuple[str, int, int]]:
    """(key, shard, second) for each second before `before` in which a shard wants a key."""
    return {
        (key, shard, second)
        for (key, shard), known in intervals.items()
        for start, end in known
        for second in range(start, min(end, before))
    }


def as_batches(histories: list[list[Change]], cuts: int) -> list[list[Event]]:
    """All histories side by side, one route key each, by time, in `cuts` batches."""
    events = []
    for number, history in enumerate(histories):
        now = 0
        for change in history:
            now += change.wait
            key = CATCH_ALL if change.shard is None or number == 0 else f"k/{number}"
            events.append((now, len(events), "tick" if change.shard is None else change.op, key, change.shard))
    ordered = [
        (offset, at, op, key, shard)
        for offset, (at, _, op, key, shard) in enumerate(sorted(events, key=lambda e: e[:2]))
    ]
    size = max(1, -(-len(ordered) // cuts))
    return [ordered[start : start + size] for start in range(0, len(ordered), size)] or [
        [(0, 0, "tick", CATCH_ALL, None)]
    ]


@NOT_FEW
@given(histories=histories, cuts=st.integers(1, 4), back=st.integers(0, 3))
def test_fold_equals_reference_in_any_batches_and_after_replays(
    spark: SparkSession, histories: list[list[Change]], cuts: int, back: int
) -> None:
    """R6, R7: batches in any cut, then once more from an earlier one to the end (a new generation), give the reference.
    On the way the table is right for every time before `as_of + lead`, which is all that routers trust."""
    batches = as_batches(histories, cuts)
    truth = reference([event for batch in batches for event in batch])
    table = spark.createDataFrame([], table_schema(ROUTES))
    for batch in batches + batches[min(back, len(batches) - 1) :]:
        table = folded(spark, table, batch)
        as_of = max(batch)[1]
        assert wanted(intervals_of(table), as_of + LEAD_S) == wanted(truth, as_of + LEAD_S)
        assert seconds(table.where(F.col("as_of").isNotNull()).collect()[0]["as_of"]) == as_of
    assert intervals_of(table) == truth
    assert table.where(F.col("route_key") == CATCH_ALL).count() == 1


def test_drop_before_the_start_and_forgetting(spark: SparkSession) -> None:
    """R7: an interval of no length disappears, if the lead was shortened; an ended one is kept for the message window,
    and then forgotten."""
    day = 86_400
    table = folded(spark, spark.createDataFrame([], table_schema(ROUTES)), [
        (0, 10, "add", "gone", 1), (1, 10, "add", "kept", 1), (2, 11, "drop", "kept", 1),
    ])  # fmt: skip
    assert intervals_of(table) == {("gone", 1): [(35, FOREVER)], ("kept", 1): [(35, 61)]}
    table = folded(spark, table, [(3, 11, "drop", "gone", 1)], lead_s=5)
    assert intervals_of(table) == {("kept", 1): [(35, 61)]}
    table = folded(spark, table, [(4, 61 + 7 * day, "add", "b", 2)])
    assert intervals_of(table).keys() == {("kept", 1), ("b", 2)}
    table = folded(spark, table, [(5, 62 + 7 * day, "tick", CATCH_ALL, None)])
    assert intervals_of(table).keys() == {("b", 2)}
    assert {row.route_key for row in table.collect()} == {CATCH_ALL, "b"}


def records(spark: SparkSession, *events: RouteEvent | bytes, first: int) -> DataFrame:
    """Kafka source columns; event n is appended at second n."""
    rows = [
        (None, event if isinstance(event, bytes) else encode(event), "routes", 0, first + n, first + n)
        for n, event in enumerate(events)
    ]
    layout = "key binary, value binary, topic string, partition int, offset long, timestamp long"
    return spark.createDataFrame(rows, layout).withColumn("timestamp", F.timestamp_seconds("timestamp"))


def test_a_batch_is_one_commit_and_repeating_it_is_none(spark: SparkSession, tmp_path: Path) -> None:
    """R6: killed between the commit and the checkpoint, the batch comes again: no second commit, the same table."""
    tables = str(tmp_path)
    ensure_tables(tables)
    ensure_tables(tables)
    routes_table = RoutesTable(tables, LEAD_S, 7)

    def write(batch: DataFrame, batch_id: int) -> None:
        buckets, _, as_of_us = routes.touched(batch).collect()[0]
        routes_table.write(batch, buckets, as_of_us, "a-query", batch_id)

    def commits() -> int:
        return len(list((tmp_path / "routes" / "_delta_log").glob("*.json")))

    (first,) = read_table(spark, tables, ROUTES).collect()
    assert (first.route_key, first.bucket, first.targets, first.as_of) == (CATCH_ALL, -1, [], None)
    before = commits()
    adds = records(spark, RouteEvent(op="add", route_key="a/b", shard=1), b"{}", RouteEvent(op="tick"), first=0)
    ticks = records(spark, RouteEvent(op="tick"), first=3)
    drops = records(spark, RouteEvent(op="drop", route_key="a/b", shard=1), first=4)
    for batch_id, batch in enumerate((adds, ticks, drops)):
        for _ in range(2):
            write(batch, batch_id)
            assert commits() == before + batch_id + 1
    write(adds, 0)
    assert commits() == before + 3
    table = read_table(spark, tables, ROUTES)
    assert intervals_of(table) == {("a/b", 1): [(LEAD_S, 4 + 2 * LEAD_S)]}
    (catch_all,) = table.where("bucket = -1").collect()
    assert catch_all.as_of.replace(tzinfo=UTC) == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=4)
