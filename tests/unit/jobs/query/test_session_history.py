"""How connections ended, as the view and the guide's example tell it, also where a gateway was killed (R12)."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.query.ledger_reader import LedgerReader
from tests.unit.jobs.ledger_tables import append

GUIDE = (Path(__file__).parents[4] / "docs" / "analysts.md").read_text()
AT = datetime(2026, 1, 2, 3, tzinfo=UTC)


def later(seconds: int) -> datetime:
    return AT + timedelta(seconds=seconds)


CONNECTED = {"event": "connected", "seq": 0, "gateway": "g", "protocol": "mqtt5", "at": AT, "appended": AT}
LOST = {"event": "lost", "reason": "gateway_lost"}
BACK = {"event": "connected", "reason": "gateway_back"}
GOODBYE = {"event": "disconnected", "reason": "normal_disconnection", "seq": 1}


def ended(client: str, epoch: int, seconds: int, event: dict[str, Any]) -> dict[str, Any]:
    row = {"client": client, "epoch": epoch, "gateway": "g", "seq": seconds * 1_000_000, "at": later(seconds)}
    return {**row, "appended": row["at"], **event}


@pytest.fixture
def reader(tmp_path: Path) -> LedgerReader:
    """`bob` said goodbye after a minute; `eve` is there; the gateway of all others was lost. When it was started again
    it reported `kept`, whose session it had kept. The one of `back` was only out of reach, and that of `late` said
    afterwards how the connection had ended."""
    tables = str(tmp_path)
    clients = ("bob", "eve", "kept", "clean", "back", "late")
    append(tables, "presence_history", [{**CONNECTED, "client": c, "epoch": 1} for c in clients])
    append(tables, "presence_history", [
        ended("bob", 1, 60, GOODBYE),
        ended("kept", 1, 90, LOST),
        ended("kept", 90, 90, {"event": "lost", "reason": "gateway_restarted", "seq": 0}),
        ended("clean", 1, 90, LOST),
        ended("back", 1, 90, LOST),
        ended("back", 1, 95, BACK),
        ended("late", 1, 90, LOST),
        ended("late", 1, 30, GOODBYE),
    ])  # fmt: skip
    return LedgerReader(tables)


def test_each_connection_is_a_row_with_its_end(reader: LedgerReader) -> None:
    """Also where a gateway was lost: what it says itself counts for more, and it may come back with its clients."""
    rows = reader.query("SELECT client, connected, ended, how, reason, seconds FROM session_history ORDER BY ALL").rows
    assert rows == [
        ("back", AT, None, None, None, None),
        ("bob", AT, later(60), "disconnected", "normal_disconnection", 60),
        ("clean", AT, later(90), "lost", "gateway_lost", 90),
        ("eve", AT, None, None, None, None),
        ("kept", AT, later(90), "lost", "gateway_lost", 90),
        ("late", AT, later(30), "disconnected", "normal_disconnection", 30),
    ]


def test_the_guides_example_counts_each_connection_once(reader: LedgerReader) -> None:
    (example,) = re.findall(r"^```sql\n(-- how connections ended.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    assert sorted(reader.query(example).rows) == [
        ("mqtt5", "gateway_lost", 2, 90.0),
        ("mqtt5", "normal_disconnection", 2, 45.0),
        ("mqtt5", "still there", 2, None),
    ]
