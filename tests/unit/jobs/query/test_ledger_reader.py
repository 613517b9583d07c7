"""SQL over Delta tables without Spark."""

from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.errors import QueryError, TableUnreadable
from jobs.query.ledger_reader import Dates, LedgerReader, Memory
from schemas.sql import named_blocks
from tests.unit.jobs.ledger_tables import append, with_a_text_that_is_not_utf8

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
VIEWS = {"busy": "SELECT source, count(*) AS n FROM messages GROUP BY source", "late": "SELECT * FROM outcomes"}


@pytest.fixture
def tables(tmp_path: Path) -> str:
    rows = {
        "id": ["m1", "m2"],
        "source": ["alice", "alice"],
        "payload": [b"hello", None],
        "accepted": pa.array([AT, AT], pa.timestamp("us", "UTC")),
        "date": [date(2026, 1, 2)] * 2,
    }
    write_deltalake(str(tmp_path / "messages"), pa.table(rows), partition_by=["date"])
    return str(tmp_path)


def test_tables_and_the_views_over_them(tables):
    reader = LedgerReader(tables, VIEWS)
    assert (reader.tables, reader.views) == (["messages"], ["busy"])
    assert reader.query("SELECT * FROM busy") == (["source", "n"], [("alice", 2)])


def test_values_come_as_python_has_them_in_utc(tables):
    result = LedgerReader(tables, {}).query("SELECT payload, accepted, date FROM messages WHERE id = ?", ["m1"])
    assert result.rows == [(b"hello", AT, date(2026, 1, 2))]
    assert result.without("payload").columns == ["accepted", "date"]


def test_a_missing_table_names_those_there_are(tables):
    with pytest.raises(QueryError, match="outcomes does not exist; the tables and views are: messages, busy"):
        LedgerReader(tables, VIEWS).query("SELECT * FROM outcomes")


def test_a_missing_column_names_what_may_be_meant(tables):
    with pytest.raises(QueryError, match='"payloads" not found in FROM clause; Candidate bindings: "payload"'):
        LedgerReader(tables, VIEWS).query("SELECT payloads FROM messages")


def test_no_tables_yet(tmp_path):
    with pytest.raises(QueryError, match="there are no tables in"):
        LedgerReader(str(tmp_path), VIEWS).query("SELECT * FROM messages")


def test_a_table_with_a_damaged_log_is_named(tables, tmp_path):
    (commit,) = (tmp_path / "messages" / "_delta_log").glob("*.json")
    commit.write_bytes(commit.read_bytes()[:50])
    with pytest.raises(TableUnreadable, match=r"^table messages cannot be read .*: try again in a few [^\n]*$"):
        LedgerReader(tables, VIEWS)


def test_a_text_that_is_not_utf8_is_an_error_in_words(tables, tmp_path):
    (file,) = tmp_path.rglob("*.parquet")
    with_a_text_that_is_not_utf8(file, "source")
    with pytest.raises(TableUnreadable, match="a file of the table is damaged"):
        LedgerReader(tables, VIEWS).query("SELECT source FROM messages")


def test_routes_by_their_key_after_a_tick(tmp_path):
    append(str(tmp_path), "routes", [{"route_key": key, "bucket": -1, "targets": []} for key in ("#", "a")])
    DeltaTable(str(tmp_path / "routes")).update(updates={"as_of": "to_timestamp_micros(5)"}, predicate="bucket = -1")
    reader = LedgerReader(str(tmp_path), {})
    for _ in range(2):
        assert reader.query("SELECT epoch_us(as_of) AS us FROM routes WHERE route_key = 'a'").rows == [(5,)]


def test_dates_alone_and_tables_that_are_not_written_yet(tmp_path):
    """Of a table without dates all rows."""
    tables = str(tmp_path)
    for day in (1, 2, 3):
        append(tables, "quarantine", [{"topic": f"t{day}", "appended": AT.replace(day=day)}])
    append(tables, "routes", [{"route_key": "#", "bucket": -1, "targets": []}])

    def topics(dates: Dates) -> list[str]:
        reader = LedgerReader(tables, {}, dates)
        return [topic for (topic,) in reader.query("SELECT topic FROM quarantine ORDER BY topic").rows]

    assert topics(Dates(date(2026, 1, 2), date(2026, 1, 2))) == ["t2"]
    assert topics(Dates(date(2026, 1, 2))) == ["t2", "t3"]
    reader = LedgerReader(tables, None, Dates(date(2026, 1, 2)))
    assert reader.tables == ["routes", "quarantine"]
    assert reader.query("SELECT count(*) FROM routes").rows == [(1,)]
    assert reader.query("SELECT * FROM topic_traffic").rows == []


def test_memory_is_bounded(tmp_path):
    """What does not fit is spilled, and gone when the reader is closed."""
    spill = tmp_path / "spill"
    reader = LedgerReader(str(tmp_path), {}, memory=Memory(64, str(spill)))
    reader.query("CREATE TEMP TABLE t AS SELECT hash(i) AS a, hash(i + 1) AS b FROM range(8_000_000) s(i)")
    assert any(spill.iterdir())
    reader.close()
    assert not spill.exists() or not any(spill.iterdir())


def test_wrong_sql_is_one_line(tables):
    with pytest.raises(QueryError) as raised:
        LedgerReader(tables, VIEWS).query("SELEC 1")
    assert str(raised.value) == 'syntax error at or near "SELEC"; correct the SQL there: it must be that of DuckDB'


def test_named_blocks():
    text = "-- Head.\n\n-- name: one\n-- What it is.\nSELECT 1\n\n-- name: two\nSELECT 2;\n"
    assert named_blocks(text) == {"one": "-- What it is.\nSELECT 1", "two": "SELECT 2;"}
