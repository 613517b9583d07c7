"""How connections ended, as the view and the guide's example tell it, also where a gateway was killed (R12)."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobs.query.ledger_reader import LedgerReader
from tests.unit.jobs.ledger_tables import append

GUIDE = (Path(__file__).parents[4] / "docs" / "analysts.md").read_text()
AT = datetime(2026, 1, 2, 3, tzinfo=UTC)


def later(seconds: int) -> datetime:
    return AT + timedelta(seconds=seconds)


@pytest.fixture
def reader(tmp_path: Path) -> LedgerReader:
    """`bob` said goodbye after a minute; `eve` is there; the gateway of `kept` and `clean` was killed, and when it was
    started again it reported the one whose session it had kept."""
    tables = str(tmp_path)
    connected = {"event": "connected", "seq": 0, "gateway": "g", "protocol": "mqtt5", "at": AT, "appended": AT}
    append(
        tables, "presence_history", [{**connected, "client": c, "epoch": 1} for c in ("bob", "eve", "kept", "clean")]
    )
    ends = [
        {"client": "bob", "epoch": 1, "event": "disconnected", "reason": "normal_disconnection", "at": later(60)},
        {"client": "kept", "epoch": 90, "event": "lost", "reason": "gateway_restarted", "at": later(90)},
    ]
    append(tables, "presence_history", [{"seq": 1, "gateway": "g", "appended": one["at"], **one} for one in ends])
    live = {"bob": (1, False), "eve": (1, True), "kept": (90, False), "clean": (1, False)}
    append(
        tables,
        "presence",
        [
            {"client": client, "bucket": 0, "online": is_live, "attachments": [{"epoch": epoch, "live": is_live}]}
            for client, (epoch, is_live) in live.items()
        ],
    )
    return LedgerReader(tables)


def test_a_loss_found_at_a_gateways_start_is_a_row_of_its_own(reader: LedgerReader) -> None:
    rows = reader.query("SELECT client, connected, ended, how, seconds FROM session_history ORDER BY ALL").rows
    assert rows == [
        ("bob", AT, later(60), "disconnected", 60),
        ("clean", AT, None, None, None),
        ("eve", AT, None, None, None),
        ("kept", AT, None, None, None),
        ("kept", None, later(90), "lost", None),
    ]


def test_the_guides_example_counts_each_connection_once(reader: LedgerReader) -> None:
    (example,) = re.findall(r"^```sql\n(-- how connections ended.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    assert sorted(reader.query(example).rows) == [
        ("mqtt5", "its gateway was killed", 2, None),
        ("mqtt5", "normal_disconnection", 1, 60.0),
        ("mqtt5", "still there", 1, None),
    ]
