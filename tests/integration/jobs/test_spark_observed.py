"""A real query of the ledger, as its application's metrics, health and status file show it."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from jobs.observe.observer import Observer
from jobs.observe.progress import StatusListener, status_file
from pipelines.ledger import history
from pipelines.sinks import ensure_table
from pipelines.sources import Kafka, topic_stream
from pipelines.storage.appends import Appends
from pipelines.storage.local_database import file_of
from pipelines.storage.seen import SeenKeys
from pipelines.storage.table_files import TableFiles
from pipelines.streams import StreamId
from schemas.events import ProgressEvent, RecipientOutcome, encode
from schemas.readiness import read_json
from schemas.settings import DAY_S
from schemas.tables import OUTCOMES
from tests.conftest import LocalBroker
from tests.unit.jobs.observe.recorded import Samples, get, observer, samples
from tests.waiting import wait_for

STREAM = StreamId("observed")
OF = (STREAM.query,)
TRIGGER_S = 10.0


@pytest.fixture
def listener(spark: SparkSession, tmp_path: Path) -> Iterator[tuple[Observer, StatusListener]]:
    """An observer that a listener of the session tells."""
    with observer("tests") as this:
        told = StatusListener(tmp_path, "tests", time.time, this.watchers)
        spark.streams.addListener(told)
        this.watch(spark, {STREAM.query: TRIGGER_S})
        yield this, told
        spark.streams.removeListener(told)


def produce(broker: LocalBroker, topic: str, count: int) -> None:
    """Ends of `count` instructions, each twice, as two routers cause it."""
    producer, now_ms = Producer({"bootstrap.servers": broker.bootstrap}), int(time.time() * 1000)
    for number in range(count):
        delivery = RecipientOutcome(client="c", outcome="delivered", qos=1, at_us=now_ms * 1000)
        event = ProgressEvent(
            kind="relinquish",
            id=f"m{number}",
            partition=0,
            offset=number,
            appended_ms=now_ms,
            shard=0,
            number=0,
            limit=1,
            deliveries=[delivery],
        )
        for _ in range(2):
            producer.produce(topic, key=event.id, value=encode(event), partition=0)
    assert producer.flush(30) == 0


def start(rows: DataFrame, directory: Path, write: Any) -> StreamingQuery:
    writer = rows.writeStream.foreachBatch(write).queryName(STREAM.name)
    return writer.option("checkpointLocation", str(directory / "checkpoint")).start()


def appends_once(directory: Path) -> Appends:
    ensure_table(str(directory), OUTCOMES)
    files = TableFiles(f"{directory}/{OUTCOMES.name}", OUTCOMES)
    keys = SeenKeys(file_of(directory / "states", STREAM.query), OUTCOMES.key, DAY_S, files.since)
    return Appends(files, lambda bad: None, keys)


def test_what_is_scraped_is_what_spark_has_measured(
    broker: LocalBroker,
    spark: SparkSession,
    unique_prefix: str,
    tmp_path: Path,
    listener: tuple[Observer, StatusListener],
) -> None:
    """Batches, steps, rows, lag, copies and state of a query with two batches; then one that fails, and its error."""
    this, told = listener
    topic = broker.topics(unique_prefix).progress
    records = topic_stream(spark, Kafka(broker.bootstrap), [topic], 30)
    produce(broker, topic, 30)
    query = start(history.outcomes(records), tmp_path, appends_once(tmp_path))
    try:
        query.processAllAvailable()
        progress = [one for one in query.recentProgress if one.numInputRows]
        wait_for(lambda: found(this, "batches_total") == len(query.recentProgress), "every batch has been told of")
        this.look(time.monotonic())
        scraped, status = samples(this), read_json(status_file(tmp_path, STREAM.query)) or {}
        assert get(this, "/readyz")[0] == 200
    finally:
        query.stop()
    every = query.recentProgress

    def total(measure: str) -> float:
        return scraped[f"waystation_query_{measure}", OF]

    assert [one.numInputRows for one in progress] == [30, 30]
    assert total("rows_total") == 60
    assert total("copies_total") == 30
    assert total("starts_total") == 1
    assert total("failures_total") == 0
    assert total("batch_seconds_sum") == pytest.approx(sum(one.batchDuration for one in every) / 1000)
    for step in every[-1].durationMs:
        spent_s = scraped["waystation_query_step_seconds_total", (STREAM.query, step)]
        assert spent_s == pytest.approx(sum(one.durationMs.get(step, 0) for one in every) / 1000)
    assert scraped["waystation_query_lag_records", (STREAM.query, topic)] == 0
    assert total("state_disk_bytes") == status["state"]["disk_bytes"] > 0
    assert total("state_rows") == total("state_rows_updated_total") == 30
    assert total("state_rows_removed_total") == 0
    assert 0 < total("freshness_seconds") == status["freshness_s"]
    assert scraped["waystation_jvm_heap_max_bytes", ()] > scraped["waystation_jvm_heap_used_bytes", ()] > 0
    assert scraped["waystation_jvm_cpu_seconds_total", ()] > 1

    def fail(_batch: DataFrame, _number: int) -> None:
        raise OSError("no space left for this test")

    produce(broker, topic, 1)
    failing = start(history.outcomes(records), tmp_path, fail)
    wait_for(lambda: not failing.isActive, "the query has failed")
    told.failed(STREAM.query, str(failing.exception()))
    code, report = get(this, "/readyz")
    assert code == 503
    assert "no space left for this test" in report
    after: Samples = samples(this)
    assert after["waystation_query_up", OF] == 0
    assert after["waystation_query_failures_total", OF] == 1
    assert (read_json(status_file(tmp_path, STREAM.query)) or {})["failures"] == 1


def found(this: Observer, measure: str) -> float:
    return samples(this).get((f"waystation_query_{measure}", OF), 0)
