"""Maintenance beside the queries of the ledger, which write the same tables: nothing lost, nothing twice, no fault."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.maintain.run import DONE, Request, Result, maintain
from jobs.query.ledger_reader import LedgerReader
from pipelines import sinks
from pipelines.presence import client_presence
from pipelines.routing import routes
from pipelines.routing.routes import routes_history
from pipelines.sinks import RoutesTable, append_to_table, ensure_tables
from pipelines.sources import read_table
from pipelines.storage.appends import Appends
from pipelines.storage.current_table import CurrentTable, current_rows
from pipelines.storage.table_files import QUERY_ID, TableFiles
from pipelines.streams import StreamId
from schemas.events import RouteEvent, encode
from schemas.settings import Settings, load_settings
from schemas.tables import PRESENCE, QUARANTINE, ROUTES, ROUTES_HISTORY
from tests import draw
from tests.integration.pipelines.streamed import kafka_rows
from tests.integration.pipelines.told_states import client_state

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
DAY = timedelta(days=1)
LEAD_S = 25.0
WINDOW_DAYS = 7


@pytest.fixture
def settings(spark: SparkSession, tmp_path: Path) -> Settings:
    spark.sparkContext.setLocalProperty(QUERY_ID, "a-query")
    loaded = load_settings([Path("conf/base.toml")], {})
    kept = msgspec.structs.replace(loaded.maintain, quarantine_days=WINDOW_DAYS)
    ensure_tables(str(tmp_path / "tables"))
    return msgspec.structs.replace(loaded, data=str(tmp_path), maintain=kept)


def run(settings: Settings, *names: str, with_today: bool = False) -> list[Result]:
    request = Request(names, with_today=with_today)
    results = maintain(settings, request, Path(settings.data), NOW, lambda: False, lambda _: None)
    assert [one for one in results if one.state != DONE] == []
    return results


def quarantined(spark: SparkSession, offsets: range, day: date) -> DataFrame:
    rows = spark.range(offsets.start, offsets.stop, numPartitions=1)
    at = F.lit(datetime(day.year, day.month, day.day, 12, tzinfo=UTC))
    return rows.select(
        F.lit("t").alias("topic"),
        F.lit(0).alias("partition"),
        F.col("id").alias("offset"),
        F.lit("why").alias("reason"),
        F.lit(b"x").alias("record"),
        at.alias("at"),
        at.alias("appended"),
        F.lit(day).alias("date"),
    )


def interrupting(monkeypatch: pytest.MonkeyPatch, place: Any, name: str, between: Callable[[], Any]) -> None:
    """Has `between` happen once, in the midst of what `place` does: after it has read and before it commits."""
    original, due = getattr(place, name), [True]

    def interrupted(*arguments: Any, **options: Any) -> Any:
        done = original(*arguments, **options)
        if due and due.pop():
            between()
        return done

    monkeypatch.setattr(place, name, interrupted)


def test_appends_while_dates_are_removed_and_compacted(spark: SparkSession, settings: Settings) -> None:
    """A writer's batches and maintenance again and again: every row there once, by every reader."""
    old, batches, each = NOW.date() - 30 * DAY, 12, 5
    uri = f"{settings.tables}/{QUARANTINE.name}"
    failures: list[BaseException] = []

    def write() -> None:
        try:
            spark.sparkContext.setLocalProperty(QUERY_ID, "a-query")
            append = Appends(TableFiles(uri, QUARANTINE))
            for number in range(batches):
                first = number * each
                append(quarantined(spark, range(first, first + each), NOW.date() if number % 3 else old), number)
        except BaseException as error:
            failures.append(error)

    writer = Thread(target=write)
    writer.start()
    tasks = set()
    while writer.is_alive():
        tasks |= {one.task for one in run(settings, QUARANTINE.name, with_today=True)}
    writer.join()
    tasks |= {one.task for one in run(settings, QUARANTINE.name, with_today=True)}
    assert failures == []
    assert {"retention", "compaction"} <= tasks
    wanted = sorted(n * each + i for n in range(batches) if n % 3 for i in range(each))
    by_spark = [row.offset for row in read_table(spark, settings.tables, QUARANTINE).select("offset").collect()]
    assert sorted(by_spark) == wanted
    by_duckdb = LedgerReader(settings.tables, {}).query("SELECT \"offset\" FROM quarantine WHERE reason = 'why'").rows
    assert sorted(row[0] for row in by_duckdb) == wanted
    again = Appends(TableFiles(uri, QUARANTINE))
    again(quarantined(spark, range(1000, 1001), NOW.date()), batches - 1)
    assert DeltaTable(uri).to_pyarrow_dataset().count_rows() == len(wanted), "a batch that the table has"


def test_a_batch_is_appended_when_a_date_was_removed_meanwhile(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """deltalake refuses its commit the first time."""
    append = Appends(TableFiles(f"{settings.tables}/{QUARANTINE.name}", QUARANTINE))
    append(quarantined(spark, range(3), NOW.date() - 30 * DAY), 0)
    removed: list[str] = []
    interrupting(
        monkeypatch, TableFiles, "write", lambda: removed.extend(one.task for one in run(settings, QUARANTINE.name))
    )
    append(quarantined(spark, range(3, 5), NOW.date()), 1)
    assert removed == ["retention"]
    assert sorted(row.offset for row in read_table(spark, settings.tables, QUARANTINE).collect()) == [3, 4]


def test_a_stream_from_the_table_sees_every_row_once(spark: SparkSession, settings: Settings, tmp_path: Path) -> None:
    """What analysts are told: compaction makes no difference to it, removed dates none if it ignores them."""
    append = Appends(TableFiles(f"{settings.tables}/{QUARANTINE.name}", QUARANTINE))
    seen: list[int] = []

    def read_on() -> None:
        new = spark.readStream.format("delta").option("ignoreDeletes", True)
        query = (
            new.load(f"{settings.tables}/{QUARANTINE.name}")
            .writeStream.foreachBatch(lambda rows, _: seen.extend(row.offset for row in rows.collect()))
            .option("checkpointLocation", str(tmp_path / "reader"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    append(quarantined(spark, range(2), NOW.date() - 30 * DAY), 0)
    for number in range(1, 7):
        append(quarantined(spark, range(2 * number, 2 * number + 2), NOW.date() - DAY), number)
    read_on()
    assert {one.task for one in run(settings, QUARANTINE.name)} == {"retention", "compaction"}
    append(quarantined(spark, range(14, 16), NOW.date()), 7)
    read_on()
    assert sorted(seen) == list(range(16))


def told(offset: int, client: str, online: bool, at: datetime) -> tuple[Any, ...]:
    ms = int(at.timestamp() * 1000)
    state = client_state(client, online, ms * 1000)
    return (client.encode(), encode(state), "presence-state", 0, offset, ms, None)


def test_presence_is_brought_up_to_date_while_rows_leave_it(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R12: one of them has gone long ago, and is back in the very batch in which maintenance takes it away."""
    files = TableFiles(f"{settings.tables}/{PRESENCE.name}", PRESENCE)
    write = CurrentTable(PRESENCE, files, lambda batch: None)

    def table(records: DataFrame, number: int) -> None:
        write(current_rows(records, client_presence.state_format(), client_presence.columns()), number)

    long_ago = NOW - 30 * DAY
    clients = [f"c{n}" for n in range(20)]
    table(kafka_rows(spark, [told(n, name, n >= 10, long_ago) for n, name in enumerate(clients)]), 0)
    removed: list[int] = []
    interrupting(
        monkeypatch, TableFiles, "rows_in", lambda: removed.extend(one.amount.rows for one in run(settings, "presence"))
    )
    table(kafka_rows(spark, [told(100, "c0", True, NOW), told(101, "new", True, NOW)]), 1)
    assert removed == [10]
    rows = {row.client: row.online for row in read_table(spark, settings.tables, PRESENCE).collect()}
    assert rows == dict.fromkeys(["c0", *clients[10:], "new"], True)
    by_duckdb = LedgerReader(settings.tables, {}).query(
        "SELECT client FROM presence WHERE client IN ('c0', 'c1', 'c15')"
    )
    assert sorted(row[0] for row in by_duckdb.rows) == ["c0", "c15"]
    assert run(settings, "presence") == []


def route_records(spark: SparkSession, events: list[tuple[int, str, str, int, datetime]]) -> DataFrame:
    return kafka_rows(
        spark,
        [
            (event.kafka_key.encode(), encode(event), "routes", 0, offset, int(at.timestamp() * 1000), None)
            for offset, op, key, shard, at in events
            for event in [RouteEvent(op=op, route_key=key, shard=shard)]
        ],
    )


def test_routes_are_folded_while_ended_ones_leave(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R6: ended routes are in the history, leave the table, and none that holds is lost or held up."""
    keys = [f"k{n}" for n in range(40)]
    began, ended = NOW - 30 * DAY, NOW - 29 * DAY
    adds = [(n, "add", key, 1, began) for n, key in enumerate(keys)]
    drops = [(100 + n, "drop", key, 1, ended) for n, key in enumerate(keys[:30])]
    fold, stream = RoutesTable(settings.tables, LEAD_S, WINDOW_DAYS), StreamId("routes")

    def folded(events: list[tuple[int, str, str, int, datetime]], number: int) -> None:
        records = route_records(spark, events)
        buckets, _, as_of_us = routes.touched(records).collect()[0]
        fold.write(records, buckets, as_of_us, stream.name, number)

    folded([*adds, *drops], 0)
    append = Appends(TableFiles(f"{settings.tables}/{ROUTES_HISTORY.name}", ROUTES_HISTORY))
    recorded = [*adds, *drops[:-1]]  # the last end is still on its way to the history
    append(routes_history(route_records(spark, recorded), LEAD_S).coalesce(1), 0)
    # Nothing is old until the fold is past the window; a tick moves it on and touches no bucket.
    assert run(settings, ROUTES.name) == []
    folded([(200, "tick", "", 0, NOW)], 1)
    removed: list[int] = []
    interrupting(
        monkeypatch, sinks.routes, "fold", lambda: removed.extend(one.amount.rows for one in run(settings, ROUTES.name))
    )
    folded([(201, "add", "k0", 2, NOW), (202, "add", "new", 3, NOW)], 2)
    assert removed == [len(drops) - 1]
    rows = {row.route_key: row.targets for row in read_table(spark, settings.tables, ROUTES).collect()}
    holding = {"#", "k0", *keys[30:], "new"}
    assert holding <= set(rows) <= holding | {keys[29]}
    assert [target.shard for target in rows["k0"]] == [2]
    assert DeltaTable(f"{settings.tables}/routes").transaction_version(stream.name) == 2
    assert run(settings, ROUTES.name) == []


@draw.long_test
def test_checkpoints_of_queries_stay_small(spark: SparkSession, settings: Settings, tmp_path: Path) -> None:
    """Of offsets and commits as many batches as are kept, however many there were."""
    kept = int(spark.conf.get("spark.sql.streaming.minBatchesToRetain") or 0)
    source = tmp_path / "source"
    for number in range(2 * kept + 5):
        quarantined(spark, range(number, number + 1), NOW.date()).write.mode("append").parquet(str(source))
    schema = quarantined(spark, range(1), NOW.date()).schema
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source))
    query = append_to_table(rows, StreamId("quarantine"), settings.tables, QUARANTINE, 0)
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    checkpoint = Path(StreamId("quarantine").checkpoint(settings.tables, QUARANTINE.name))
    for name in ("offsets", "commits"):
        numbers = [path for path in (checkpoint / name).iterdir() if path.name.isdecimal()]
        assert kept <= len(numbers) <= kept + 2
    assert json.loads((checkpoint / "metadata").read_text())["id"] == query.id
