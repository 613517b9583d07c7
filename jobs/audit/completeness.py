"""How far the ledger is: before which time what a table does not have is not there at all.

Told by the tables alone, from the statistics in their logs, so that it costs the same after years.
"""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from jobs.query.ledger_reader import LedgerReader, installed_blocks
from pipelines.routing.decisions import Reach
from schemas.tables import INSTRUCTIONS, MESSAGES, OUTCOMES, ROUTES, ROUTES_HISTORY, Table


def reach_of(tables: str, patience_s: float) -> Reach:
    """How far the ledger under `tables` is. To be asked before the tables are read for anything else.

    A query appends what it has read in the order of each partition, so a table has all that was appended before its
    newest row but for what other partitions, or a router that is behind, may still bring: `patience_s` are left for
    that. The routes are known until `as_of` of `routes`, if `routes_history`, which is slower, has all that is in it.
    """
    patience = timedelta(seconds=patience_s)

    def settled(table: Table) -> datetime | None:
        newest = _greatest(tables, table, "appended")
        return None if newest is None else newest - patience

    return Reach(_routes_known(tables), settled(INSTRUCTIONS), settled(OUTCOMES), settled(MESSAGES))


def _routes_known(tables: str) -> datetime | None:
    """The time until which `routes_history` tells all about routes.

    It is written up to a minute later than `routes`. Events follow each other, so that one it lacks would show in
    `routes` as a time later than all it has. Then, it tells about routes until its own newest event.
    """
    newest, latest = _greatest(tables, ROUTES_HISTORY, "appended"), _greatest(tables, ROUTES_HISTORY, "effective")
    if not DeltaTable.is_deltatable(f"{tables}/{ROUTES.name}"):
        return newest
    ((as_of, latest_known),) = (
        LedgerReader(tables, {}).query(installed_blocks("jobs.audit", "decisions.sql")["routes_known"]).rows
    )
    lacks = latest_known is not None and (latest is None or latest < latest_known)
    return newest if lacks or as_of is None else as_of


def _greatest(tables: str, table: Table, column: str) -> datetime | None:
    """The greatest time in a column, as the statistics of the table's files tell."""
    uri = f"{tables}/{table.name}"
    if not DeltaTable.is_deltatable(uri):
        return None
    files = pa.table(DeltaTable(uri).get_add_actions(flatten=True))
    name = f"max.{column}"
    if name not in files.column_names:
        return None
    found = pc.max(files.column(name)).as_py()
    return None if found is None else found.replace(tzinfo=UTC) if found.tzinfo is None else found
