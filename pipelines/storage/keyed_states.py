"""The state of each key of a fold, one text per key, in a SQLite file beside the driver of its query.

A fold by key in Python has few records per batch, so the driver does it, with one read and one write for all keys of a
batch. (`transformWithState` takes a millisecond per key: docs/performance-notes.md.)

The file records which batch of which query it has, and is written after everything that the batch publishes. So a batch
that the file has is done, and any other is folded again from the same states. If the file does not match the previous
batch (another query, another machine, a damaged file), the states are rebuilt from what the query has published on its
topic.

A key without events for a long time is forgotten, unless its state is still of use: a client that stays connected sends
no events. Before a key is forgotten, its state on the topic is ended, so that the topic does not grow forever. An index
finds these keys, a limited number per batch.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pyspark.sql import DataFrame, Row, SparkSession

from pipelines.storage.local_database import KEYS_A_QUERY, LocalDatabase, Taken, placeholders
from pipelines.storage.table_files import query_id

LAYOUT = 1
FORGOTTEN_A_BATCH = 5_000
"""How many keys per batch are checked for expiry, so that a batch after a long pause takes no longer."""

_TABLES = """
CREATE TABLE IF NOT EXISTS states (key BLOB PRIMARY KEY, state BLOB NOT NULL, heard_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS heard ON states (heard_ms);
CREATE TABLE IF NOT EXISTS decisions (batch TEXT PRIMARY KEY, decision BLOB NOT NULL) WITHOUT ROWID;
"""

PublishedStates = Callable[[SparkSession], Iterable[tuple[str, bytes, int]]]
"""Key, state, and when it was published, ms since the epoch."""

Given = TypeVar("Given")
Fold = Callable[[bytes | None, str, list[Row]], tuple[bytes | None, Iterable[Given]]]
"""`(state, key, rows of a batch in any order) -> (new state, what to publish)`; None keeps the old state."""

LastUsed = Callable[[str, bytes, int], int]
"""`(key, state, append time of the last record) -> when the state was last of use`, both ms since the epoch. For a
state that is still of use, that is now."""


class KeyedStates:
    """For one thread at a time. A key is forgotten if it had no events for `kept_s` and its state was of no use for as
    long. Raises sqlite3.Error if the file cannot be written."""

    def __init__(self, file: Path, kept_s: int, published: PublishedStates) -> None:
        self._file = LocalDatabase(file, _TABLES)
        self._kept_ms = kept_s * 1000
        self._published = published

    def take(
        self,
        batch: DataFrame,
        batch_id: int,
        key: str,
        fold: Fold[Given],
        tell: Callable[[list[Row], list[Given], str], None],
        end: Callable[[list[str]], None],
        last_used: LastUsed = lambda _key, _state, _now_ms: 0,
        is_folded: Callable[[Row], bool] = lambda _row: True,
    ) -> None:
        """Process a batch of a streaming query: few rows, each with `appended_ms`. Fold those that `is_folded` selects,
        by the column `key`, and have `tell(rows, given, batch)` publish the result; `batch` identifies the batch among
        all. Then `end(keys)` ends the keys to be forgotten. A batch that is done is skipped."""
        query = query_id(batch.sparkSession)
        if not self.begin(batch.sparkSession, query, batch_id):
            return
        rows = batch.collect()
        states, given = self.folded(filter(is_folded, rows), key, fold)
        tell(rows, given, f"{query}/{batch_id}")
        times_ms = [row.appended_ms for row in rows] or [0]
        # The oldest time: a record stamped by a clock that is ahead must not cause anything to be forgotten.
        over, lasting = self.unused(min(times_ms), states, last_used)
        if over:
            end(over)
        self.finish(query, batch_id, {**states, **dict.fromkeys(over)}, max(times_ms), lasting)

    def unused(
        self, now_ms: int, active: Mapping[str, object], last_used: LastUsed
    ) -> tuple[list[str], dict[str, int]]:
        """Of at most `FORGOTTEN_A_BATCH` keys without events for long, except those `active` just now: the keys to be
        forgotten, and when the others were last of use, ms since the epoch. Repeated calls give the same result."""
        since_ms, over, lasting = now_ms - self._kept_ms, list[str](), dict[str, int]()
        quiet = "SELECT key, state FROM states WHERE heard_ms < ? ORDER BY heard_ms, key LIMIT ?"
        for raw, state in self._database.execute(quiet, (since_ms, FORGOTTEN_A_BATCH)):
            key = raw.decode()
            if key in active:
                continue
            used_ms = last_used(key, state, now_ms)
            if used_ms < since_ms:
                over.append(key)
            else:
                lasting[key] = used_ms
        return over, lasting

    def begin(self, spark: SparkSession, query: str, batch_id: int) -> bool:
        """Have the states ready for a batch; False if they already include it."""
        has = self._file.taken
        if has == Taken(LAYOUT, query, batch_id):
            return False
        if has != Taken(LAYOUT, query, batch_id - 1):
            self._begin_anew(spark, Taken(LAYOUT, query, batch_id - 1))
        return True

    def folded(self, rows: Iterable[Row], key: str, fold: Fold[Given]) -> tuple[dict[str, bytes], list[Given]]:
        """The new states by key, and what `fold` publishes, for rows whose key is in the column `key`."""
        by_key: dict[str, list[Row]] = {}
        for row in rows:
            by_key.setdefault(row[key], []).append(row)
        known, states, given = self.known(by_key), dict[str, bytes](), list[Given]()
        for name, of_key in by_key.items():
            state, out = fold(known.get(name), name, of_key)
            if state is not None:
                states[name] = state
            given += out
        return states, given

    def finish(
        self,
        query: str,
        batch_id: int,
        states: Mapping[str, bytes | None],
        heard_ms: int,
        lasting: Mapping[str, int] | None = None,
    ) -> None:
        """Store the states of a batch, after everything it publishes is stored; None forgets a key. `heard_ms`: the
        append time of its last record, 0 if it has none. `lasting`: when states without events were last of use
        (:meth:`unused`); without it, all keys without events for long are forgotten."""
        written = {key: state for key, state in states.items() if state is not None}
        there = len(self.known(written))
        with self._database as database:
            database.execute("DELETE FROM decisions")
            self._write(database, ((key, state, heard_ms) for key, state in written.items()))
            over = [(key.encode(),) for key, state in states.items() if state is None]
            removed = max(0, database.executemany("DELETE FROM states WHERE key = ?", over).rowcount)
            if lasting is None:
                since_ms = heard_ms - self._kept_ms
                removed += database.execute("DELETE FROM states WHERE heard_ms < ?", (since_ms,)).rowcount
            else:
                used = ((used_ms, key.encode()) for key, used_ms in lasting.items())
                database.executemany("UPDATE states SET heard_ms = ? WHERE key = ?", used)
            rows = self._file.rows + len(written) - there - removed
            self._file.take(Taken(LAYOUT, query, batch_id), rows, len(written), removed)

    def decided(self, batch: str) -> bytes | None:
        """What :meth:`decide` has stored for a batch that was not finished; None if nothing."""
        row = self._database.execute("SELECT decision FROM decisions WHERE batch = ?", (batch,)).fetchone()
        return None if row is None else bytes(row[0])

    def decide(self, batch: str, decision: bytes) -> None:
        """Store, before anything is published that follows from it, what else than states and rows a batch depends on,
        so that it can be repeated alike; until the batch is finished."""
        with self._database as database:
            database.execute("INSERT OR REPLACE INTO decisions VALUES (?, ?)", (batch, decision))

    def known(self, keys: Iterable[str]) -> dict[str, bytes]:
        """The states of the given keys that have one."""
        return dict(self._rows([key.encode() for key in keys]))

    def _rows(self, keys: Sequence[bytes]) -> Iterator[tuple[str, bytes]]:
        for first in range(0, len(keys), KEYS_A_QUERY):
            some = keys[first : first + KEYS_A_QUERY]
            found = f"SELECT key, state FROM states WHERE key IN ({placeholders(len(some))})"
            for key, state in self._database.execute(found, some):
                yield key.decode(), state

    @staticmethod
    def _write(database: sqlite3.Connection, rows: Iterable[tuple[str, bytes, int]]) -> None:
        encoded = ((key.encode(), state, heard_ms) for key, state, heard_ms in rows)
        database.executemany("INSERT OR REPLACE INTO states VALUES (?, ?, ?)", encoded)

    def _begin_anew(self, spark: SparkSession, taken: Taken) -> None:
        with self._database as database:
            database.execute("DELETE FROM states")
            self._write(database, self._published(spark))
            (rows,) = database.execute("SELECT count(*) FROM states").fetchone()
            self._file.take(taken, rows, rows, 0)

    @property
    def _database(self) -> sqlite3.Connection:
        return self._file.connection
