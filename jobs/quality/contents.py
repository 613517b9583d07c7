"""The contents of the history tables by date, from their logs: no data is read, and Spark is not needed."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from jobs.errors import QualityError
from jobs.query.ledger_reader import reading
from jobs.stack.missing import why_no_tables
from schemas.tables import HISTORY


@dataclass(frozen=True)
class Day:
    """One date of a table: `rows`; lowest and highest append time, and lowest append time of a message that the rows
    refer to, as far as the log has them."""

    rows: int = 0
    oldest: datetime | None = None
    newest: datetime | None = None
    oldest_message: datetime | None = None

    def with_file(self, file: Mapping[str, Any]) -> "Day":
        return Day(
            self.rows + (file.get("num_records") or 0),
            _least(self.oldest, file.get("min.appended")),
            _greatest(self.newest, file.get("max.appended")),
            _least(self.oldest_message, file.get("min.message_appended")),
        )


@dataclass(frozen=True)
class Contents:
    """A table at a `version`, by date."""

    version: int
    days: Mapping[date, Day] = field(default_factory=dict)

    @property
    def newest(self) -> datetime | None:
        """The highest append time in the table; None if it is empty."""
        return max((day.newest for day in self.days.values() if day.newest is not None), default=None)


def read_contents(tables: str) -> dict[str, Contents]:
    """Contents of the history tables under `tables` by name. Raises QualityError if one does not exist, and
    TableUnreadable."""
    found = existing_contents(tables)
    if not found:
        raise QualityError(why_no_tables(tables))
    for table in HISTORY:
        if table.name not in found:
            raise QualityError(
                f"the table {table.name} is missing in {tables}: start the stack, which creates all tables, or choose "
                "another data directory with --data"
            )
    return found


def existing_contents(tables: str) -> dict[str, Contents]:
    """Contents of the existing history tables under `tables`, by name. Raises TableUnreadable."""
    found = dict[str, Contents]()
    for table in HISTORY:
        uri = f"{tables}/{table.name}"
        with reading(table.name):
            if DeltaTable.is_deltatable(uri):
                found[table.name] = _read(uri)
    return found


def _read(uri: str) -> Contents:
    table = DeltaTable(uri)
    days: dict[date, Day] = defaultdict(Day)
    for file in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        days[file["partition.date"]] = days[file["partition.date"]].with_file(file)
    return Contents(table.version(), dict(days))


def _least(known: datetime | None, found: datetime | None) -> datetime | None:
    return min((_naive(moment) for moment in (known, found) if moment is not None), default=None)


def _greatest(known: datetime | None, found: datetime | None) -> datetime | None:
    return max((_naive(moment) for moment in (known, found) if moment is not None), default=None)


def _naive(moment: datetime) -> datetime:
    """UTC without a zone, as all times of the job are."""
    return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
