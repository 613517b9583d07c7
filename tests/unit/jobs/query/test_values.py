"""Every value that DuckDB can return, in each format of `waystation query`: exact, and valid in its format."""

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.cli.results import Format, csv_lines, show
from jobs.output import bytes_text, json_text
from jobs.query.ledger_reader import LedgerReader, Result
from jobs.query.values import NESTED, NUMBERS, expression, iso_time, reader, to_cell, to_csv, to_json, unique

PLAIN = duckdb.connect()

EXAMPLES = {
    "array": "[1, NULL]::INTEGER[2]",
    "bigint": "(-9223372036854775808)::BIGINT",
    "bignum": "'123456789012345678901234567890123456789012345678901234567890'::BIGNUM",
    "bit": "'0101'::BIT",
    "blob": r"'\xAA\x00a\x5C\xC3\xA9\x22'::BLOB",
    "boolean": "true",
    "date": "DATE '2026-01-02'",
    "decimal": "1.10::DECIMAL(38, 2)",
    "double": "1e300::DOUBLE",
    "enum": "'a,b'::ENUM('a,b', 'c')",
    "float": "0.1::FLOAT",
    "geometry": "'POINT(1 2)'::GEOMETRY",
    "hugeint": "170141183460469231731687303715884105727::HUGEINT",
    "integer": "1::INTEGER",
    "interval": "INTERVAL 90 SECOND",
    "list": "[TIMESTAMPTZ '2026-01-02 03:04:05+00', NULL]",
    "map": "MAP {DATE '2026-01-02': 'x'}",
    "null": "NULL",
    "smallint": "1::SMALLINT",
    "struct": r"{'a': '\xAA'::BLOB, 'b': 'NaN'::DOUBLE, 'c': [1.5::DECIMAL(9, 2)], 'd': INTERVAL 1 DAY}",
    "time": "TIME '24:00:00'",
    "time with time zone": "'12:00:00+05:30'::TIMETZ",
    "time_ns": "'12:00:00.123456789'::TIME_NS",
    "timestamp": "TIMESTAMP '2026-01-02 03:04:05.6'",
    "timestamp with time zone": "TIMESTAMPTZ '2026-01-02 03:04:05+00'",
    "timestamp_ms": "'2026-01-02 03:04:05.678'::TIMESTAMP_MS",
    "timestamp_ns": "'2026-01-02 03:04:05.123456789'::TIMESTAMP_NS",
    "timestamp_s": "'2026-01-02 03:04:05'::TIMESTAMP_S",
    "timestamptz_ns": "'2026-01-02 03:04:05.123456789'::TIMESTAMPTZ_NS",
    "tinyint": "(-128)::TINYINT",
    "tuple": "row(1, 'a', DATE 'infinity')",
    "type": "get_type(1)",
    "ubigint": "18446744073709551615::UBIGINT",
    "uhugeint": "340282366920938463463374607431768211455::UHUGEINT",
    "uinteger": "1::UINTEGER",
    "union": "union_value(a := TIMESTAMPTZ '2026-01-02 03:04:05+00')",
    "usmallint": "1::USMALLINT",
    "utinyint": "255::UTINYINT",
    "uuid": "'0198c0de-0000-7000-8000-000000000000'::UUID",
    "varchar": "'a\"b'",
    "variant": "{'a': 1}::VARIANT",
}
"""A value of every type, by DuckDB's id of the type."""

BEYOND_PYTHON = (
    "DATE '200000-01-01'", "DATE 'infinity'", "DATE '-infinity'", "DATE '0044-03-15 (BC)'", "TIMESTAMP '-infinity'",
    "TIMESTAMPTZ '290000-01-01 00:00:00+00'", "TIMESTAMPTZ 'infinity'", "INTERVAL '1 year 2 months 3 days 04:05:06.7'",
    "'NaN'::DOUBLE", "'inf'::FLOAT", "'-inf'::DOUBLE", "'infinity'::TIMESTAMP_NS", "-0.0::DOUBLE",
)  # fmt: skip

AS_PRINTED = {
    "INTERVAL 90 SECOND": ("00:01:30", '"00:01:30"'),
    "TIMESTAMPTZ '2026-01-02 03:04:05+00'": ("2026-01-02T03:04:05.000000Z", '"2026-01-02T03:04:05.000000Z"'),
    "DATE '200000-01-01'": ("200000-01-01", '"200000-01-01"'),
    "'NaN'::DOUBLE": ("nan", "null"),
    "1.10::DECIMAL(38, 2)": ("1.10", "1.10"),
    "0.1::FLOAT": ("0.1", "0.1"),
    "true": ("true", "true"),
    "[1, NULL]::INTEGER[2]": ("[1, null]", "[1, null]"),
    r"'h\xC3\xA9\xFF'::BLOB": (r"hé\xff", r'"h\\xC3\\xA9\\xFF"'),
    "union_value(a := TIMESTAMPTZ '2026-01-02 03:04:05+00')": (
        '{"a": "2026-01-02T03:04:05.000000Z"}', '{"a": "2026-01-02T03:04:05.000000Z"}',
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> LedgerReader:
    return LedgerReader(str(tmp_path_factory.mktemp("nothing")))


def printed(ledger: LedgerReader, sql: str) -> Any:
    (result,) = ledger.results(f"SELECT {sql} AS x")
    ((value,),) = result.rows
    return value


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def test_there_is_an_example_of_every_type() -> None:
    """A new type of DuckDB fails here: give it an example."""
    database = duckdb.connect()
    asked = database.execute("SELECT DISTINCT lower(logical_type) FROM duckdb_types() WHERE database_name = 'system'")
    names = {name for (name,) in asked.fetchall()}
    assert names <= set(EXAMPLES)
    assert set(EXAMPLES) == {database.sql(f"SELECT {sql}").types[0].id for sql in EXAMPLES.values()}
    assert (NESTED | NUMBERS) - set(EXAMPLES) == {"varint", "row"}, "other names of the same"


@pytest.mark.parametrize("value", [*EXAMPLES.values(), *BEYOND_PYTHON])
def test_every_value_can_be_printed(empty: LedgerReader, value: str) -> None:
    """Alone and within others: as text without a word of Python's, as valid JSON, as a field of CSV."""
    ways = ("{}", "[{}, NULL]", "{{'a': {}}}", "MAP {{1: {}}}", "row({})", "[[{}]]")
    (result,) = empty.results("SELECT " + ", ".join(way.format(value) for way in ways))
    ((*values,),) = result.rows
    for one in values:
        check_formats(one)


def check_formats(found: Any) -> None:
    json.loads(to_json(found), parse_constant=no_constant)
    for text in (to_cell(found), to_csv(found), to_json(found)):
        for word in ("datetime", "Decimal(", "MonthDayNano", "None", "b'"):
            assert word not in text
    assert list(csv.reader(io.StringIO(to_csv(found) + "\n"))) == (
        [[to_csv_text(found)]] if found is not None else [[]]
    )


def to_csv_text(value: Any) -> str:
    field = to_csv(value)
    return field[1:-1].replace('""', '"') if field.startswith('"') else field


@pytest.mark.parametrize(("sql", "shown"), AS_PRINTED.items())
def test_as_printed(empty: LedgerReader, sql: str, shown: tuple[str, str]) -> None:
    found = printed(empty, sql)
    assert (to_cell(found), to_json(found)) == shown


@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - NESTED - {"null"}))
def test_csv_can_be_cast_back(empty: LedgerReader, tmp_path: Path, name: str) -> None:
    """Read with the options of docs/analysts.md, and cast to its type."""
    if name == "type":
        return  # no text can be cast to it
    sql = EXAMPLES[name]
    kind = PLAIN.sql(f"SELECT {sql}").types[0]
    (result,) = empty.results(f"SELECT {sql} AS x, '' AS y")
    file = tmp_path / "x.csv"
    file.write_text("".join(csv_lines(result)), encoding="utf-8", newline="")
    same = f"SELECT CAST(x AS {kind}) IS NOT DISTINCT FROM {sql} FROM {reading(file)}"
    assert PLAIN.execute(same).fetchall() == [(True,)]


def reading(file: Path) -> str:
    return (
        f"read_csv('{file}', header = true, delim = ',', quote = '\"', escape = '\"', allow_quoted_nulls = false, "
        f"all_varchar = true)"
    )


TEXTS = (
    st.none()
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
    | st.sampled_from(["", " ", "\r", "\n", "\r\n", '"', '""', ",", " a ", "NULL", "\\N", "null", "\ufeff", "'"])
)


@settings(deadline=None)
@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=5))
def test_csv_reads_back_equal(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str | None, str | None]]
) -> None:
    """With Python's csv, to which NULL and empty text are the same, and with DuckDB, which tells them apart."""
    written = "".join(csv_lines(Result(["a", "b"], [False, False], iter(rows))))
    assert list(csv.reader(io.StringIO(written, newline=""))) == [
        ["a", "b"], *([one or "" for one in row] for row in rows),
    ]  # fmt: skip
    file = tmp_path_factory.mktemp("csv") / "x.csv"
    file.write_text(written, encoding="utf-8", newline="")
    assert PLAIN.execute(f"FROM {reading(file)}").fetchall() == rows


@settings(deadline=None)
@given(st.binary(max_size=12))
def test_bytes_read_back_equal(value: bytes) -> None:
    text = bytes_text(value)
    assert text.isascii()
    assert PLAIN.execute("SELECT CAST(? AS BLOB)", [text]).fetchall() == [(value,)]


@settings(deadline=None)
@given(st.lists(st.sampled_from(["a", "a_1", "a_2", "A", "b"]), max_size=8))
def test_no_column_is_lost(names: list[str]) -> None:
    found = unique(names)
    assert len(set(found)) == len(names)
    firsts = {name: names.index(name) for name in names}
    assert all(found[at] == name for name, at in firsts.items()), "the first of a name keeps it"


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(), lambda one: st.lists(one, max_size=3)
    )
)
def test_json_of_python_values_is_valid(value: Any) -> None:
    """As `audit --json`, `report --json` and the like write it."""
    read = json.loads(json_text(value), parse_constant=no_constant)
    assert read == as_read(value)


def as_read(value: Any) -> Any:
    if isinstance(value, list):
        return [as_read(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def test_several_results_are_one_valid_json(empty: LedgerReader, capsys: pytest.CaptureFixture[str]) -> None:
    for sql, wanted in (
        ("SELECT 1 AS a, 2 AS a", [{"a": 1, "a_1": 2}]),
        ("SELECT 1 AS a WHERE false", []),
        ("SET threads = 1", []),
        ("SELECT 1 AS a; SELECT 'NaN'::DOUBLE AS b", [[{"a": 1}], [{"b": None}]]),
    ):
        show(empty.results(sql), Format.JSON)
        assert json.loads(capsys.readouterr().out, parse_constant=no_constant) == wanted


def test_times() -> None:
    assert iso_time("2026-01-02 03:04:05.6+00") == "2026-01-02T03:04:05.600000Z"
    assert iso_time("2026-01-02 03:04:05") == "2026-01-02T03:04:05"
    assert iso_time("2026-01-02 03:04:05+01") == "2026-01-02 03:04:05+01"
    assert reader(duckdb.sqltype("BLOB"))(b"\xff") == b"\xff"
    assert expression(duckdb.sqltype("INTEGER"), "#1") == "CAST(#1 AS VARCHAR)"
