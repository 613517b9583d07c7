"""Reads the ledger with SQL and without Spark: DuckDB over the current Delta tables.

A reader sees one snapshot of each table, taken when the reader is created. Tables that have not been written yet do not
exist, nor do views over them.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from importlib import resources
from itertools import takewhile
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from pyarrow.dataset import Dataset

from jobs.errors import QueryError, TableUnreadable
from jobs.query.datasets import dataset
from jobs.query.values import NUMBERS, Value, expression, reader
from jobs.stack.missing import why_no_tables
from pipelines.arrow_schemas import arrow_schema
from pipelines.storage.table_files import READ_ERRORS
from schemas.sql import named_blocks
from schemas.table import Table
from schemas.tables import ROUTES, TABLES

BATCH = 1_000
"""Rows read at a time for printing."""
QUOTED = re.compile(r"""'[^']*'|"[^"]*"|--[^\n]*""")
VIEW_OF = re.compile(r"\{(\w+)\}")
PERCENTILE_OF = re.compile(r"\bpercentile\((\w+), ([0-9.]+)\)")
PERCENTILES = {
    "duckdb": r"quantile_cont(\1, \2)",
    "spark": r"percentile(\1, \2)",
    "polars": r"quantile_cont(\1, \2)",
    "datafusion": r"percentile_cont(\2) WITHIN GROUP (ORDER BY \1)",
}
"""The value that a share of the values do not exceed, interpolated, in the SQL of each engine."""
MICROS_OF = re.compile(r"\bmicros\(([^()]+)\)")
MICROS = {
    "duckdb": r"epoch_us(\1)",
    "spark": r"unix_micros(\1)",
    "polars": r"CAST(\1 AS BIGINT)",
    "datafusion": r"CAST(\1 AS BIGINT)",
}
"""A time as microseconds since the epoch (the resolution of all times in the ledger), in the SQL of each engine."""

UNREADABLE = (*READ_ERRORS, UnicodeDecodeError)
"""The exceptions of reading rows beside DuckDB's own. A damaged file may have text that is not UTF-8."""

Parameters = Sequence[Any] | Mapping[str, Any]
"""Values for each `?` of a statement, or for each `$name`."""


class Rows(NamedTuple):
    """The result of a query: column names, and rows in the same order. Timestamps are UTC."""

    columns: list[str]
    rows: list[tuple[Any, ...]]

    def without(self, column: str) -> "Rows":
        """The same rows without one column."""
        kept = [n for n, name in enumerate(self.columns) if name != column]
        return Rows([self.columns[n] for n in kept], [tuple(row[n] for n in kept) for row in self.rows])


class Result(NamedTuple):
    """The result of a statement, for printing: column names, which may repeat; whether each column is numeric; and rows
    as :mod:`jobs.query.values` has them, read lazily."""

    columns: list[str]
    numeric: list[bool]
    rows: Iterator[tuple[Value, ...]]


class View(NamedTuple):
    """`columns` are names and types as in DuckDB."""

    name: str
    doc: str
    columns: list[tuple[str, str]]


class Dates(NamedTuple):
    """UTC dates from `first` to `last`, inclusive; to the newest if `last` is None."""

    first: date
    last: date | None = None


class Memory(NamedTuple):
    """DuckDB's memory limit in megabytes; the rest goes to files in the directory `spill`. If that is "", a query that
    needs more fails."""

    megabytes: int
    spill: str


class LedgerReader:
    """SQL over the Delta tables under `tables`, a directory or an object store's URI, and over the named `views`.

    With `dates`, tables with a column `date` have only rows of these dates, and only their files are read; tables that
    have not been written yet exist and are empty. If `memory` was given, close the reader to delete spilled files.
    `names`: the tables that are opened, if not all; `threads`: how many DuckDB uses, if not one a processor. Raises
    TableUnreadable.
    """

    def __init__(
        self,
        tables: str,
        views: Mapping[str, str] | None = None,
        dates: Dates | None = None,
        memory: Memory | None = None,
        names: Collection[str] = TABLES.keys(),
        threads: int | None = None,
    ) -> None:
        self._place = tables
        self._database = duckdb.connect()
        self._database.execute("SET TimeZone = 'UTC'")
        self._database.execute("SET python_enable_replacements = false")  # a name is never a variable here
        if memory is not None:
            self._database.execute(f"SET memory_limit = '{memory.megabytes}MB'")
            self._database.execute("SET temp_directory = ?", [memory.spill])
        if threads is not None:
            self._database.execute(f"SET threads = {threads}")
        opened = {name: rows for name in TABLES if name in names if (rows := _opened(tables, name, dates)) is not None}
        self.tables = list(opened)
        """Names of the existing tables."""
        for name, rows in opened.items():
            # For `as_of`, deltalake converts texts to a type that pyarrow cannot compare: give DuckDB a scanner, so
            # that it filters by itself.
            self._database.register(name, rows.scanner() if name == ROUTES.name else rows)
        if dates is not None:
            for name in set(names) - set(self.tables):
                self._database.register(name, arrow_schema(TABLES[name]).empty_table())
        views = installed_views() if views is None else views
        self.views = [name for name, sql in views.items() if self._create_view(name, sql)]
        """Names of the views that could be created."""

    def close(self) -> None:
        """Close the reader; it cannot be used any more."""
        self._database.close()

    def interrupt(self) -> None:
        """Makes the query that runs in another thread fail; one that has not begun yet is not affected."""
        self._database.interrupt()

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> Rows:
        """The result of one statement; `parameters` are the values of `?`. Raises QueryError, naming the existing
        tables; TableUnreadable."""
        with _as_query_errors(sql, self._there_are):
            relation: duckdb.DuckDBPyRelation | None = self._database.sql(sql, params=list(parameters))
            if relation is None:
                return Rows([], [])
            result = relation.to_arrow_table()
            columns = [column.to_pylist() for column in result.columns]
        return Rows(result.column_names, list(zip(*columns, strict=True)))

    def results(self, sql: str, parameters: Parameters = (), most: int | None = None) -> Iterator[Result]:
        """The results of statements, one after the other, each with at most `most` rows. A statement is executed when
        its result is requested; one without a result, such as SET, is skipped.

        Raises QueryError, also while rows are read.
        """
        with _as_query_errors(sql, self._there_are):
            statements = self._database.extract_statements(sql)
        if not statements:
            raise QueryError("the SQL contains no statement, only comments or nothing: write a statement")
        for statement in statements:
            with _as_query_errors(sql, self._there_are):
                relation = self._database.sql(_bare(statement.query), params=parameters or None)
                if relation is None or not _has_result(relation):
                    continue
                texts = ", ".join(f"{expression(kind, f'#{n}')} AS c{n}" for n, kind in enumerate(relation.types, 1))
                shown = relation.project(texts)
                shown = shown if most is None else shown.limit(most)
                columns, kinds = list(relation.columns), list(relation.types)
            yield Result(columns, [kind.id in NUMBERS for kind in kinds], self._read(sql, shown, kinds))

    def _read(self, sql: str, relation: duckdb.DuckDBPyRelation, kinds: Sequence[Any]) -> Iterator[tuple[Value, ...]]:
        readers = [reader(kind) for kind in kinds]
        with _as_query_errors(sql, self._there_are):
            for batch in relation.to_arrow_reader(BATCH):
                columns = [
                    [read(value) for value in column.to_pylist()]
                    for read, column in zip(readers, batch.columns, strict=True)
                ]
                yield from zip(*columns, strict=True)

    def _create_view(self, name: str, sql: str) -> bool:
        """Creates the view; False if a table or column it reads is missing."""
        statement = sql.strip().rstrip(";")
        if not statement.upper().startswith("CREATE"):
            statement = f'CREATE VIEW "{name}" AS {statement}'
        try:
            self._database.execute(statement)
        except (duckdb.CatalogException, duckdb.BinderException):
            return False
        return True

    def _there_are(self) -> str:
        return (
            f"the tables and views are: {', '.join([*self.tables, *self.views])}"
            if self.tables
            else why_no_tables(self._place)
        )


def _bare(statement: str) -> str:
    """A statement without its semicolon and trailing comments, so that it can be nested in another."""
    text = statement.encode()
    for at, kind in reversed(duckdb.tokenize(statement)):
        if kind != duckdb.token_type.comment and text[at : at + 1] != b";":
            break
        text = text[:at]
    return text.decode().rstrip()


def _has_result(relation: duckdb.DuckDBPyRelation) -> bool:
    """False for a statement such as SET, whose only result is that it succeeded."""
    return bool(relation.columns) and list(relation.columns) != ["Success"]


@contextmanager
def _as_query_errors(sql: str, there_are: Callable[[], str]) -> Iterator[None]:
    """Turns DuckDB errors into QueryError: one sentence, and what may have been meant; those of reading files into
    TableUnreadable."""
    try:
        yield
    except duckdb.CatalogException as error:
        raise QueryError(f"{_first_line(error)}; {there_are()}") from error
    except duckdb.ParserException as error:
        hint = _quote_hint(sql) or "correct the SQL there: it must be that of DuckDB"
        raise QueryError(f"{_first_line(error)}; {hint}") from error
    except duckdb.Error as error:
        raise QueryError(_with_hint(error)) from error
    except UNREADABLE as error:
        raise unreadable("a table", error) from error


@contextmanager
def reading(table: str) -> Iterator[None]:
    """What goes wrong while the table's log is read becomes TableUnreadable."""
    try:
        yield
    except READ_ERRORS as error:
        raise unreadable(f"table {table}", error) from error


def unreadable(what: str, error: Exception) -> TableUnreadable:
    """The error of reading `what`, a table, in one sentence."""
    (reason, *_) = str(error).splitlines() or [type(error).__name__]
    return TableUnreadable(
        f"{what} cannot be read ({reason}): try again in a few seconds; if it stays so, a file of the table is damaged "
        f"or its store cannot be reached"
    )


def _quote_hint(sql: str) -> str:
    """A hint if the SQL seems to use unquoted columns whose names are SQL keywords; before a number `limit` is not a
    column."""
    columns = {column.name for table in TABLES.values() for column in table.columns}
    asked = duckdb.connect().execute(
        "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'"
    )
    words = sorted(columns & {name for (name,) in asked.fetchall()})
    plain = QUOTED.sub("", sql)
    used = [f'"{word}"' for word in words if re.search(rf"\b{word}\b(?!\s*\d)", plain, re.IGNORECASE)]
    return f"put column names that are SQL keywords into double quotes: {', '.join(used)}" if used else ""


def _opened(tables: str, name: str, dates: Dates | None) -> Dataset | None:
    """The table as it is now; None if there is none. Raises TableUnreadable."""
    uri = f"{tables}/{name}"
    with reading(name):
        return _dataset(uri, TABLES[name], dates) if DeltaTable.is_deltatable(uri) else None


def _dataset(uri: str, table: Table, dates: Dates | None) -> Dataset:
    if dates is None or "date" not in table.partition_by:
        return _with_all_columns(dataset(uri), table)
    wanted = [("date", ">=", str(dates.first)), *([("date", "<=", str(dates.last))] if dates.last else [])]
    return _with_all_columns(dataset(uri, file_pruning_predicate=wanted), table)


def _with_all_columns(rows: Dataset, table: Table) -> Dataset:
    """Adds columns that a table of an earlier version lacks, as null, until the ledger adds them at its next start."""
    missing = [field for field in arrow_schema(table) if field.name not in rows.schema.names]
    return rows.replace_schema(pa.schema([*rows.schema, *missing])) if missing else rows


def installed_views(engine: str = "duckdb") -> dict[str, str]:
    """The views in `jobs/query/views.sql`, in the dialect of `duckdb`, `spark`, `polars` or `datafusion`, the SQL of
    deltalake."""
    views = installed_blocks("jobs.query", "views.sql")
    plain = {
        name: PERCENTILE_OF.sub(PERCENTILES[engine], MICROS_OF.sub(MICROS[engine], sql)) for name, sql in views.items()
    }
    return {
        name: VIEW_OF.sub(lambda view: f"({_without_comments(plain[view[1]])})", sql) for name, sql in plain.items()
    }


def described_views() -> list[View]:
    """The same views with their columns, described by their leading comments; works without tables."""
    database = duckdb.connect()
    for table in TABLES.values():
        database.register(table.name, arrow_schema(table).empty_table())
    views = []
    for name, sql in installed_views().items():
        relation = database.sql(sql)
        lines = [line.removeprefix("--").strip() for line in takewhile(_is_comment, sql.strip().splitlines())]
        types = [str(kind).lower() for kind in relation.types]
        views.append(View(name, " ".join(lines), list(zip(relation.columns, types, strict=True))))
    return views


def _without_comments(sql: str) -> str:
    return "\n".join(line for line in sql.splitlines() if not _is_comment(line))


def _is_comment(line: str) -> bool:
    return line.startswith("--")


def installed_blocks(package: str, file: str) -> dict[str, str]:
    """The named blocks of an SQL file installed with the modules of `package`."""
    return named_blocks(resources.files(package).joinpath(file).read_text())


def _first_line(error: duckdb.Error) -> str:
    """The reason without DuckDB's error class, as in `Catalog Error: Table with name x does not exist!`."""
    line = str(error).strip().splitlines()[0]
    return line.partition(" Error: ")[2].rstrip("!") or line


def _with_hint(error: duckdb.Error) -> str:
    """The reason, and DuckDB's suggestion of what was meant: `Candidate bindings: "id", …`."""
    hints = [line.strip() for line in str(error).splitlines()[1:] if line.startswith("Candidate bindings")]
    return "; ".join([_first_line(error), *hints])
