"""The declared key of each table and view is one: no two rows have the same, whatever comes twice (R4, R11, R12)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.query.ledger_reader import LedgerReader, installed_views
from pipelines.feeds.copies import copies, with_slots
from pipelines.ledger import history
from pipelines.presence import message_presence
from pipelines.routing import routes
from schemas.envelope import EVERYONE
from schemas.events import (
    CompletionEvent,
    Event,
    MessagePresenceEvent,
    PresenceEvent,
    ProgressEvent,
    QuarantineEvent,
    RecipientOutcome,
    RouteEvent,
    encode,
)
from schemas.feed_tables import FEED_PROGRESS
from schemas.tables import QUALITY_RESULTS, TABLES
from tests import draw
from tests.integration.pipelines.ledger_records import AT_MS, ID, META, egress, headers
from tests.integration.pipelines.streamed import appended_once
from tests.unit.jobs.ledger_tables import append

DAY_MS = 86_400_000
Record = tuple[Any, ...]

VIEW_KEYS = {
    "delivery_latency": ("message_id", "message_appended", "scope", "number", "client", "outcome"),
    "session_history": ("client", "gateway", "epoch"),
    "topic_traffic": ("date", "hour", "level_1", "level_2"),
    "feed_messages": ("feed", "stream", "sequence", "part"),
    "feed_differences": ("feed", "stream", "sequence", "part"),
    "feed_gaps": ("feed", "stream", "slot", "first_number", "state"),
    "feed_health": ("feed", "slot"),
}
"""As docs/analysts.md has them; `message_journey` has none."""


def record(topic: str, value: Event | bytes, offset: int, at_ms: int = AT_MS, **more: Any) -> Record:
    content = value if isinstance(value, bytes) else encode(value)
    return (more.get("key", b"k"), content, topic, more.get("partition", 0), offset, at_ms, more.get("headers"))


def outcome(client: str, what: Any = "delivered", at_ms: int = AT_MS, **more: Any) -> ProgressEvent:
    delivery = RecipientOutcome(client=client, outcome=what, qos=1, at_us=at_ms * 1000)
    fields = {"kind": "relinquish", "number": 0, "partition": 1, "offset": 7, "appended_ms": AT_MS, "shard": 3} | more
    return ProgressEvent(id=ID, deliveries=[delivery], **fields)  # type: ignore[arg-type]


def direct(client: str, **more: Any) -> ProgressEvent:
    return outcome(client, kind="outcome", number=None, **more)


def retained(client: str, offered_us: int, **more: Any) -> ProgressEvent:
    return direct(client, partition=-1, offset=2, offered_us=offered_us, **more)


OUTCOMES = [
    outcome("c"), outcome("c", at_ms=AT_MS + 9), outcome("c", "dropped"), outcome("c", scope=EVERYONE),
    outcome("c", number=1, shard=2), outcome("$share/g/a/#", "ended"), outcome("$share/g/a/#", "ended", number=1),
    outcome("c", appended_ms=AT_MS - 5), direct("c"), direct("c", at_ms=AT_MS + 4), direct("$share/g/a/#"),
    retained("c", 1), retained("c", 1, at_ms=AT_MS + 5), retained("c", 2), retained("c", 3, appended_ms=AT_MS - 5),
    retained("d", 1), retained("c", 4, what="sent"), direct("old", partition=-1),
    ProgressEvent(kind="untouched", id=ID, partition=1, offset=7, appended_ms=AT_MS, limit=0),
    ProgressEvent(kind="relinquish", id=ID, partition=1, offset=7, appended_ms=AT_MS, shard=1, number=2),
]  # fmt: skip
"""A message by both scopes, to two shards, to a share group, sent again with the same id, directly, as a retained one
on each of several SUBSCRIBEs; each said twice after a crash."""


def presence(event: Any, epoch: int, seq: int, **more: Any) -> PresenceEvent:
    return PresenceEvent(client="c", event=event, gateway="g", epoch=epoch, seq=seq, at_us=AT_MS * 1000, **more)


PRESENCE = [
    presence("connected", 1, 0), presence("lost", 1, 1, reason="keep_alive_timeout"),
    presence("lost", 1, AT_MS * 1000, reason="gateway_lost"), presence("connected", 2, 0),
    PresenceEvent(client="c", event="connected", gateway="h", epoch=1, seq=0, at_us=AT_MS * 1000),
]  # fmt: skip

INPUTS: dict[str, tuple[Callable[[DataFrame], DataFrame], list[Record], int, bool]] = {
    "messages": (
        history.messages,
        [
            record("ingress", b"x", offset, at_ms, key=b"a/b", partition=partition, headers=headers(META))
            for partition in (0, 1) for offset in (0, 1) for at_ms in (AT_MS, AT_MS + DAY_MS)
        ],
        8, False,
    ),
    "instructions": (
        history.instructions,
        [
            record("egress", b"x", n, key=b"a/b", partition=shard, headers=egress(router, number, 2, scope))
            for n, (shard, number, scope, router) in enumerate(
                (s, s, scope, router)
                for s in (0, 1) for scope in ("routed", EVERYONE) for router in ("active", "backup")
            )
        ],
        4, True,
    ),
    "outcomes": (history.outcomes, [record("progress", one, n) for n, one in enumerate(OUTCOMES)], 17, True),
    "completions": (
        history.completions,
        [
            record("completion", CompletionEvent(id=ID, touches=1, appended_ms=born, completed_ms=AT_MS + n), n)
            for n, born in enumerate((AT_MS, AT_MS - 5, AT_MS))
        ],
        2, True,
    ),
    "presence_history": (
        history.presence_history, [record("presence", one, n) for n, one in enumerate(PRESENCE)], 5, True,
    ),
    "routes_history": (
        lambda rows: routes.routes_history(rows, lead_s=1.0).withColumn("quarantined", F.lit(None).cast("string")),
        [
            record("routes", RouteEvent(op="add", route_key="a", shard=1), offset, at_ms)
            for offset in (0, 1) for at_ms in (AT_MS, AT_MS + DAY_MS)
        ],
        4, False,
    ),
    "message_presence_history": (
        message_presence.history,
        [
            record("message-presence", MessagePresenceEvent(id=ID, event="attempting", agent="a", at_us=1), n, at_ms)
            for n in (0, 1) for at_ms in (AT_MS, AT_MS + DAY_MS)
        ],
        4, False,
    ),
    "feed_copies": (
        lambda rows: with_slots(copies(rows, "feed."), {"feed.a": 2, "feed.b": 2}).drop("topic", "kind", "half"),
        [
            record(f"feed.{feed}", b"x", n, at_ms, key=stream, partition=slot,
                   headers=[("feed", b"1;%d;%d;%d;7;adapter" % (number, part, n))])
            for feed in "ab" for stream in (b"s@0", b"s@1") for slot in (0, 1)
            for n, (number, part, at_ms) in enumerate(((1, 0, AT_MS), (1, 1, AT_MS), (2, 0, AT_MS), (1, 0, AT_MS + 9)))
        ],
        24, True,
    ),
    "quarantine": (
        history.quarantine,
        [
            record("quarantine", QuarantineEvent(
                topic="t", partition=0, offset=1, reason=why, record="", at_us=1, appended_ms=at_ms
            ), n)
            for n, (why, at_ms) in enumerate((("a", AT_MS), ("b", AT_MS), ("a", AT_MS + DAY_MS)))
        ],
        2, True,
    ),
}  # fmt: skip
"""By table: its transform, hostile records, how many rows are right, and whether a topic may hold copies at all."""

KEPT_BY_KEY = {"routes", "presence", "message_presence"}
"""Overwritten row by row: the writer looks up their key (:mod:`pipelines.storage.current_table`)."""


def test_every_table_is_tried() -> None:
    assert INPUTS.keys() | KEPT_BY_KEY | {QUALITY_RESULTS.name, FEED_PROGRESS.name} == TABLES.keys()
    assert VIEW_KEYS.keys() | {"message_journey"} == installed_views().keys()


def doubles(tables: str, name: str, key: tuple[str, ...]) -> list[tuple[Any, ...]]:
    columns = ", ".join(f'"{column}"' for column in key)
    return LedgerReader(tables).query(f"SELECT {columns} FROM {name} GROUP BY ALL HAVING count(*) > 1").rows


@pytest.mark.drawn("tables whose keys are unique", 2)
@pytest.mark.parametrize("name", INPUTS)
def test_no_two_rows_have_the_same_key(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Records that differ in something of the key are rows each; copies, in a batch and in later ones, are not."""
    transform, records, expected, has_copies = INPUTS[name]
    again = records if has_copies else []
    batches = appended_once(spark, tmp_path, [records, again, list(reversed(again))], transform, TABLES[name])
    assert [len(batch) for batch in batches] == [expected, 0, 0]
    assert doubles(str(tmp_path / "tables"), name, TABLES[name].key) == []


@draw.long_test
def test_the_keys_of_views_hold_as_well(spark: SparkSession, tmp_path: Path) -> None:
    """Over the hostile rows of all tables together, and a message that was sent again with the same id."""
    for name in ("messages", "outcomes", "presence_history", "instructions", "completions", "feed_copies"):
        transform, records, _, _ = INPUTS[name]
        if name == "messages":
            records = [record("ingress", b"x", n, AT_MS - 5 * n, key=b"a/b", headers=headers(META)) for n in (0, 1)]
        appended_once(spark, tmp_path / name, [records], transform, TABLES[name])
        (tmp_path / "all").mkdir(exist_ok=True)
        (tmp_path / name / "tables" / name).rename(tmp_path / "all" / name)
    progress = [
        {"feed": feed, "slot": slot, "stream": "s@0", "copies": 1, "duplicates": 0, "passed": 9, "offset": offset}
        for feed in "ab" for slot in ("active", "backup") for offset in (1, 2)
    ]  # fmt: skip
    append(str(tmp_path / "all"), "feed_progress", progress)
    for name, key in VIEW_KEYS.items():
        assert doubles(str(tmp_path / "all"), name, key) == []
        rows = LedgerReader(str(tmp_path / "all")).query(f"SELECT * FROM {name} LIMIT 1").rows
        assert rows or name == "feed_differences"


def test_no_column_of_a_key_is_idle() -> None:
    """Keys are of columns that there are, none named twice."""
    for table in TABLES.values():
        assert set(table.key) <= {column.name for column in table.columns}
        assert len(set(table.key)) == len(table.key)
