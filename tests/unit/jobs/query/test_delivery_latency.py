"""The view `delivery_latency`: one row a delivery, from accepting what was delivered."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from jobs.query.ledger_reader import LedgerReader
from tests.unit.jobs.ledger_tables import append

AT = datetime(2026, 1, 2, 3, tzinfo=UTC)
MS = timedelta(milliseconds=1)
HOURS = timedelta(hours=1)
SENT_AGAIN = "2f0c2ab0-9d1e-8000-8000-000000000001"


def message(offset: int, accepted: datetime, name: str = SENT_AGAIN) -> dict[str, Any]:
    return {
        "id": name, "partition": 0, "offset": offset, "accepted": accepted, "appended": accepted + MS, "qos": 1,
    }  # fmt: skip


def delivery(
    client: str, number: int | None, message_appended: datetime, at: datetime, path: str | None = None
) -> dict[str, Any]:
    return {
        "path": path,
        "message_id": SENT_AGAIN, "scope": "routed", "shard": 1, "number": number, "client": client, "qos": 1,
        "outcome": "delivered", "at": at, "message_appended": message_appended, "appended": at,
    }  # fmt: skip


def test_a_message_that_was_sent_again_has_one_latency_a_delivery(tmp_path: Path) -> None:
    """By what was delivered, which its append time tells. What was sent on SUBSCRIBE as a retained message has none,
    also in rows of before there was a `path`: its age says nothing. Clocks that are apart make none negative."""
    tables, again = str(tmp_path), AT + 2 * HOURS
    append(tables, "messages", [message(0, AT), message(1, again), message(2, AT, "another")])
    append(tables, "outcomes", [
        delivery("first", 0, AT + MS, AT + 20 * MS),
        delivery("second", 0, again + MS, again + 7.25 * MS),
        delivery("ahead", None, again + MS, again + 3 * MS),
        delivery("ahead-2", None, again + MS, again + 4 * MS, "direct"),
        delivery("retained", None, AT + 5 * MS, again + 40 * MS),
        delivery("retained-2", None, again + MS, again + 40 * MS, "retained"),
        delivery("early", 1, AT + MS, AT - 9 * MS),
    ])  # fmt: skip
    rows = LedgerReader(tables).query("SELECT client, ms FROM delivery_latency ORDER BY client").rows
    assert rows == [("ahead", 3.0), ("ahead-2", 4.0), ("early", 0.0), ("first", 20.0), ("second", 7.25)]


def test_the_platforms_own_messages_have_none(tmp_path: Path) -> None:
    """Also in rows of before there was an `origin`."""
    tables = str(tmp_path)
    for name, origin in (("new", "platform"), ("old", None), ("user", "client")):
        row = message(0, AT, name) | {"destination": "a/b" if name == "user" else "$presence/c", "origin": origin}
        append(tables, "messages", [row])
        append(tables, "outcomes", [delivery("c", 0, AT + MS, AT + 2 * MS) | {"message_id": name}])
    assert LedgerReader(tables).query("SELECT message_id FROM delivery_latency").rows == [("user",)]
