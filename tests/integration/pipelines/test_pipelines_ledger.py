"""The ledger's rows: exact, copies removed, once across a crash."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable, Schema, write_deltalake
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

import pipelines.origin
from jobs.query.ledger_reader import installed_views
from pipelines.ledger import history
from pipelines.sinks import append_to_table, ensure_tables
from pipelines.sources import Kafka, topic_stream
from pipelines.spark_schemas import table_schema
from pipelines.streams import StreamId
from schemas.envelope import EVERYONE, FEEDS_HEADER, HOME_HEADERS, FeedMark, Headers, Meta
from schemas.events import (
    CompletionEvent,
    PresenceEvent,
    ProgressEvent,
    QuarantineEvent,
    RecipientOutcome,
    encode,
)
from schemas.origin import origin_of
from schemas.tables import COMPLETIONS, INSTRUCTIONS, MESSAGES, OUTCOMES, QUARANTINE, TABLES
from schemas.topics import Topics
from tests.conftest import LocalBroker
from tests.integration.pipelines.ledger_records import AT, AT_MS, DAY, ID, egress, event, headers, raw, relinquish
from tests.integration.pipelines.streamed import appended_once, kafka_rows


def test_messages_are_exact(spark: SparkSession) -> None:
    """Q1: a row of `messages` says what the envelope and the broker say, and the payload is what was sent."""
    bare = Meta(qos=0, flags="", expires=None, accepted=AT_MS * 1000, seq=None)
    mark = FeedMark(1, 2**63 - 1, 0, 7, 8, "adapter é.1")
    rows = history.messages(
        kafka_rows(
            spark,
            [
                ("flights/é".encode(), b"\x00\xff", "ingress", 1, 7, AT_MS, headers()),
                (b"@client", None, "ingress", 0, 8, AT_MS, headers(bare)),
                (b"feeds/f/s@0", b"", "ingress", 0, 9, AT_MS, headers(bare._replace(feed=mark))),
                (b"$cluster/fences", b"{}", "ingress", 0, 10, AT_MS, headers(bare._replace(epoch=7))),
            ],
        )
    )
    assert rows.where("quarantined IS NOT NULL").count() == 0
    rows = rows.drop("quarantined")
    assert rows.schema.simpleString() == table_schema(MESSAGES).simpleString()
    first, second, copy, fence = rows.collect()
    assert (fence.destination, fence.origin, fence.sequence) == ("$cluster/fences", "platform", None)
    assert (copy.destination, copy.qos, copy.offset) == ("feeds/f/s@0", 0, 9)
    assert first == Row(
        ID, "sender", "flights/é", 2, True, "ar", "client", AT + timedelta(seconds=1),
        AT.replace(microsecond=123007), 5, bytearray(b"\x00\xff"), 2, bytearray(b"\x01\xff"), 1, 7, AT, DAY,
    )  # fmt: skip
    assert (second.destination, second.retained, second.flags) == ("@client", False, "")
    assert (second.expires, second.sequence) == (None, None)
    assert (second.payload, second.payload_bytes) == (None, 0)


def test_spark_and_gateways_agree_on_who_has_sent_a_message(spark: SparkSession) -> None:
    """By topic and flags, as the gateways say it on `progress`."""
    cases = [
        (topic, "".join(flags))
        for topic in (
            *("a/b", "$presence/c", "$presence", "$presences/c", "@c", "@$presence/c"),
            *("$cluster/fences", "$cluster", "$clusters/fences"),
        )
        for flags in ("", "r", "w", "h", "hr", "awr", "p", "cnh")
    ]
    rows = spark.createDataFrame(cases, "topic string, flags string").select(
        "topic", "flags", pipelines.origin.origin_of(F.col("topic"), F.col("flags")).alias("origin")
    )
    assert [tuple(row) for row in rows.collect()] == [(*case, origin_of(*case)) for case in cases]


def test_hedged_copies_of_instructions_are_removed(spark: SparkSession, tmp_path: Path) -> None:
    """R3: of the copies of an instruction the first stays, also when the other router comes back days later and
    replays; another shard's, and the other scope's, are instructions of their own."""

    def row(offset: int, headers: Headers, partition: int = 3, ms: int = AT_MS) -> tuple[Any, ...]:
        return (b"a/b", b"x", "egress", partition, offset, ms, headers)

    late = AT_MS + 6 * 86_400_000
    found = appended_once(
        spark,
        tmp_path,
        [
            [row(0, egress("backup")), row(1, egress("active")), row(0, egress("active", 1, 2), partition=0)],
            [row(2, egress("active")), row(3, egress("backup", 3, 4, EVERYONE))],
            [
                *(row(9, [(first, b"1")]) for first in HOME_HEADERS),
                row(9, [(FEEDS_HEADER, b"1"), *egress("active")]),
                row(4, egress("active"), ms=late),
                row(5, egress("backup", 3, 4, EVERYONE), ms=late),
            ],
        ],
        history.instructions,
        INSTRUCTIONS,
    )
    kept = [sorted((r.shard, r.number, r.limit, r.scope, r.router, r.egress_offset) for r in batch) for batch in found]
    assert kept == [
        [(0, 1, 2, "routed", "active", 0), (3, 0, None, "routed", "backup", 0)],
        [(3, 3, 4, "everyone", "backup", 3)],
        [],
    ]
    only = found[0][0]
    assert (only.message_id, only.destination, only.partition, only.offset) == (ID, "a/b", 1, 7)
    assert (only.message_appended, only.appended, only.date) == (AT, AT, DAY)


def test_outcomes_one_row_a_delivery(spark: SparkSession, tmp_path: Path) -> None:
    """R4, R7: deliveries as reported; nobody and untouched named; copies and what a home repeats add nothing."""
    one = RecipientOutcome(client="c1", outcome="delivered", qos=1, at_us=AT_MS * 1000 + 5)
    two = RecipientOutcome(client="c2", outcome="dropped", qos=2, at_us=AT_MS * 1000 + 6)
    untouched = ProgressEvent(kind="untouched", id="nobody's", partition=0, offset=0, appended_ms=AT_MS, limit=0)
    reported = relinquish(0, one, kind="outcome")
    events = [
        reported, relinquish(0, two), relinquish(0, one, two), relinquish(1, limit=2), relinquish(1, limit=2),
        relinquish(1, limit=2, scope=EVERYONE), relinquish(2, replayed=True), relinquish(3, kind="outcome"),
        untouched, untouched,
    ]  # fmt: skip
    rows = [event(e, "progress", n) for n, e in enumerate(events)]
    batches = appended_once(spark, tmp_path, [rows[:5], rows[5:]], history.outcomes, OUTCOMES)
    found = [row for batch in batches for row in batch]
    assert sorted(
        (r.message_id == ID, r.shard, r.number, r.client, r.outcome, r.qos, r.at) for r in found if r.client
    ) == [
        (True, 3, 0, "c1", "delivered", 1, AT.replace(microsecond=123005)),
        (True, 3, 0, "c2", "dropped", 2, AT.replace(microsecond=123006)),
    ]
    rest = sorted((r.outcome, r.number or -1, r.shard or -1, r.at) for r in found if not r.client)
    assert rest == [("nobody", 1, 3, AT), ("nobody", 1, 3, AT), ("untouched", -1, -1, AT)]


def test_outcomes_of_retained_messages_of_any_age(spark: SparkSession, tmp_path: Path) -> None:
    """A retained message may be far older than the window; what a home reports twice still adds one row."""

    def kept(client: str) -> ProgressEvent:
        delivery = RecipientOutcome(client=client, outcome="delivered", qos=1, at_us=AT_MS * 1000)
        return relinquish(None, delivery, kind="outcome", appended_ms=AT_MS - 30 * 86_400_000)

    fresh = relinquish(0, RecipientOutcome(client="c1", outcome="delivered", qos=1, at_us=AT_MS * 1000))
    batches = [[event(e, "progress", n) for n, e in enumerate(events)] for events in (
        [fresh], [kept("c2"), kept("c3")], [kept("c2"), kept("c4")],
    )]  # fmt: skip
    found = appended_once(spark, tmp_path, batches, history.outcomes, OUTCOMES)
    assert [sorted(row.client for row in batch) for batch in found] == [["c1"], ["c2", "c3"], ["c4"]]
    assert found[1][0].message_appended == AT - timedelta(days=30)


def test_completions_presence_and_quarantine(spark: SparkSession, tmp_path: Path) -> None:
    """R4, R12: a message completes once in the ledger; presence is kept as it came; quarantine takes a record's first
    complaint, and its own bad records too."""
    done = CompletionEvent(id=ID, touches=2, appended_ms=AT_MS, completed_ms=AT_MS + 9)
    again = CompletionEvent(id=ID, touches=2, appended_ms=AT_MS, completed_ms=AT_MS + 99)
    (first,), second = appended_once(
        spark,
        tmp_path / "c",
        [[event(done, "completion")], [event(again, "completion", 1)]],
        history.completions,
        COMPLETIONS,
    )
    assert not second
    assert first == Row(ID, 2, AT, AT.replace(microsecond=132000), AT, DAY)

    lost = PresenceEvent(client="c", event="lost", gateway="g", epoch=3, seq=2, at_us=AT_MS * 1000, reason="keep alive")
    (row,) = history.presence_history(kafka_rows(spark, [event(lost, "presence")])).collect()
    assert row == Row("c", "lost", "g", 3, 2, AT, None, None, "keep alive", None, AT, DAY, None)
    came = PresenceEvent(client="c", event="connected", gateway="g", epoch=4, seq=0, at_us=AT_MS * 1000, user="alice")
    earlier = encode(lost).replace(b',"user":""', b"")  # as it was before there were users
    users = history.presence_history(kafka_rows(spark, [event(came, "presence"), raw("presence", earlier)]))
    assert [row.user for row in users.collect()] == ["alice", None]

    bad = QuarantineEvent(topic="t", partition=1, offset=2, reason="why", record="AP8=", at_us=AT_MS * 1000)
    worse = (None, b"\xff", "quarantine", 0, 9, AT_MS, None)
    (rows,) = appended_once(
        spark,
        tmp_path / "q",
        [[event(bad, "quarantine"), event(bad, "quarantine", 1), worse]],
        history.quarantine,
        QUARANTINE,
    )
    assert sorted((r.topic, r.partition, r.offset, bytes(r.record), r.at) for r in rows) == [
        ("quarantine", 0, 9, b"\xff", AT),
        ("t", 1, 2, b"\x00\xff", AT),
    ]


@contextmanager
def appending(spark: SparkSession, broker: LocalBroker, topics: Topics, tables: str) -> Iterator[StreamingQuery]:
    records = topic_stream(spark, Kafka(broker.bootstrap), [topics.ingress], 1000, headers=True)
    query = append_to_table(history.messages(records), StreamId("messages"), tables, MESSAGES, 0.1)
    try:
        yield query
    finally:
        query.stop()


def test_a_batch_repeated_after_a_crash_adds_no_row(
    spark: SparkSession, broker: LocalBroker, unique_prefix: str, tmp_path: Path
) -> None:
    """Killed after the commit to Delta and before that of the checkpoint: the batch comes again, and adds nothing."""
    topics, tables = broker.topics(unique_prefix), str(tmp_path)
    ensure_tables(tables)
    producer = Producer({"bootstrap.servers": broker.bootstrap})

    def produce(first: int, end: int) -> None:
        for n in range(first, end):
            producer.produce(topics.ingress, key=b"a/b", value=str(n).encode(), headers=headers(), partition=n % 2)
        producer.flush(30)

    def payloads() -> list[int]:
        rows = duckdb.from_arrow(DeltaTable(f"{tables}/messages").to_pyarrow_table(columns=["payload"])).fetchall()
        return sorted(int(payload) for (payload,) in rows)

    produce(0, 100)
    with appending(spark, broker, topics, tables) as query:
        query.processAllAvailable()
    assert payloads() == list(range(100))
    commits = tmp_path / "messages" / "_checkpoints" / "messages-1" / "commits"
    for left in commits.glob("*0*"):
        left.unlink()
    produce(100, 150)
    with appending(spark, broker, topics, tables) as query:
        query.processAllAvailable()
    assert payloads() == list(range(150))


@pytest.mark.parametrize("view", ["message_journey", "delivery_latency"])
def test_views_are_understood_by_spark_and_duckdb(spark: SparkSession, view: str) -> None:
    """Both give the same rows: a message accepted, appended, routed to two shards, delivered and completed."""
    # Time n of a row: {n}; delivered a day, two hours and a bit after it was accepted.
    moments = ["1 12:00:00.5", "1 12:00:00.501", "1 12:00:00.503", "2 14:00:03.75", "1 12:00:01", "2 15:00:00"]
    times = [f"TIMESTAMP '2024-05-0{moment}'" for moment in moments]
    values = {
        "messages": f"('{ID}', 's', 'a/b', 1, false, '', 'client', null, {{0}}, null, null, 3, null, 0, 5, "
        "{1}, {d})",
        "instructions": f"('{ID}', 'a/b', 2, 0, null, 'routed', 'active', 0, 5, {{1}}, 9, {{2}}, {{d}}), "
        f"('{ID}', 'a/b', 3, 1, 2, 'everyone', 'backup', 0, 5, {{1}}, 9, {{2}}, {{d}})",
        "outcomes": f"('{ID}', 2, 0, 'routed', 'instructed', null, 'client', 'c', 'delivered', 1, {{3}}, {{1}}, "
        "{3}, {d}), "
        f"('{ID}', 3, 1, 'routed', 'instructed', null, 'client', null, 'nobody', null, {{4}}, {{1}}, {{4}}, {{d}}), "
        f"('{ID}', null, null, 'routed', null, null, 'client', null, 'untouched', null, {{4}}, {{1}}, {{4}}, {{d}})",
        "completions": f"('{ID}', 2, {{1}}, {{5}}, {{5}}, {{d}})",
        "message_presence_history": f"('{ID}', 'delivered', 'platform', 'agent', 'a/b', null, {{0}}, null, "
        "0, 5, {1}, {d})",
    }
    database, day = duckdb.connect(), "DATE '2024-05-01'"
    for name, rows in values.items():
        columns = ", ".join(f"`{column.name}`" for column in TABLES[name].columns)
        table = f"SELECT * FROM (VALUES {rows.format(*times, d=day)}) AS t({columns})"
        spark.sql(table).createOrReplaceTempView(name)
        database.execute(f"CREATE TABLE {name} AS {table}")
    sql = installed_views("spark")[view]
    by_spark = sorted(map(str, (tuple(row) for row in spark.sql(sql).collect())))
    by_duckdb = sorted(map(str, database.execute(installed_views()[view]).fetchall()))
    assert by_spark == by_duckdb
    if view == "delivery_latency":
        (row,) = spark.sql(sql).collect()
        assert (row.message_id, row.client, row.qos, row.ms) == (ID, "c", 1, 86_400_000 + 7_203_250.0)
    else:
        steps = [row.step for row in spark.sql(f"SELECT * FROM ({sql}) ORDER BY `at`, step").collect()]
        assert steps == [
            *("accepted", "mesh: delivered", "appended", "routed", "routed"),
            *("nobody", "untouched", "delivered", "completed"),
        ]  # fmt: skip
        assert all(row.detail and row.who for row in spark.sql(sql).collect())


def test_a_table_of_an_earlier_version_gets_the_columns_it_lacks(spark: SparkSession, tmp_path: Path) -> None:
    """Q12: `messages` had no `flags`; what is in it stays."""
    older = Schema([f for f in Schema.from_json(table_schema(MESSAGES).json()).fields if f.name != "flags"])
    uri = f"{tmp_path}/messages"
    DeltaTable.create(uri, older, partition_by=["date"])
    write_deltalake(uri, pa.table({"id": [ID], "date": [DAY]}), mode="append", schema_mode="merge")
    for _ in range(2):
        ensure_tables(str(tmp_path))
    found = DeltaTable(uri).to_pyarrow_table(columns=["id", "flags"]).to_pylist()
    assert found == [{"id": ID, "flags": None}]
    assert DeltaTable(uri).version() == 2, "once"
