"""Completeness watermarks of the ledger: the time before which a table is complete.

Computed from the tables alone, from the statistics in their logs and the last route events, so that the cost does not
grow over the years.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from jobs.query.ledger_reader import LedgerReader, installed_blocks, reading
from pipelines.routing.decisions import Watermarks
from schemas.table import Table
from schemas.tables import INSTRUCTIONS, MESSAGES, OUTCOMES, ROUTES, ROUTES_HISTORY

ONE_DAY = timedelta(days=1)
NEVER = datetime.min.replace(tzinfo=UTC)


def completeness_watermarks(tables: str, patience_s: float) -> Watermarks:
    """The completeness watermarks of the ledger under `tables`. Call it before reading anything else from the tables.

    A query appends records in the order of each partition. So a table has everything appended before its newest row,
    except what other partitions, or a router that lags, may still bring: `patience_s` are allowed for that. Rows about
    messages are complete no further than the newest of these messages: routers that work off a backlog write new rows
    about old messages. The routes are known until `as_of` of `routes`, if `routes_history`, which lags behind it, has
    everything in it.
    """
    patience = timedelta(seconds=patience_s)

    def settled(table: Table, *times: str) -> datetime | None:
        newest = [moment for time in times if (moment := _greatest(tables, table, time)) is not None]
        return min(newest) - patience if len(newest) == len(times) else None

    instructions, untouched = (settled(table, "appended", "message_appended") for table in (INSTRUCTIONS, OUTCOMES))
    return Watermarks(_routes_known(tables), instructions, untouched, settled(MESSAGES, "appended"))


def _routes_known(tables: str) -> datetime | None:
    """The time until which `routes_history` has all route events.

    It is written up to a minute later than `routes`. Events of a kind, of which routes start or end, take effect in
    their order. So if it lacks one, `routes` has a later time than all of that kind in `routes_history`. Then it is
    complete until its own newest event.
    """
    newest = _greatest(tables, ROUTES_HISTORY, "appended")
    if not DeltaTable.is_deltatable(f"{tables}/{ROUTES.name}"):
        return newest
    blocks, reader = installed_blocks("jobs.audit", "decisions.sql"), LedgerReader(tables, {})
    ((as_of, *known),) = reader.query(blocks["routes_known"]).rows
    told: Iterable[datetime | None] = (None, None)
    if newest is not None:
        (told,) = reader.query(blocks["history_known"], [newest.date() - ONE_DAY]).rows
    lacks = any(
        latest is not None and (in_history or newest or NEVER) < latest
        for latest, in_history in zip(known, told, strict=True)
    )
    return newest if lacks or as_of is None else as_of


def _greatest(tables: str, table: Table, column: str) -> datetime | None:
    """The highest time in a column, from the statistics of the table's files. Raises TableUnreadable."""
    uri = f"{tables}/{table.name}"
    with reading(table.name):
        if not DeltaTable.is_deltatable(uri):
            return None
        files = pa.table(DeltaTable(uri).get_add_actions(flatten=True))
    name = f"max.{column}"
    if name not in files.column_names:
        return None
    found = pc.max(files.column(name)).as_py()
    return None if found is None else found.replace(tzinfo=UTC) if found.tzinfo is None else found
