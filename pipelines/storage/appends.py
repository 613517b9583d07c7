"""Appending the batches of a streaming query to a history table."""

from collections.abc import Callable

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from pipelines.storage.seen import SeenKeys
from pipelines.storage.table_files import TableFiles, query_id, until_committed

Quarantine = Callable[[DataFrame], None]
"""Takes a batch with the column `quarantined`, and reports the rows where it is not null."""


class Appends:
    """Appends the batches of one streaming query to a table: a callback for `foreachBatch`.

    Contract: exactly once (:class:`pipelines.storage.table_files.TableFiles`).

    With `quarantine`, batches have the column `quarantined`; rows where it is not null are not appended. A batch with
    such rows is passed to `quarantine` before it is committed, so at least once. With `seen`, rows that are copies of
    earlier ones are not appended either.
    """

    def __init__(self, files: TableFiles, quarantine: Quarantine | None = None, seen: SeenKeys | None = None) -> None:
        self._files = files
        self._quarantine = quarantine
        self._seen = seen

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        query = query_id(batch.sparkSession)
        if self._files.has(query, batch_id):
            return
        if self._quarantine is None:
            directory = self._files.write(batch, batch_id)
        else:
            bad = Observation()
            observed = batch.observe(bad, F.count("quarantined").alias("rows"))
            directory = self._files.write(observed.transform(_good), batch_id)
            if bad.get["rows"]:
                self._quarantine(batch)
        if self._seen is not None:
            seen = self._seen
            self._files.keep(directory, seen.columns(batch.columns), lambda rows: seen.first(rows, query, batch_id))
        self._commit(directory, query, batch_id)

    def _commit(self, directory: str, query: str, batch_id: int) -> None:
        """Each attempt commits the same files: rows removed by other writers make no difference to them."""
        for attempt in until_committed():
            with attempt:
                if attempt.retry_state.attempt_number == 1 or not self._files.has(query, batch_id):
                    self._files.commit(directory, query, batch_id)


def _good(batch: DataFrame) -> DataFrame:
    return batch.where(F.col("quarantined").isNull()).drop("quarantined")
