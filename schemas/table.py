"""What a Delta table of the ledger consists of (:mod:`schemas.tables`)."""

from typing import NamedTuple

DATE_DOC = "UTC date of `appended`; partition column"


class Column(NamedTuple):
    """`type` is a Spark SQL type name; `required` columns are never null."""

    name: str
    type: str
    doc: str
    required: bool = False


class Table(NamedTuple):
    """`partition_by`: columns. `key`: columns of which no two rows have the same values; nulls are equal to each
    other."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    partition_by: tuple[str, ...]
    key: tuple[str, ...]
