"""Prints SQL results as tables, CSV and JSON."""

import io
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import StrEnum
from itertools import chain, islice

from jobs.output import cell, output
from jobs.query.ledger_reader import Result
from jobs.query.values import Value, to_cell, to_csv, to_json, unique
from jobs.text_tables import Column, Form

EXPLAINED = ["explain_key", "explain_value"]
"""Columns of DuckDB's EXPLAIN, whose value is a drawing."""


class Format(StrEnum):
    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def show(results: Iterable[Result], format: Format, form: Form = Form.VERTICAL_IF_WIDE, limit: int = 0) -> None:
    """Print results one after the other. Of a table only the first `limit` rows, unless that is 0, with a note that
    there are more."""
    match format:
        case Format.TABLE:
            for result in results:
                show_table(result, form, limit)
        case Format.CSV:
            _as_utf8()
            for number, result in enumerate(results):
                sys.stdout.write("\n" if number else "")
                sys.stdout.writelines(csv_lines(result))
        case Format.JSON:
            _as_utf8()
            _show_json(results)


def show_table(result: Result, form: Form = Form.VERTICAL_IF_WIDE, limit: int = 0) -> None:
    terminal = output()
    if result.columns == EXPLAINED:
        for _, drawing in result.rows:
            terminal.print(str(drawing))
        return
    columns = [Column(cell(name), number) for name, number in zip(result.columns, result.numeric, strict=True)]
    rows = [[to_cell(value) for value in row] for row in islice(result.rows, limit or None)]
    terminal.show_table(columns, rows, form=form)
    if limit and next(result.rows, None) is not None:
        terminal.print(f"first {limit} row{'' if limit == 1 else 's'}; --limit 0 shows all")
    else:
        terminal.print(f"{len(rows)} row{'' if len(rows) == 1 else 's'}")


def csv_lines(result: Result) -> Iterator[str]:
    """RFC 4180, except that lines end with LF; the first line has the column names, made unique."""
    yield _csv_line(unique(result.columns))
    for row in result.rows:
        yield _csv_line(row)


def _csv_line(values: Iterable[Value]) -> str:
    return ",".join(map(to_csv, values)) + "\n"


def _show_json(results: Iterable[Result]) -> None:
    """One result: an array of objects; several: an array of such arrays."""
    several = iter(results)
    first = list(islice(several, 1))
    second = list(islice(several, 1)) if first else []
    if not second:
        for result in first or [Result([], [], iter(()))]:
            sys.stdout.writelines(chain(_json_lines(result), ["\n"]))
        return
    sys.stdout.write("[\n")
    for number, result in enumerate(chain(first, second, several)):
        sys.stdout.write(",\n" if number else "")
        sys.stdout.writelines(_json_lines(result))
    sys.stdout.write("\n]\n")


def _json_lines(result: Result) -> Iterator[str]:
    """One row per line."""
    names = unique(result.columns)
    separator = "[\n  "
    for row in result.rows:
        yield separator + to_json(dict(zip(names, row, strict=True)))
        separator = ",\n  "
    yield "[]" if separator.startswith("[") else "\n]"


def _as_utf8() -> None:
    """Writes UTF-8 for JSON (RFC 8259, 8.1) and CSV, whatever the terminal's encoding."""
    with suppress(AttributeError):
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")
