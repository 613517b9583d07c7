"""Arrow schemas of the Delta tables, for readers and writers without Spark."""

import re

import pyarrow as pa

from schemas.table import Table

_PRIMITIVES = {
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}


def arrow_schema(table: Table) -> pa.Schema:
    """The columns of a Delta table. All are nullable, as in Spark."""
    return pa.schema([(column.name, arrow_type(column.type)) for column in table.columns])


def arrow_type(text: str) -> pa.DataType:
    """The type that Spark SQL writes as `text`: a primitive one, `array<…>` or `struct<name:…,…>`. Raises KeyError for
    any other."""
    nested = re.fullmatch(r"(array|struct)<(.*)>", text)
    if nested is None:
        return _PRIMITIVES[text]
    kind, inner = nested.groups()
    if kind == "array":
        return pa.list_(arrow_type(inner))
    fields = (field.partition(":") for field in _split(inner))
    return pa.struct([(name, arrow_type(field_type)) for name, _, field_type in fields])


def _split(fields: str) -> list[str]:
    """The fields of a struct, split at commas that are not within a nested type."""
    parts, depth, start = [], 0, 0
    for at, character in enumerate(fields):
        depth += (character == "<") - (character == ">")
        if character == "," and not depth:
            parts.append(fields[start:at])
            start = at + 1
    return [*parts, fields[start:]]
