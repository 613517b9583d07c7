"""A ledger in which every example of README and docs finds something."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.unit.jobs.ledger_tables import append
from tests.unit.jobs.report.report_ledger import completion, instruction, live, message, outcome, presence


def write_ledger(data: Path) -> None:
    """Writes its tables under `data`, whatever the date."""
    tables, at = str(data / "tables"), datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=10)
    later = at + timedelta(seconds=2)
    messages = [message("m1", at, payload=b"\xff hello"), message("m2", later, payload=b"", qos=1)]
    append(tables, "messages", [one | {"origin": "client"} for one in messages])
    append(tables, "messages", [message("today", datetime.now(UTC))])
    append(tables, "instructions", [instruction("m1", at, 1)])
    lost = outcome("m1", at, 3, "eve", outcome="dropped", number=1)
    append(tables, "outcomes", [outcome("m1", at, 2), lost, outcome("m2", later, 2)])
    append(tables, "completions", [completion("m1", at, 4)])
    carried = {"message_id": "m1", "event": "propagated", "agent": "http:van", "peer": "http:bus", "at": at}
    append(tables, "message_presence_history", [{**carried, "partition": 0, "offset": 0, "appended": at}])
    wanted = {"shard": 0, "effective_from": at, "effective_until": datetime(9999, 1, 1, tzinfo=UTC)}
    append(tables, "routes", [{"route_key": "#", "bucket": -1, "targets": [wanted]}])
    append(
        tables,
        "routes_history",
        [{"shard": 0, "route_key": "#", "op": "add", "effective": at, "offset": 0, "appended": at}],
    )
    append(tables, "presence_history", [presence("bob", at, "connected", at), presence("bob", at, "lost", later)])
    append(tables, "presence", [live("bob", at)])
    result = {
        "run_id": "r1", "run_at": at, "suite": "s", "expectation": "A message is routed in time",
        "table_name": "messages",
        "success": False, "judged": 1, "unexpected": 1, "observed": 1.0, "table_version": 1, "table_rows": 1,
        "date": at.date(),
    }  # fmt: skip
    append(tables, "quality_results", [result])
    numbers = {"active": (1, 2, 5), "backup": (1, 2, 3, 5)}
    for slot, has in numbers.items():
        of_feed = {
            "feed": "radar",
            "stream": "adsb@0",
            "slot": slot,
            "adapter": slot,
            "partition": int(slot == "backup"),
        }
        copies = [
            {**of_feed, "name": "adsb", "epoch": 0, "sequence": n, "part": 0, "message_sequence": n, "read": at,
             "crc32": n + (slot == "backup"), "payload_bytes": 1, "payload": b"x", "offset": n, "appended": at}
            for n in has
        ]  # fmt: skip
        append(tables, "feed_copies", copies)
        counts = {"copies": len(has), "duplicates": 0, "highest": 5}
        append(tables, "feed_progress", [{**of_feed, **counts, "offset": 5, "appended": later + timedelta(minutes=5)}])
