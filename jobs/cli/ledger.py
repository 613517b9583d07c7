"""`query` and `journey`: the ledger, read with SQL."""

import csv
import json
import sys
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.table import Table

from jobs.cli.context import output, shared
from jobs.errors import QueryError
from jobs.query.ledger_reader import LedgerReader, Rows, described_views
from schemas.tables import TABLES

JOURNEY = 'SELECT * FROM message_journey WHERE message_id = ? ORDER BY "at"'


class Format(StrEnum):
    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def register(app: typer.Typer) -> None:
    app.command()(query)
    app.command()(journey)


def query(
    context: typer.Context,
    sql: Annotated[str | None, typer.Argument(metavar="SQL", help="One statement, in DuckDB's SQL.")] = None,
    format: Annotated[Format, typer.Option(help="How to print the result.")] = Format.TABLE,
    tables: Annotated[bool, typer.Option("--tables", help="List tables, views and their columns instead.")] = False,
) -> None:
    """Ask the ledger: SQL over the Delta tables, also while the stack runs, also after it has stopped.

    Examples:

        waystation query --tables
        waystation query 'SELECT count(*) FROM messages'
        waystation query --format csv 'SELECT * FROM outcomes' > outcomes.csv
        waystation query 'SELECT outcome, count(*) FROM outcomes GROUP BY ALL'
    """
    if tables:
        _show_tables()
        _show_views()
    elif sql is None:
        raise QueryError(
            "no SQL was given: try `waystation query 'SELECT * FROM messages'`, or --tables for the tables"
        )
    else:
        _show(LedgerReader(shared(context).tables()).query(sql), format)


def journey(
    context: typer.Context,
    message_id: Annotated[str, typer.Argument(help="As in the column `id` of the table `messages`.")],
    format: Annotated[Format, typer.Option(help="How to print the result.")] = Format.TABLE,
) -> None:
    """Everything that happened to one message, in order of time.

    Examples:

        waystation query 'SELECT id, destination FROM messages LIMIT 5'
        waystation journey 0198c0de-0000-7000-8000-000000000000
    """
    steps = LedgerReader(shared(context).ledger()).query(JOURNEY, [message_id])
    if not steps.rows:
        raise QueryError(
            f"the ledger knows no message {message_id}: the id is wrong, or the message is too new (the ledger is "
            f"some seconds behind)"
        )
    if format is Format.TABLE:
        steps = steps.without("message_id")
    _show(steps, format)


def _show_tables() -> None:
    terminal = output()
    for table in TABLES.values():
        shown = Table("column", "type", "meaning", title=f"{table.name}: {table.doc}", title_justify="left")
        for column in table.columns:
            shown.add_row(column.name, column.type.replace("[", r"\["), column.doc)
        terminal.print(shown)


def _show_views() -> None:
    terminal = output()
    for view in described_views():
        shown = Table("column", "type", title=f"view {view.name}: {view.doc}", title_justify="left")
        for column in view.columns:
            shown.add_row(*column)
        terminal.print(shown)


def _show(result: Rows, format: Format) -> None:
    match format:
        case Format.JSON:
            rows = [dict(zip(result.columns, row, strict=True)) for row in result.rows]
            sys.stdout.write(json.dumps(rows, indent=2, default=plain, ensure_ascii=False) + "\n")
        case Format.CSV:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(result.columns)
            writer.writerows([["" if value is None else _text(value) for value in row] for row in result.rows])
        case Format.TABLE:
            table = Table()
            for name in result.columns:
                table.add_column(name, overflow="fold")
            for row in result.rows:
                table.add_row(*["" if value is None else _text(value).replace("[", r"\[") for value in row])
            output().print(table)
            output().print(f"{len(result.rows)} row{'' if len(result.rows) == 1 else 's'}")


def _text(value: Any) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value, default=plain, ensure_ascii=False)
    return str(plain(value))


def plain(value: Any) -> Any:
    """A value as text where JSON has no type for it: times as ISO 8601 in UTC, bytes as UTF-8."""
    if isinstance(value, datetime):
        return (
            value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
            if value.tzinfo
            else value.isoformat()
        )
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return value if isinstance(value, str | int | float | bool) else str(value)
