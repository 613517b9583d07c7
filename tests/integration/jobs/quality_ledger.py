"""A ledger of some days, written directly: all holds on most of them, and on each of the others one thing does not."""

from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from uuid import UUID

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from pipelines.sinks import ensure_tables
from schemas.identity import derived_message_id

FIRST = date(2026, 3, 1)
INGRESS = "ws.ingress"
SECOND = timedelta(seconds=1)
MS = timedelta(milliseconds=1)

Rows = dict[str, list[dict[str, Any]]]
Fault = Callable[[Rows], None]


class Ledger:
    """Days are added one after the other; offsets go on from day to day."""

    def __init__(self) -> None:
        self.rows: Rows = {}
        self.offset = 0
        self.day = FIRST
        self._ids = 0

    def new_id(self) -> str:
        self._ids += 1
        return str(UUID(int=self._ids))

    def make_ingress_again(self) -> None:
        """The topic is deleted and made again: its offsets begin at 0."""
        self.offset = 0

    def add_day(self, faults: Iterable[Fault] = (), routing: timedelta = 5 * MS, sending: timedelta = 20 * MS) -> date:
        """Another day: its date. `faults` change its rows; `routing` and `sending` are how long these take."""
        of_day: Rows = {name: [] for name in TABLES}
        noon = datetime.combine(self.day, time(12), UTC)
        for number, shape in enumerate(SHAPES):
            self._message(of_day, noon + number * SECOND, shape, routing, sending)
        self._others(of_day, noon)
        for fault in faults:
            fault(of_day)
        for name, rows in of_day.items():
            self.rows.setdefault(name, []).extend(rows)
        self.day += timedelta(days=1)
        return self.day - timedelta(days=1)

    def _message(
        self, rows: Rows, at: datetime, shape: "Shape", routing: timedelta, sending: timedelta, one: str = ""
    ) -> None:
        """One message with its instructions, outcomes and completion; `shape` are shards by scope, the first of which
        is finished first."""
        one, offset = one or self.new_id(), self.offset
        self.offset += 1
        rows["messages"].append(
            stamped(
                at,
                id=one,
                source="s",
                destination="a/b",
                qos=1,
                retained=False,
                accepted=at - MS,
                payload=b"x",
                payload_bytes=1,
                partition=offset % 2,
                offset=offset // 2,
            )
        )
        finished = {}
        late = timedelta()
        for scope, shards in shape.items():
            for number, shard in enumerate(shards):
                routed, done = at + routing, at + routing + sending + late
                rows["instructions"].append(
                    stamped(
                        routed,
                        message_id=one,
                        destination="a/b",
                        shard=shard,
                        number=number,
                        limit=len(shards) if number == len(shards) - 1 else None,
                        scope=scope,
                        router="active",
                        partition=offset % 2,
                        offset=offset // 2,
                        message_appended=at,
                        egress_offset=offset * 10 + number,
                    )
                )
                client = f"c{shard}-{scope}"
                rows["outcomes"].append(
                    outcome(one, at, done, scope=scope, shard=shard, number=number, client=client, outcome="sent")
                )
                finished[scope] = done
            if not shards:
                finished[scope] = at + routing + late
                rows["outcomes"].append(outcome(one, at, finished[scope], scope=scope, outcome="untouched"))
            late += SECOND  # a second decision is finished later, after the completion
        scope = next(iter(shape))
        completed = finished[scope]
        rows["completions"].append(
            stamped(
                completed + SECOND,
                message_id=one,
                touches=len(shape[scope]),
                message_appended=at,
                completed=completed,
            )
        )

    def _others(self, rows: Rows, noon: datetime) -> None:
        """What is no fault: a message that was sent again, a quarantined record of ingress, an instruction of it, a
        direct delivery of an old retained message, a message for a client that is offline until tomorrow; and a row of
        each other table."""
        self._sent_again(rows, noon)
        partition, offset = self.offset % 2, self.offset // 2
        self.offset += 1
        place = {"partition": partition, "offset": offset}
        if not any(
            place.items() <= row.items() for row in self.rows.get("quarantine", [])
        ):  # the first complaint stands
            rows["quarantine"].append(stamped(noon, topic=INGRESS, reason="why", at=noon, **place))
        instruction = dict(rows["instructions"][0], message_id=self.new_id(), message_appended=noon, **place)
        rows["instructions"].append(instruction)
        ago = noon - timedelta(days=100)
        rows["outcomes"].append(outcome(self.new_id(), ago, noon, shard=1, client="c", outcome="delivered"))
        rows["presence_history"].append(
            stamped(noon, client="c", event="connected", gateway="g", epoch=self._ids, seq=0, at=noon)
        )
        rows["routes_history"].append(
            stamped(noon, shard=1, route_key="a/b", op="add", effective=noon + 25 * SECOND, offset=self._ids)
        )
        said = {"message_id": "m", "event": "attempting", "agent": "a", "at": noon, "partition": 0, "offset": self._ids}
        rows["message_presence_history"].append(stamped(noon, **said))
        of_feed = {
            "feed": "f",
            "stream": f"s{self._ids}@0",
            "slot": "active",
            "adapter": "a",
            "partition": 0,
            "offset": 7,
        }
        content = {"name": "s", "epoch": 0, "sequence": 1, "part": 0, "message_sequence": 1, "crc32": 0}
        rows["feed_copies"].append(stamped(noon, **of_feed, **content, payload_bytes=0))
        rows["feed_progress"].append(stamped(noon + SECOND, **of_feed, copies=1, duplicates=0, highest=1))
        waiting = [row for row in self.rows.get("instructions", []) if row["message_id"] == self._waiting]
        for row in waiting:
            at, done = row["message_appended"], noon - 3600 * SECOND
            rows["outcomes"].append(
                outcome(self._waiting, at, done, shard=0, number=0, client="o", outcome="delivered")
            )
            rows["completions"].append(
                stamped(done + SECOND, message_id=self._waiting, touches=1, message_appended=at, completed=done)
            )
        self._message(rows, noon + 5400 * SECOND, {"routed": [0]}, 5 * MS, MS)
        rows["outcomes"].pop()
        self._waiting = rows["completions"].pop()["message_id"]

    def _sent_again(self, rows: Rows, noon: datetime) -> None:
        """A message with a derived id, and the same id once more: other places, instructions to other shards. Its first
        outcomes and completion stand."""
        again = derived_message_id("s", self.new_id())
        self._message(rows, noon + 600 * SECOND, {"routed": [1]}, 5 * MS, 20 * MS, again)
        for minutes in (11, 65):  # within the hour, and not
            kept = {name: len(rows[name]) for name in ("outcomes", "completions")}
            shape: Shape = {"routed": [1, 2]}
            self._message(rows, noon + timedelta(minutes=minutes), shape, 5 * MS, 20 * MS, again)
            for name, number in kept.items():
                del rows[name][number:]

    _waiting = ""


Shape = dict[str, list[int]]
EVERYONE = {"everyone": [0, 1, 2, 3]}
SHAPES: list[Shape] = [
    {"routed": []},
    {"routed": [1]},
    {"routed": [2, 3]},
    {"routed": [0, 2]} | EVERYONE,
    {"routed": []} | EVERYONE,
    EVERYONE | {"routed": []},
]
TABLES = (
    *("messages", "instructions", "outcomes", "completions", "presence_history", "routes_history"),
    *("message_presence_history", "feed_copies", "feed_progress", "quarantine"),
)


def stamped(appended: datetime, /, **columns: Any) -> dict[str, Any]:
    """A row with its append time, and its date by that."""
    return {**columns, "appended": appended, "date": appended.date()}


def outcome(message: str, message_at: datetime, at: datetime, **columns: Any) -> dict[str, Any]:
    row = {"shard": None, "number": None, "client": None, "qos": 0, **columns}
    return stamped(at, message_id=message, message_appended=message_at, at=at, **row)


def write(tables: str, rows: Rows) -> None:
    """Append the rows to the ledger's tables, which are made if they are not there."""
    ensure_tables(tables)
    for name, new in rows.items():
        table = DeltaTable(f"{tables}/{name}")
        write_deltalake(table, pa.Table.from_pylist(new, pa.schema(table.schema().to_arrow())), mode="append")


def rewrite(tables: str, name: str, rows: Rows) -> None:
    """A table has these rows instead of its own."""
    table = DeltaTable(f"{tables}/{name}")
    write_deltalake(table, pa.Table.from_pylist(rows[name], pa.schema(table.schema().to_arrow())), mode="overwrite")


def change(table: str, index: int, /, **columns: Any) -> Fault:
    """A row of a table has other values; a callable gets the row."""

    def fault(rows: Rows) -> None:
        row = rows[table][index]
        row.update({name: value(row) if callable(value) else value for name, value in columns.items()})

    return fault


def add(table: str, index: int, /, **columns: Any) -> Fault:
    """A row more, like another one but for some values."""

    def fault(rows: Rows) -> None:
        row = rows[table][index]
        rows[table].append(row | {name: value(row) if callable(value) else value for name, value in columns.items()})

    return fault


def remove(table: str, index: int) -> Fault:
    """A row is not there."""

    def fault(rows: Rows) -> None:
        del rows[table][index]

    return fault


def place_in_a_quiet_partition(offset: int) -> Fault:
    """A message that has a partition to itself, as it comes by once in some days."""
    return add("messages", 0, id=unknown(100 + offset), partition=9, offset=offset)


def later(column: str, by: timedelta) -> Callable[[dict[str, Any]], datetime]:
    return lambda row: row[column] + by


def unknown(number: int) -> str:
    return str(UUID(int=10**9 + number))


NULLS = {
    "messages": "source",
    "instructions": "router",
    "outcomes": "outcome",
    "completions": "touches",
    "presence_history": "event",
    "routes_history": "op",
    "message_presence_history": "agent",
    "feed_copies": "adapter",
    "feed_progress": "adapter",
    "quarantine": "reason",
}

FAULTS: list[dict[str, Fault]] = [
    {
        **{f"unique_{table}": add(table, -1) for table in TABLES if table not in ("messages", "instructions")},
        "unique_instructions": add("instructions", -2),  # that of the quarantined message, which no completion counts
        "unique_messages": add("messages", -1, id=unknown(0)),
        "unique_message_id": add("messages", 0, partition=7, offset=3),
    },
    {f"required_{table}": change(table, 0, **{column: None}) for table, column in NULLS.items()},
    {
        "message_of_instruction": add("instructions", 0, message_id=unknown(1), shard=9),
        "message_of_outcome": add("outcomes", 0, message_id=unknown(2)),
        "message_of_completion": add("completions", 0, message_id=unknown(3)),
    },
    {
        "time_messages": change("messages", 0, accepted=later("appended", 9 * SECOND)),
        "time_instructions": change("instructions", 0, appended=later("appended", -9 * SECOND)),
        "time_outcomes": change("outcomes", 1, at=later("appended", 9 * SECOND)),
        "time_completions": change("completions", 1, completed=later("appended", 9 * SECOND)),
        "time_presence_history": change("presence_history", 0, at=later("appended", 9 * SECOND)),
    },
    {"instruction_of_outcome": add("outcomes", 1, number=5)},
    {"touches": change("completions", 2, touches=3)},
    {"completion_last": add("outcomes", 3, client="c", appended=later("appended", SECOND))},
    {"outcome_of_completion": remove("outcomes", 3)},
    {"time_of_message": change("instructions", -1, message_appended=later("message_appended", -SECOND))},
    {"time_of_instruction": change("instructions", 0, appended=later("appended", 9 * SECOND))},
    {"progress_of_copy": change("feed_progress", 0, slot="backup")},
    {"offsets": change("messages", 0, partition=5)},  # it has no instructions, which would be of another place
]
"""Faults by the name of the expectation that finds each; those of an element are made on the same day."""
