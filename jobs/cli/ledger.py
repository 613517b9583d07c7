"""`query` and `journey`: read the ledger with SQL."""

import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from jobs.cli.arguments import JourneyCommand, SqlCommand
from jobs.cli.context import shared
from jobs.cli.results import Format, show, show_table
from jobs.errors import QueryError
from jobs.output import output
from jobs.query.journeys import newest, printed_journey, printed_journeys
from jobs.query.ledger_reader import LedgerReader, described_views
from jobs.text_tables import Column, Form
from schemas.tables import TABLES

LIMIT = 100
"""Rows of a table that are shown by default."""
STDIN = "-"

AsFormat = Annotated[Format, typer.Option(help="Output format.")]
Vertical = Annotated[
    bool | None,
    typer.Option(
        "--vertical/--no-vertical",
        help="Print one line per value. Default: only if the table is wider than the terminal.",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    app.command(cls=SqlCommand)(query)
    app.command(cls=JourneyCommand)(journey)


def query(
    context: typer.Context,
    sql: Annotated[
        str | None,
        typer.Argument(metavar="SQL", help="SQL statements (DuckDB); `-` reads them from standard input."),
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Read the SQL from this file.")] = None,
    format: AsFormat = Format.TABLE,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0, help=f"Maximum number of rows; 0 prints all. Default: {LIMIT} for tables, all for CSV and JSON."
        ),
    ] = None,
    vertical: Vertical = None,
    tables: Annotated[
        bool, typer.Option("--tables", help="List the tables and views with their columns, and exit.")
    ] = False,
) -> None:
    """Query the ledger with SQL. The stack need not be running.

    Results of several statements are printed one after the other. JSON output is an array of rows, or an array of such
    arrays if there are several results. NaN and infinity become null in JSON. If two columns have the same name `a`,
    the second becomes `a_1`. CSV and JSON show bytes other than printable ASCII as `\\xNN`, which DuckDB can read.

    Examples:

        waystation query --tables
        waystation query "SELECT count(*) FROM messages WHERE origin <> 'platform'"
        waystation query --vertical "SELECT * FROM messages WHERE origin <> 'platform' LIMIT 5"
        waystation query --format csv 'SELECT * FROM outcomes' > outcomes.csv
        waystation query --file report.sql
        echo 'SELECT outcome, count(*) FROM outcomes GROUP BY ALL' | waystation query -
    """
    if tables:
        _show_tables()
        _show_views()
        return
    statements = _statements(sql, file)
    shown = LIMIT if limit is None and format is Format.TABLE else limit or 0
    # A table is read with one row more than it shows, to know whether there are more.
    most = None if not shown else shown + (format is Format.TABLE)
    with closing(LedgerReader(shared(context).tables())) as reader:
        show(reader.results(statements, most=most), format, _form(vertical), shown)


def journey(
    context: typer.Context,
    message_id: Annotated[
        str | None, typer.Argument(metavar="MESSAGE-ID", help="The id, from the column `id` of the table `messages`.")
    ] = None,
    last: Annotated[
        int | None,
        typer.Option(min=1, metavar="[N]", help="Show the last N messages from clients. Default of N: 1."),
    ] = None,
    topic: Annotated[
        str | None, typer.Option(help="Show the last message on this topic, or the last N with --last N.")
    ] = None,
    format: AsFormat = Format.TABLE,
    vertical: Vertical = None,
) -> None:
    """Show everything that happened to a message, in chronological order.

    Examples:

        waystation journey --last
        waystation journey --topic greetings/world --last 3
        waystation journey 0198c0de-0000-7000-8000-000000000000
    """
    if (message_id is None) == (last is None and topic is None):
        raise QueryError("give either the id of one message, or --last, or --topic TOPIC")
    with closing(LedgerReader(shared(context).ledger())) as reader:
        ids = [message_id] if message_id is not None else newest(reader, last or 1, topic)
        if format is Format.TABLE:
            for one in ids:
                steps = printed_journey(reader, one)
                if message_id is None:
                    output().print(f"message {one}", style="italic")
                show_table(steps, _form(vertical))
        else:
            show(printed_journeys(reader, ids), format)


def _statements(sql: str | None, file: Path | None) -> str:
    """The SQL given. Raises QueryError unless it was given exactly once."""
    if sql is None and file is None:
        raise QueryError(
            "the SQL is missing: give a statement such as 'SELECT * FROM messages', or list the tables with --tables"
        )
    if sql is not None and file is not None:
        raise QueryError("the SQL is given twice: give it either as an argument or with --file")
    try:
        if sql == STDIN:
            return sys.stdin.buffer.read().decode()
        return sql if file is None else file.read_text("utf-8")  # type: ignore[return-value]
    except UnicodeDecodeError as error:
        raise QueryError(f"the SQL in {file or 'standard input'} is not UTF-8: {error.reason}") from error
    except OSError as error:
        raise QueryError(f"cannot read the file {file}: {error.strerror}") from error


def _form(vertical: bool | None) -> Form:
    return {None: Form.VERTICAL_IF_WIDE, True: Form.VERTICAL, False: Form.TABLE}[vertical]


def _show_tables() -> None:
    headings = [Column("column"), Column("type", is_prose=True), Column("meaning", is_prose=True)]
    terminal = output()
    for table in TABLES.values():
        # A space, so that a long type can be wrapped.
        rows = [(column.name, column.type.replace(",", ", "), column.doc) for column in table.columns]
        terminal.show_table(headings, rows, title=f"{table.name}: {table.doc}")


def _show_views() -> None:
    terminal = output()
    for view in described_views():
        terminal.show_table(["column", "type"], view.columns, title=f"view {view.name}: {view.doc}")
