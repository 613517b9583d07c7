"""Spark schemas of the declarations: StructTypes of the Delta tables and of the JSON events."""

import types
import typing

import msgspec
from pyspark.sql import types as T

from schemas.events import Event
from schemas.table import Table

_PRIMITIVES: dict[type, T.DataType] = {
    str: T.StringType(),
    int: T.LongType(),
    bool: T.BooleanType(),
    float: T.DoubleType(),
}


def table_schema(table: Table) -> T.StructType:
    """The columns of a Delta table, with their comments.

    Columns are nullable in Spark, like everything that comes from a stream; the quality job checks `required`.
    """
    fields = []
    for column in table.columns:
        parsed = T.DataType.fromDDL(column.type)
        fields.append(T.StructField(column.name, parsed, True, {"comment": column.doc}))
    return T.StructType(fields)


def event_schema(kind: type[Event] | type[msgspec.Struct]) -> T.StructType:
    """The schema with which `from_json` reads an event: all fields are nullable, so that a bad record becomes nulls."""
    hints = typing.get_type_hints(kind)
    return T.StructType([T.StructField(name, _spark_type(hints[name])) for name in kind.__struct_fields__])


def _spark_type(hint: typing.Any) -> T.DataType:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return T.StringType()
    if origin in (typing.Union, types.UnionType):
        return _spark_type(next(argument for argument in arguments if argument is not type(None)))
    if origin is list:
        return T.ArrayType(_spark_type(arguments[0]))
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return event_schema(hint)
    return _PRIMITIVES[hint]
