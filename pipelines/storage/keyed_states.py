"""The state of each key of a fold, one text a key, in a SQLite file beside the driver of its query.

What a query folds key by key, in Python, is a handful of records a batch: so the driver does it, with one read and one
write for all keys of a batch. (`transformWithState` takes a millisecond for each key: docs/performance-notes.md.)

The file says which batch of which query it has. It is written after all that a batch gives out, so a batch that the
file has is done, and one that it has not is folded again from the same states. If it is not the batch before (another
query, another machine, a damaged file), the states are made anew from what the query has told: those on its topic.

A key of which nothing was heard for long is forgotten, unless its state lasts: a client that stays connected says
nothing, and is there. What the topic says of a key is ended before it is forgotten: so the topic does not grow for
ever. Both are found by an index, some keys a batch.
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
"""Keys that are looked at in a batch whether they are to be forgotten: a batch after a long pause is no longer."""

_TABLES = """
CREATE TABLE IF NOT EXISTS states (key BLOB PRIMARY KEY, state BLOB NOT NULL, heard_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS heard ON states (heard_ms);
"""

Told = Callable[[SparkSession], Iterable[tuple[str, bytes, int]]]
"""Key, state, and when it was told, ms since the epoch."""

Given = TypeVar("Given")
Fold = Callable[[bytes | None, str, list[Row]], tuple[bytes | None, Iterable[Given]]]
"""`(state, key, rows of a batch in any order) -> (new state, what is to be given out)`; None leaves the old one."""

LastUsed = Callable[[str, bytes, int], int]
"""`(key, state, append time of the last record) -> when the state was last of use`, both ms since the epoch: a state
that goes on being of use is so now."""


class KeyedStates:
    """One thread at a time. A key of which nothing was heard for `kept_s`, and whose state was of no use for as long,
    is forgotten. Raises sqlite3.Error if the file cannot be written."""

    def __init__(self, file: Path, kept_s: int, told: Told) -> None:
        self._file = LocalDatabase(file, _TABLES)
        self._kept_ms = kept_s * 1000
        self._told = told

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
        """Take a batch of a streaming query, of few rows with `appended_ms`: have those that are to be folded folded by
        the column `key`, and `tell(rows, given, batch)` give out what comes of it; `batch` names it among all batches.
        Then `end(keys)` those that are to be forgotten. A batch that is done is passed over."""
        query = query_id(batch.sparkSession)
        if not self.begin(batch.sparkSession, query, batch_id):
            return
        rows = batch.collect()
        states, given = self.folded(filter(is_folded, rows), key, fold)
        tell(rows, given, f"{query}/{batch_id}")
        heard_ms = max((row.appended_ms for row in rows), default=0)
        over, lasting = self.unused(heard_ms, states, last_used)
        if over:
            end(over)
        self.finish(query, batch_id, {**states, **dict.fromkeys(over)}, heard_ms, lasting)

    def unused(self, now_ms: int, heard: Mapping[str, object], last_used: LastUsed) -> tuple[list[str], dict[str, int]]:
        """Of the keys of which nothing was heard for long, but for those `heard` of just now, `FORGOTTEN_A_BATCH` at
        most: those to be forgotten, and when the others were last of use, ms since the epoch. The same if asked again.
        """
        since_ms, over, lasting = now_ms - self._kept_ms, list[str](), dict[str, int]()
        quiet = "SELECT key, state FROM states WHERE heard_ms < ? ORDER BY heard_ms, key LIMIT ?"
        for raw, state in self._database.execute(quiet, (since_ms, FORGOTTEN_A_BATCH)):
            key = raw.decode()
            if key in heard:
                continue
            used_ms = last_used(key, state, now_ms)
            if used_ms < since_ms:
                over.append(key)
            else:
                lasting[key] = used_ms
        return over, lasting

    def begin(self, spark: SparkSession, query: str, batch_id: int) -> bool:
        """Have the states ready for a batch; False if they have it already."""
        has = self._file.taken
        if has == Taken(LAYOUT, query, batch_id):
            return False
        if has != Taken(LAYOUT, query, batch_id - 1):
            self._begin_anew(spark, Taken(LAYOUT, query, batch_id - 1))
        return True

    def folded(self, rows: Iterable[Row], key: str, fold: Fold[Given]) -> tuple[dict[str, bytes], list[Given]]:
        """The new states by key, and what `fold` gives out, for rows of which the column `key` is the key."""
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
        """All that the batch gives out is out: take over its states; None has a key forgotten. `heard_ms`: the append
        time of its last record, 0 if it has none. `lasting`: when states of which nothing was heard were last of use
        (:meth:`unused`); without it all of which nothing was heard for long are forgotten."""
        written = {key: state for key, state in states.items() if state is not None}
        there = len(self.known(written))
        with self._database as database:
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

    def known(self, keys: Iterable[str]) -> dict[str, bytes]:
        """The states of those of the keys that have one."""
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
            self._write(database, self._told(spark))
            (rows,) = database.execute("SELECT count(*) FROM states").fetchone()
            self._file.take(taken, rows, rows, 0)

    @property
    def _database(self) -> sqlite3.Connection:
        return self._file.connection
