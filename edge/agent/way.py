"""The log of every message's way, kept beside the store (M20): a table in each of the agent's files.

A step is written in the transaction of the change that it reports, so the log never differs from what has happened.
The table is bounded: the oldest steps are removed.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from edge.client.sqlite_file import create_tables
from schemas.sql import named_blocks

_SQL: Final = named_blocks(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
DETAIL_MAX: Final = 500  # characters
TRACE_MAX: Final = 10_000

# Events. The part says where: "mail" or "file" (accepted here), "outbox" (to the platform), "relay", "inbox", "mqtt"
# (accepted here, or received for MQTT clients and the broker), "onward" (not passed on), "broker" (to the broker),
# "mesh" (in a bundle, here or over peers).
ACCEPTED: Final = "accepted"
HANDED_OVER: Final = "handed over"
ACKNOWLEDGED: Final = "acknowledged"
REFUSED: Final = "refused"
EXPIRED: Final = "expired"
RECEIVED: Final = "received"
REPEATED: Final = "repeated"
NOT_RETAINED: Final = "not retained"
DROPPED: Final = "dropped"
SENDING: Final = "sending"
RELAYED: Final = "relayed"
DEFERRED: Final = "deferred"
DOUBTFUL: Final = "doubtful"
HELD: Final = "held"
WRITTEN: Final = "written"
REPORTED: Final = "reported"
CARRIED: Final = "carried"
GIVEN: Final = "given"
SEALED: Final = "sealed"
DELIVERED: Final = "delivered"


class Step(msgspec.Struct, frozen=True):
    """One step of a message's way; `at_s` by the wall clock, seconds since the epoch."""

    id: str
    at_s: float
    part: str
    event: str
    detail: str = ""


def counted(number: int, noun: str) -> str:
    """For a step's detail: `1 recipient`, `2 recipients`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class WayLog:
    """The table, in a file whose connection is given to each call. `entries`: how many steps are kept."""

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self.counts: Counter[tuple[str, str]] = Counter()
        """How many steps were written since the start, by part and event. From any thread: copy it."""

    def prepare(self, db: sqlite3.Connection) -> None:
        """Makes the table if there is none."""
        create_tables(db, _SQL["schema"])

    def add(self, db: sqlite3.Connection, steps: Iterable[Step]) -> None:
        """In the caller's transaction."""
        rows = [(step.id, step.at_s, step.part, step.event, step.detail[:DETAIL_MAX]) for step in steps]
        if rows:
            self.counts.update((part, event) for _, _, part, event, _ in rows)
            db.executemany(_SQL["add"], rows)
            db.execute(_SQL["bound"], (self._entries,))

    def newest(self, db: sqlite3.Connection, count: int) -> list[Step]:
        """The newest steps, the newest last."""
        return [Step(*row) for row in db.execute(_SQL["newest"], (count,))][::-1]

    def of_message(self, db: sqlite3.Connection, identifier: str) -> list[Step]:
        """The steps of one message, in order."""
        return [Step(*row) for row in db.execute(_SQL["of_message"], (identifier, TRACE_MAX))]
