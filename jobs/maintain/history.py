"""History tables: removes expired dates, compacts dates with many small files.

Both work on whole partitions. Removing one is a commit and reads nothing; compacting writes the same rows into larger
files, in a commit marked as such (`dataChange = false`). Files stay until VACUUM, so readers of an older version are
not disturbed.
"""

from datetime import date

import pyarrow as pa
import structlog
from deltalake import DeltaTable

from jobs.maintain.plan import Amount, DataFile, Step, Stopping, by_date, kept_days, kept_no_more, scattered
from pipelines.storage.table_files import until_committed
from schemas.maintain_settings import MaintainSettings

RETENTION = "retention"
COMPACTION = "compaction"
MOST_ROUNDS = 3
"""Merged files shrink, and may then be small again: a date is rechecked at most this often."""
TASKS = 1
"""Merges at a time: maintenance leaves the processors to others."""

log = structlog.get_logger(__name__)


def files_by_date(table: DeltaTable) -> dict[date, list[DataFile]]:
    """The files of a table that is partitioned by `date`."""
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return by_date(
        (one["partition.date"], DataFile(one["path"], one["size_bytes"], one["num_records"] or 0)) for one in actions
    )


def history_steps(uri: str, name: str, settings: MaintainSettings, today: date, with_today: bool) -> list[Step]:
    """What is due for the history table at `uri`."""
    days = files_by_date(DeltaTable(uri))
    removed = kept_no_more(days, kept_days(settings, name), today)
    steps = []
    if removed:
        steps.append(Step(name, RETENTION, Amount.of(days, removed), lambda _stopping: _remove(uri, removed)))
    rest = {day: files for day, files in days.items() if day not in removed}
    compacted = scattered(rest, settings, today, with_today)
    if compacted:

        def compact(stopping: Stopping) -> None:
            for number, day in enumerate(compacted, 1):
                if stopping():
                    return
                _compact(uri, day, settings, today, with_today)
                log.info("compacted", table=name, date=str(day), number=number, of=len(compacted))
            _shorten_log(uri)

        steps.append(Step(name, COMPACTION, Amount.of(rest, compacted), compact))
    return steps


def _remove(uri: str, dates: list[date]) -> None:
    """Removes literal dates, so that new rows of other dates are no conflict."""
    literals = ", ".join(f"DATE '{day}'" for day in dates)
    for attempt in until_committed():
        with attempt:
            DeltaTable(uri).delete(f"date IN ({literals})")


def _compact(uri: str, day: date, settings: MaintainSettings, today: date, with_today: bool) -> None:
    for _ in range(MOST_ROUNDS):
        table = DeltaTable(uri)
        if day not in scattered(files_by_date(table), settings, today, with_today):
            return
        table.optimize.compact(
            partition_filters=[("date", "=", str(day))], target_size=settings.file_bytes, max_concurrent_tasks=TASKS
        )


def _shorten_log(uri: str) -> None:
    """Writes a checkpoint, so that readers need not go through thousands of removed files. As with every checkpoint,
    expired log entries are deleted."""
    table = DeltaTable(uri)
    table.create_checkpoint()
    table.cleanup_metadata()
