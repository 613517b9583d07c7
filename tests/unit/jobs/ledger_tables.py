"""A small ledger for tests without Spark: Delta tables as the ledger declares them, rows given as dictionaries."""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from pipelines.arrow_schemas import arrow_schema
from pipelines.sinks import PROPERTIES
from schemas.tables import TABLES


def append(tables: str, name: str, rows: Iterable[dict[str, Any]]) -> None:
    """Rows with the columns that matter; the rest is null, and `date` that of `appended` if it is not given."""
    table = TABLES[name]
    known = [{"date": _date(row), **row} for row in rows]
    schema = arrow_schema(table)
    content = pa.Table.from_pylist([{n: row.get(n) for n in schema.names} for row in known], schema)
    uri = f"{tables}/{name}"
    if not DeltaTable.is_deltatable(uri):
        DeltaTable.create(uri, schema, partition_by=list(table.partition_by), configuration=dict(PROPERTIES))
    write_deltalake(uri, content, mode="append")


def with_a_text_that_is_not_utf8(file: Path, column: str) -> None:
    """Damages the texts of a column in a Parquet file."""
    rows = pq.ParquetFile(file).read()
    texts = pa.array([b"\xac\xff"] * rows.num_rows, pa.binary()).view(pa.string())
    pq.write_table(rows.set_column(rows.column_names.index(column), column, texts), file)


def _date(row: dict[str, Any]) -> Any:
    appended = row.get("appended")
    return appended.date() if isinstance(appended, datetime) else None
