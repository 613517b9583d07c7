"""A small ledger that the real pipelines wrote, for all who read one."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BEGIN = datetime(2026, 1, 1, 23, 30, tzinfo=UTC)
MESSAGES = 60
SHARDS, LEAD_S, WINDOW_DAYS = 4, 25.0, 7
DESTINATIONS = ("town/alerts/a", "town", "@bob", "elsewhere/é/y", "town/alerts")


class WrittenLedger(NamedTuple):
    """`tables` is their directory; `ids` of the messages, one a minute from `BEGIN` on, to `DESTINATIONS` in turn."""

    tables: str
    ids: list[str]


@pytest.fixture(scope="session")
def written_ledger(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> WrittenLedger:
    """Shard 1 wants `town/alerts`; shard 3 wants `#` for the first ten minutes. Over midnight, so of two dates. A
    client that stays, and one of which nobody said how its connection ended; a message of the mesh; six copies of
    a redundant feed; one record of quarantine; one result of quality."""
    from feeds.message import Feed, FeedMessage
    from jobs.demo.feed_receivers import ReceivedCopy
    from jobs.quality.judging import Measured
    from jobs.quality.results import Result, ResultsTable, Run
    from pipelines.ledger import history
    from pipelines.presence import client_presence, message_presence
    from pipelines.quality.expectations import of_required
    from pipelines.routing import routes
    from pipelines.routing.instructions import RoutingPlan, route
    from pipelines.routing.route_buckets import in_buckets
    from pipelines.sinks import RoutesTable, append_to_table, ensure_tables, keep_current
    from pipelines.sources import read_table
    from pipelines.streams import StreamId
    from schemas import tables as declared
    from schemas.envelope import Instruction, Meta, ingress_headers
    from schemas.events import (
        CompletionEvent,
        MessagePresenceEvent,
        PresenceEvent,
        ProgressEvent,
        QuarantineEvent,
        RecipientOutcome,
        RouteEvent,
        encode,
    )
    from schemas.identity import new_message_id
    from tests.integration.pipelines.feed_ledger import FeedTopic, feed_batch
    from tests.integration.pipelines.streamed import KAFKA, kafka_rows
    from tests.integration.pipelines.told_states import client_state, mesh_state

    directory = tmp_path_factory.mktemp("written")
    tables = str(directory / "tables")
    ids = [new_message_id() for _ in range(MESSAGES)]
    ensure_tables(tables)

    def ms(minutes: float) -> int:
        return round((BEGIN + timedelta(minutes=minutes)).timestamp() * 1000)

    def us(minutes: float) -> int:
        return ms(minutes) * 1000 + 7

    def records(topic: str, rows: list[tuple[Any, ...]]) -> Path:
        """`(key, value, minutes, headers)` as records of one partition, written where a stream finds them."""
        filled = [
            (key, value, topic, 0, offset, ms(minutes), headers)
            for offset, (key, value, minutes, headers) in enumerate(rows)
        ]
        kafka_rows(spark, filled).coalesce(1).write.parquet(str(directory / topic))
        return directory / topic

    def events(topic: str, *found: tuple[Any, float]) -> Path:
        return records(topic, [(b"key", encode(event), minutes, None) for event, minutes in found])

    of_routes = events(
        "routes",
        (RouteEvent(op="add", route_key="town/alerts", shard=1), -5),
        (RouteEvent(op="add", route_key="#", shard=3), -4),
        (RouteEvent(op="drop", route_key="#", shard=3), 9.5 - LEAD_S / 60),
        (RouteEvent(op="tick"), 600),
    )
    batch = spark.read.schema(KAFKA).parquet(str(of_routes))
    buckets, _, as_of_us = routes.touched(batch).collect()[0]
    RoutesTable(tables, LEAD_S, WINDOW_DAYS).write(batch, buckets, as_of_us, "a-query", 0)

    ingress = records(
        "ingress",
        [
            (
                DESTINATIONS[n % 5].encode(),
                None if n % 7 == 6 else b"\x00\xff" * n,
                n,
                ingress_headers(
                    name, f"sender-{n % 3}", Meta(n % 3, "", ms(n + 60) if n % 2 else None, us(n), None), b""
                ),
            )
            for n, name in enumerate(ids)
        ],
    )
    plan = RoutingPlan("egress", "progress", 1, SHARDS, LEAD_S, "active")
    known = in_buckets(read_table(spark, tables, declared.ROUTES))
    routed = route(spark.read.schema(KAFKA).parquet(str(ingress)), known, plan).collect()
    shard_records: list[tuple[Any, ...]] = []
    progress: list[tuple[Any, ...]] = []
    for record in routed:
        if record.topic == "progress":
            at = ids.index(bytes(record.key).decode())
            progress.append((bytes(record.key), bytes(record.value), at + 0.001, None))
            continue
        headers = [(header.key, bytes(header.value)) for header in record.headers]
        instruction = Instruction.decode(headers[4][1])
        value = None if record.value is None else bytes(record.value)
        at = instruction.offset
        shard_records.append(
            (bytes(record.key), value, "egress", record.partition, len(shard_records), ms(at), headers)
        )
        deliveries = [RecipientOutcome(client="bob", outcome="delivered", qos=1, at_us=us(at + 0.5))] if at % 2 else []
        event = ProgressEvent(
            kind="relinquish", id=headers[0][1].decode(), partition=0, offset=at, appended_ms=ms(at),
            shard=record.partition, number=instruction.number, limit=instruction.limit, deliveries=deliveries,
        )  # fmt: skip
        progress.append((b"key", encode(event), at + 0.6, None))
    kafka_rows(spark, shard_records).coalesce(1).write.parquet(str(directory / "egress"))
    came = {
        "client": "bob",
        "gateway": "g",
        "epoch": us(0),
        "peer": "10.0.0.1:9",
        "protocol": "mqtt5",
        "user": "robert",
    }
    sources: list[tuple[Path, declared.Table, Callable[[DataFrame], DataFrame]]] = [
        (of_routes, declared.ROUTES_HISTORY, lambda rows: routes.routes_history(rows, LEAD_S)),
        (ingress, declared.MESSAGES, history.messages),
        (directory / "egress", declared.INSTRUCTIONS, history.instructions),
        (records("progress", progress), declared.OUTCOMES, history.outcomes),
        (
            events("completion", (CompletionEvent(id=ids[0], touches=2, appended_ms=ms(0), completed_ms=ms(0.6)), 0.7)),
            declared.COMPLETIONS,
            history.completions,
        ),
        (
            events(
                "presence",
                (PresenceEvent(event="connected", seq=0, at_us=us(0), **came), 0),
                (PresenceEvent(event="lost", seq=1, at_us=us(26 * 60 + 3.5), reason="connection_lost", **came), 1564),
                (PresenceEvent(event="connected", seq=0, at_us=us(5), **{**came, "client": "eve", "epoch": us(5)}), 5),
            ),
            declared.PRESENCE_HISTORY,
            history.presence_history,
        ),
        (
            events(
                "message-presence",
                (MessagePresenceEvent(id=ids[0], event="attempting", agent="ship", at_us=us(0), origin="ship"), 0.1),
            ),
            declared.MESSAGE_PRESENCE_HISTORY,
            message_presence.history,
        ),
        (
            events(
                "quarantine",
                (QuarantineEvent(topic="t", partition=1, offset=2, reason="why", record="AP8=", at_us=us(1)), 1),
            ),
            declared.QUARANTINE,
            history.quarantine,
        ),
    ]
    running = []
    for source, table, transform in sources:
        rows = transform(spark.readStream.schema(KAFKA).parquet(str(source)))
        bad_to = (lambda batch: None) if "quarantined" in rows.columns else None
        running.append(append_to_table(rows, StreamId(table.name), tables, table, 0.1, bad_to))
    eve, carried = client_state("eve", False, us(65)), mesh_state(ids[0], ms(600))
    of_feed = FeedTopic("radar", 2)
    copies = [
        ReceivedCopy(us(at), feed, FeedMessage("source@1", number, 0, number, us(at), feed.name, payload))
        for feed, number, at, payload in (
            (Feed.ACTIVE, 1, 0.1, b"a"), (Feed.BACKUP, 1, 0.2, b"a"), (Feed.ACTIVE, 2, 1, b"b"),
            (Feed.BACKUP, 2, 1.5, b"\xff"), (Feed.BACKUP, 4, 2, b"d"), (Feed.ACTIVE, 5, 3, b""),
        )
    ]  # fmt: skip
    in_feed = [*of_feed.copies(copies), of_feed.passed(Feed.ACTIVE, "source@1", 7, us(8))]
    feed_batch(spark, directory, of_feed, in_feed)
    states = [
        ("presence-state", eve.client, eve, declared.PRESENCE, client_presence),
        ("message-presence-state", carried.id, carried, declared.MESSAGE_PRESENCE, message_presence),
    ]
    for topic, key, state, table, of in states:
        source = records(topic, [(key.encode(), encode(state), 6, None)])
        latest = spark.readStream.schema(KAFKA).parquet(str(source))
        running.append(
            keep_current(
                latest, StreamId(table.name), tables, table, of.state_format(), of.columns(), lambda batch: None, 0.1
            )
        )
    try:
        for query in running:
            query.processAllAvailable()
    finally:
        for query in running:
            query.stop()
    until = BEGIN.replace(tzinfo=None) + timedelta(days=2)
    met = Measured(of_required(declared.MESSAGES), MESSAGES, 0, 0.0, 0.0)
    ResultsTable(tables).append(Run("a-run", until, until), [Result(BEGIN.date(), met, True, 1, MESSAGES)])
    return WrittenLedger(tables, ids)
