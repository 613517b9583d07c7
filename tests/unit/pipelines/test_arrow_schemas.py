"""Arrow's view of the declared tables, nested types too."""

import pyarrow as pa
import pytest

from pipelines.arrow_schemas import arrow_schema, arrow_type
from schemas.table import Table
from schemas.tables import PRESENCE, ROUTES, TABLES

TIME = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("long", pa.int64()),
        ("array<string>", pa.list_(pa.string())),
        ("array<array<int>>", pa.list_(pa.list_(pa.int32()))),
        ("struct<a:int,b:array<struct<c:date,d:double>>,e:boolean>", pa.struct([
            ("a", pa.int32()), ("b", pa.list_(pa.struct([("c", pa.date32()), ("d", pa.float64())]))), ("e", pa.bool_()),
        ])),
    ],
)  # fmt: skip
def test_types(text, wanted):
    assert arrow_type(text) == wanted


@pytest.mark.parametrize("text", ["decimal(3,1)", "array<>", "map<string,int>", ""])
def test_other_types_are_refused(text):
    with pytest.raises(KeyError):
        arrow_type(text)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_table_has_its_columns(table: Table) -> None:
    assert arrow_schema(table).names == [column.name for column in table.columns]


def test_arrays_of_structs():
    targets = arrow_schema(ROUTES).field("targets").type.value_type
    assert {field.name: field.type for field in targets} == {
        "shard": pa.int32(), "effective_from": TIME, "effective_until": TIME,
    }  # fmt: skip
    attachments = arrow_schema(PRESENCE).field("attachments").type.value_type
    assert (attachments.field("live").type, attachments.field("epoch").type) == (pa.bool_(), pa.int64())
