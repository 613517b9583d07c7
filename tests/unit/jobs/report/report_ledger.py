"""A small date of the ledger for tests of its report, with figures that can be counted by hand."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

from jobs.quality.contents import existing_contents
from jobs.query.ledger_reader import Memory
from jobs.report.dates import activity
from jobs.report.facts import Facts, read_facts
from tests.unit.jobs.ledger_tables import append

DAY = datetime(2026, 3, 4, tzinfo=UTC)
DATE = DAY.date()
NOON = DAY + timedelta(hours=12)


def message(name: str, at: datetime, source: str = "alice", destination: str = "a/b/c", **more: Any) -> dict[str, Any]:
    return {
        "id": name, "source": source, "destination": destination, "qos": 1, "retained": False, "flags": "",
        "payload_bytes": 100, "accepted": at, "appended": at, "partition": 0, "offset": int(at.timestamp()),
    } | more  # fmt: skip


def instruction(name: str, at: datetime, ms: int, **more: Any) -> dict[str, Any]:
    """Routed so many milliseconds after the message was appended."""
    return {
        "message_id": name, "destination": "a/b/c", "shard": 0, "number": 0, "limit": 1, "scope": "routed",
        "router": "active", "partition": 0, "offset": int(at.timestamp()), "message_appended": at,
        "appended": at + timedelta(milliseconds=ms),
    } | more  # fmt: skip


def outcome(name: str, at: datetime, ms: float, client: str | None = "bob", **more: Any) -> dict[str, Any]:
    done = at + timedelta(milliseconds=ms)
    return {
        "message_id": name, "shard": 0, "number": 0, "client": client, "outcome": "delivered", "qos": 1, "at": done,
        "message_appended": at, "appended": done + timedelta(milliseconds=1),
    } | more  # fmt: skip


def completion(name: str, at: datetime, ms: int) -> dict[str, Any]:
    done = at + timedelta(milliseconds=ms)
    return {"message_id": name, "touches": 1, "message_appended": at, "completed": done, "appended": done}


def presence(client: str, begun: datetime, event: str, at: datetime, **more: Any) -> dict[str, Any]:
    """An event of the connection that began at `begun`."""
    return {
        "client": client, "event": event, "gateway": "g1", "epoch": epoch(begun), "seq": int(event != "connected"),
        "at": at, "protocol": "mqtt5", "appended": at + timedelta(milliseconds=2),
    } | more  # fmt: skip


def epoch(begun: datetime) -> int:
    return int(begun.timestamp() * 1_000_000)


def live(client: str, begun: datetime) -> dict[str, Any]:
    """A row of `presence` of a client that is connected since `begun`."""
    attachment = {
        "gateway": "g1", "attachment": "", "boot": 1, "epoch": epoch(begun), "seq": 0, "live": True, "since": begun,
        "at": begun, "peer": "", "protocol": "mqtt5", "reason": "", "user": "",
    }  # fmt: skip
    return {"client": client, "bucket": 1, "online": True, "at": begun, "attachments": [attachment], "updated": begun}


def facts_of(tables: str, spill: str, day: date = DATE, top: int = 100) -> Facts:
    """What the ledger knows of a date."""
    return read_facts(tables, day, activity(existing_contents(tables), day), top, Memory(128, spill))


def write_busy_date(tables: str) -> None:
    """1,000 messages from noon on, one in 10 s, of which the nth took n ms to be routed and 2n ms to be delivered, and
    one more in each of the dates around."""
    times = [(f"m{n}", NOON + timedelta(seconds=10 * n), n) for n in range(1, 1001)]
    for around in (-1, 1):
        at = NOON + timedelta(days=around)
        append(tables, "messages", [message(f"around{around}", at)])
        append(tables, "outcomes", [outcome(f"around{around}", at, 5)])
    append(tables, "messages", [message(name, at, f"c{n % 4}", qos=n % 3, payload_bytes=n) for name, at, n in times])
    append(tables, "instructions", [instruction(name, at, n) for name, at, n in times])
    append(tables, "outcomes", [outcome(name, at, 2 * n) for name, at, n in times])
    append(tables, "completions", [completion(name, at, 3 * n) for name, at, n in times if n != 7])
