"""Which rows of a history table existed before: copies are recognised by the table's key.

A topic may hold copies (from the other router, a rerun, or Spark's Kafka sink), even days after the first record: a
router that was down repeats what it had not finished. So keys are remembered for days. Spark's own operators scan
everything they remember in every batch. Here a batch costs only what is in it: keys are in a SQLite file beside the
driver, newest last, and are looked up by index.

No row is ever too late: a row whose key is no longer remembered counts as a first one.
"""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.storage.local_database import KEYS_A_QUERY, LocalDatabase, Taken, placeholders

LAYOUT = 2
LAYOUT_WITH_NUMBER = 3
"""Versions of the file's layout and of how keys are made: of tables whose key has no number, and has one. A file of
another version is rebuilt from the table."""
HEARD = "appended"
BORN = "message_appended"
NUMBER = "sequence"
"""All copies share them. As the first part of the key, either keeps keys of the same time together in the file: a batch
then touches few of its pages. Of a table whose key has a number, the number is taken; the digest is then of the other
columns, and made once in a batch for all rows that share them."""

DIGEST_BYTES = 12
ROWS_A_STATEMENT = 100
"""Inserted at once: one by one they take half as long again."""
LEAST_FORGOTTEN = 1000
"""A batch forgets at most twice as many keys as it brings, or this many if that is more. So everything old is forgotten
in time, and after a jump of the broker's clock no batch has to forget everything at once."""

_ROW = "(?, ?, ?)"
_INSERT = f"INSERT OR IGNORE INTO seen VALUES {_ROW}"
_INSERT_MANY = _INSERT + f", {_ROW}" * (ROWS_A_STATEMENT - 1)

_TABLES = """
CREATE TABLE IF NOT EXISTS seen (key BLOB PRIMARY KEY, heard_ms INTEGER NOT NULL, batch INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS heard ON seen (heard_ms);
"""

RecentRows = Callable[[Sequence[str], int], Iterable[pa.RecordBatch]]
"""`(columns, kept_s)` -> these columns of the table's rows of the last `kept_s`."""


class SeenKeys:
    """The keys of a table's rows, remembered for `kept_s` after the append time of their first record, measured by the
    youngest record so far.

    `key`: the columns that identify a row. The file records which batch of which query it has. It has the keys of a
    batch before the table has its rows, so it stores the batch of each key, and a repeated batch is not taken for a
    copy of itself. If the file does not match the previous batch (another query, another machine, a power failure), it
    is rebuilt from the table.

    For one thread at a time. Raises sqlite3.Error if the file cannot be written.
    """

    def __init__(self, file: Path, key: Sequence[str], kept_s: int, recent_rows: RecentRows) -> None:
        self._key = tuple(key)
        self._layout = LAYOUT_WITH_NUMBER if NUMBER in key else LAYOUT
        self._kept_s = kept_s
        self._recent_rows = recent_rows
        self._file = LocalDatabase(file, _TABLES)

    def columns(self, names: Iterable[str]) -> list[str]:
        """The table's columns that :meth:`first` needs."""
        return [name for name in names if name in {*self._key, HEARD, BORN}]

    def first(self, rows: pa.Table, query: str, batch_id: int) -> pa.Array:
        """For each row of a batch, in topic order, whether it is no copy of an earlier row. Its keys are remembered
        from then on."""
        self._begin(query, batch_id)
        at = _first_of_each(rows, self._key)
        firsts = rows.take(at)
        keys = keys_of(firsts, self._key)
        known = self._known(keys, batch_id)
        is_first = [False] * rows.num_rows
        for place, key in zip(at.to_pylist(), keys, strict=True):
            is_first[place] = key not in known
        news = [(key, ms, batch_id) for key, ms in zip(keys, _ms(firsts[HEARD]), strict=True) if key not in known]
        self._remember(news, Taken(self._layout, query, batch_id), rows.num_rows - len(news))
        return pa.array(is_first, pa.bool_())

    def _begin(self, query: str, batch_id: int) -> None:
        if self._file.taken in (Taken(self._layout, query, batch_id), Taken(self._layout, query, batch_id - 1)):
            return
        with self._file.connection as database:
            self._file.forget()
            database.execute("DELETE FROM seen")
        inserted = 0
        for rows in self._recent_rows([*self._key, HEARD, BORN], self._kept_s):
            table = pa.Table.from_batches([rows])
            keys = zip(keys_of(table, self._key), _ms(table[HEARD]), strict=True)
            with self._file.connection as database:  # one by one: a single transaction would double the file
                inserted += _insert(database, [(key, ms, batch_id - 1) for key, ms in keys])
        with self._file.connection:
            self._file.take(Taken(self._layout, query, batch_id - 1), inserted, inserted, 0)

    def _known(self, keys: Sequence[bytes], batch_id: int) -> set[bytes]:
        """The given keys that an earlier batch has brought."""
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
    """The key that identifies a row: its number, and a digest of the other `key` columns; or the append time of its
    message, if it has one, and a digest of all `key` columns."""
    if NUMBER in key:
        digests, rest = _Digests(), [name for name in key if name != NUMBER]
        numbers: list[int] = rows[NUMBER].to_pylist()
        return [
            number.to_bytes(8, "big") + digests[of] for number, of in zip(numbers, _tuples(rows, rest), strict=True)
        ]
    return [first + _digest(of) for first, of in zip(_together(rows), _tuples(rows, key), strict=True)]


class _Digests(dict[tuple[object, ...], bytes]):
    """Of values that many rows share."""

    def __missing__(self, values: tuple[object, ...]) -> bytes:
        made = self[values] = _digest(values)
        return made


def _tuples(rows: pa.Table, names: Sequence[str]) -> Iterable[tuple[object, ...]]:
    return zip(*(_plain(rows[name]) for name in names), strict=True)


def _together(rows: pa.Table) -> list[bytes]:
    if BORN in rows.column_names:
        return [ms.to_bytes(6, "big") for ms in _ms(rows[BORN])]
    return [b""] * rows.num_rows


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """Times as numbers, which read the same from every file, whoever wrote it."""
    if not pa.types.is_timestamp(column.type):
        return list(column.to_pylist())
    return list(column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist())


def _digest(values: tuple[object, ...]) -> bytes:
    return blake2b(repr(values).encode(), digest_size=DIGEST_BYTES).digest()


def _first_of_each(rows: pa.Table, key: Sequence[str]) -> pa.Array:
    """The positions of the first row of each key, ascending."""
    places = pa.array(range(rows.num_rows), pa.int64())
    of = rows.select(list(key)).append_column("place", places)
    firsts = of.group_by(list(key), use_threads=False).aggregate([("place", "min")])["place_min"]
    return firsts.combine_chunks().sort()


def _ms(times: pa.ChunkedArray) -> list[int]:
    return [us // 1000 for us in times.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()]


def _insert(database: sqlite3.Connection, rows: Sequence[tuple[bytes, int, int]]) -> int:
    """How many were new."""
    inserted, whole = 0, len(rows) - len(rows) % ROWS_A_STATEMENT
    for first in range(0, whole, ROWS_A_STATEMENT):
        some = [value for row in rows[first : first + ROWS_A_STATEMENT] for value in row]
        inserted += database.execute(_INSERT_MANY, some).rowcount
    return inserted + max(0, database.executemany(_INSERT, rows[whole:]).rowcount)
