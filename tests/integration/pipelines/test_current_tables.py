"""Tables of how things are now: one row a key, whatever the batches (R12, M9)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession

from pipelines.presence import client_presence, message_presence
from pipelines.records import Format
from pipelines.sinks import ensure_tables
from pipelines.sources import read_table
from pipelines.storage.appends import Quarantine
from pipelines.storage.current_table import CurrentTable, current_rows
from pipelines.storage.table_files import QUERY_ID, TableFiles
from schemas.events import encode
from schemas.states import GATEWAY_MARK, Claim, GatewayState
from schemas.table import Table
from schemas.tables import MESSAGE_PRESENCE, PRESENCE
from tests.integration.pipelines.streamed import kafka_rows
from tests.integration.pipelines.told_states import client_state, mesh_state

AT_MS = 1_700_000_000_000


def current_table(
    tables: Path,
    table: Table,
    form: Format,
    columns: list[Column],
    quarantine: Quarantine = lambda batch: None,
) -> Callable[[DataFrame, int], None]:
    """Takes batches of Kafka records."""
    write = CurrentTable(table, TableFiles(str(tables / table.name), table), quarantine)
    return lambda records, number: write(current_rows(records, form, columns), number)


def client_table(tables: Path, reported: list[int]) -> Callable[[DataFrame, int], None]:
    """That of clients; `reported` gets the offsets of what is quarantined."""
    return current_table(
        tables,
        PRESENCE,
        client_presence.state_format(),
        client_presence.columns(),
        lambda batch: reported.extend(row.offset for row in batch.where("quarantined IS NOT NULL").collect()),
    )


def told(offset: int, client: str, online: bool) -> tuple[Any, ...]:
    value = encode(client_state(client, online, AT_MS * 1000 + offset))
    return (client.encode(), value, "presence-state", 0, offset, AT_MS, None)


def test_the_last_record_of_each_client_counts(spark: SparkSession, tmp_path: Path) -> None:
    """R12: over batches, a repeated batch included; an end of a key ends its row; gateways have none."""
    ensure_tables(str(tmp_path))
    spark.sparkContext.setLocalProperty(QUERY_ID, "a-query")
    table = current_table(tmp_path, PRESENCE, client_presence.state_format(), client_presence.columns())
    gateway = GatewayState(gateway="g", alive=True, boot=1, at_ms=AT_MS)
    names = [f"c{n}" for n in range(40)]
    batches = [
        [*(told(n, name, True) for n, name in enumerate(names)), told(99, "c0", False)],
        [told(100, "c1", False), (b"c2", None, "presence-state", 0, 101, AT_MS, None)],
        [(f"{GATEWAY_MARK}g".encode(), encode(gateway), "presence-state", 0, 102, AT_MS, None)],
    ]
    for number, batch in enumerate(batches):
        for _ in range(2):
            table(kafka_rows(spark, batch), number)
    rows = {row.client: row for row in read_table(spark, str(tmp_path), PRESENCE).collect()}
    assert sorted(rows) == sorted({*names} - {"c2"})
    assert {name for name, row in rows.items() if not row.online} == {"c0", "c1"}
    assert (rows["c1"].reason, rows["c3"].reason, rows["c3"].attachments[0].peer) == ("why", None, "p")
    delta = DeltaTable(str(tmp_path / "presence"))
    assert delta.version() == len(batches), "each batch once"
    assert len(delta.file_uris()) <= 16


def test_bad_records_change_nothing_and_are_reported(spark: SparkSession, tmp_path: Path) -> None:
    """R12: beside good ones, and alone."""
    ensure_tables(str(tmp_path))
    spark.sparkContext.setLocalProperty(QUERY_ID, "a-query")
    reported: list[int] = []
    table = client_table(tmp_path, reported)
    bad = (b"c", b"not json", "presence-state", 0, 1, AT_MS, None)
    table(kafka_rows(spark, [told(0, "c", True), bad]), 0)
    table(kafka_rows(spark, [(*bad[:4], 2, *bad[5:])]), 1)
    assert [(row.client, row.online) for row in read_table(spark, str(tmp_path), PRESENCE).collect()] == [("c", True)]
    assert reported == [1, 2]


def test_an_end_of_a_key_that_is_no_text_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    """R12: nobody has such a key, so a record without a value ends nothing; the records beside it count."""
    ensure_tables(str(tmp_path))
    spark.sparkContext.setLocalProperty(QUERY_ID, "a-query")
    reported: list[int] = []
    table = client_table(tmp_path, reported)
    table(kafka_rows(spark, [told(0, "c", True), (b"\xff", None, "presence-state", 0, 1, AT_MS, None)]), 0)
    assert [row.client for row in read_table(spark, str(tmp_path), PRESENCE).collect()] == ["c"]
    assert reported == [1]


def test_messages_of_the_mesh(spark: SparkSession, tmp_path: Path) -> None:
    """M9: what is known of each, with its claim if there is one."""
    ensure_tables(str(tmp_path))
    spark.sparkContext.setLocalProperty(QUERY_ID, "a-query")
    delivered = {"state": "delivered", "delivered_by": "b", "delivered_to": "z", "delivered_us": AT_MS * 1000}
    there = mesh_state("m", AT_MS, **delivered)
    pending = mesh_state("n", AT_MS, claim=Claim(agent="a", at_us=1, until_ms=AT_MS))
    batch = [(s.id.encode(), encode(s), "t", 0, n, AT_MS, None) for n, s in enumerate([there, pending])]
    table = current_table(tmp_path, MESSAGE_PRESENCE, message_presence.state_format(), message_presence.columns())
    table(kafka_rows(spark, batch), 0)
    rows = {row.message_id: row for row in read_table(spark, str(tmp_path), MESSAGE_PRESENCE).collect()}
    assert (rows["m"].state, rows["m"].delivered_by, rows["m"].claim_agent) == ("delivered", "b", None)
    assert (rows["n"].delivered, rows["n"].claim_agent, rows["n"].holders) == (None, "a", ["a"])
