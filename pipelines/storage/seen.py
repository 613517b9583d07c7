"""Which rows of a history table were there before: copies are told by the key of the table.

A topic may hold copies, of the other router, of a replay, of Spark's Kafka sink, and they may come days after the
first: a router that was away repeats what it had not finished. So keys are remembered for days. Spark's own operators
look through all they remember in every batch; here a batch costs what is in it, whatever is remembered: keys stand in a
SQLite file beside the driver, newest last, and are looked up by index.

No row is ever too late: a row whose key is not remembered any more is taken for a first one.
"""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.storage.local_database import KEYS_A_QUERY, LocalDatabase, Taken, placeholders

LAYOUT = 2
"""Of the file, and of what rows are told by: a file of another one is made anew from the table."""
HEARD = "appended"
BORN = "message_appended"
"""Copies share it. First in the key, it has the keys of a time stand side by side in the file."""

DIGEST_BYTES = 12
LEAST_FORGOTTEN = 1000
"""A batch forgets twice as many keys as it brings, and so many at least: whatever is old is gone in time, and after a
broker's clock has jumped no batch has to forget all of it."""

_TABLES = """
CREATE TABLE IF NOT EXISTS seen (key BLOB PRIMARY KEY, heard_ms INTEGER NOT NULL, batch INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS heard ON seen (heard_ms);
"""

Told = Callable[[Sequence[str], int], Iterable[pa.RecordBatch]]
"""`(columns, kept_s)` -> these columns of what the table has of so long before its end."""


class SeenKeys:
    """The keys of a table's rows, remembered for `kept_s` after the append time of their first record, by the clock of
    the youngest that came.

    `key`: the columns that tell rows apart. The file says which batch of which query it has. It has the keys of a batch
    before the table has its rows, so a batch that is repeated is not taken for its own copy. If it has not the batch
    before (another query, another machine, power lost), all is made anew from what the table has.

    One thread at a time. Raises sqlite3.Error if the file cannot be written.
    """

    def __init__(self, file: Path, key: Sequence[str], kept_s: int, told: Told) -> None:
        self._key = tuple(key)
        self._kept_s = kept_s
        self._told = told
        self._file = LocalDatabase(file, _TABLES)

    def columns(self, names: Iterable[str]) -> list[str]:
        """Those of a table's columns that :meth:`first` looks at."""
        return [name for name in names if name in {*self._key, HEARD, BORN}]

    def first(self, rows: pa.Table, query: str, batch_id: int) -> pa.Array:
        """By row of a batch, in the order of its topic, whether it is no copy of an earlier one; from then on these are
        remembered."""
        self._begin(query, batch_id)
        at = _first_of_each(rows, self._key)
        firsts = rows.take(at)
        keys = keys_of(firsts, self._key)
        known = self._known(keys, batch_id)
        is_first = [False] * rows.num_rows
        for place, key in zip(at.to_pylist(), keys, strict=True):
            is_first[place] = key not in known
        news = [(key, ms, batch_id) for key, ms in zip(keys, _ms(firsts[HEARD]), strict=True) if key not in known]
        self._remember(news, Taken(LAYOUT, query, batch_id), rows.num_rows - len(news))
        return pa.array(is_first, pa.bool_())

    def _begin(self, query: str, batch_id: int) -> None:
        if self._file.taken in (Taken(LAYOUT, query, batch_id), Taken(LAYOUT, query, batch_id - 1)):
            return
        with self._file.connection as database:
            self._file.forget()
            database.execute("DELETE FROM seen")
        inserted = 0
        for rows in self._told([*self._key, HEARD, BORN], self._kept_s):
            table = pa.Table.from_batches([rows])
            keys = zip(keys_of(table, self._key), _ms(table[HEARD]), strict=True)
            with self._file.connection as database:  # each by itself: all at once would be a file of its own size
                inserted += _insert(database, ((key, ms, batch_id - 1) for key, ms in keys))
        with self._file.connection:
            self._file.take(Taken(LAYOUT, query, batch_id - 1), inserted, inserted, 0)

    def _known(self, keys: Sequence[bytes], batch_id: int) -> set[bytes]:
        """Those of the keys that a batch before this one has brought."""
        found: set[bytes] = set()
        for first in range(0, len(keys), KEYS_A_QUERY):
            some = keys[first : first + KEYS_A_QUERY]
            wanted = f"SELECT key FROM seen WHERE key IN ({placeholders(len(some))}) AND batch <> ?"
            found.update(key for (key,) in self._file.connection.execute(wanted, [*some, batch_id]))
        return found

    def _remember(self, news: Sequence[tuple[bytes, int, int]], taken: Taken, copies: int) -> None:
        with self._file.connection as database:
            inserted, removed = _insert(database, news), 0
            if news:
                oldest = max(ms for _, ms, _ in news) - self._kept_s * 1000
                removed = database.execute(
                    "DELETE FROM seen WHERE key IN (SELECT key FROM seen WHERE heard_ms < ? ORDER BY heard_ms LIMIT ?)",
                    (oldest, max(LEAST_FORGOTTEN, 2 * len(news))),
                ).rowcount
            self._file.take(taken, self._file.rows + inserted - removed, inserted, removed, copies)


def keys_of(rows: pa.Table, key: Sequence[str]) -> list[bytes]:
    """What a row is told by: when its message was appended, if it is of one, and a digest of the `key` columns."""
    born = [ms.to_bytes(6, "big") for ms in _ms(rows[BORN])] if BORN in rows.column_names else [b""] * rows.num_rows
    values = zip(*(_plain(rows[name]) for name in key), strict=True)
    return [ms + _digest(of) for ms, of in zip(born, values, strict=True)]


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """Times as numbers: they read the same from every file, whoever wrote it."""
    if not pa.types.is_timestamp(column.type):
        return list(column.to_pylist())
    return list(column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist())


def _digest(values: tuple[object, ...]) -> bytes:
    return blake2b(repr(values).encode(), digest_size=DIGEST_BYTES).digest()


def _first_of_each(rows: pa.Table, key: Sequence[str]) -> pa.Array:
    """Where the first row of each key is, ascending."""
    places = pa.array(range(rows.num_rows), pa.int64())
    of = rows.select(list(key)).append_column("place", places)
    firsts = of.group_by(list(key), use_threads=False).aggregate([("place", "min")])["place_min"]
    return firsts.combine_chunks().sort()


def _ms(times: pa.ChunkedArray) -> list[int]:
    return [us // 1000 for us in times.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()]


def _insert(database: sqlite3.Connection, rows: Iterable[tuple[bytes, int, int]]) -> int:
    """How many were not there."""
    return max(0, database.executemany("INSERT OR IGNORE INTO seen VALUES (?, ?, ?)", rows).rowcount)
