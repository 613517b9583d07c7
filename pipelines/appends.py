"""Appending the batches of a streaming query to a history table."""

from collections.abc import Callable

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from pipelines.positions import is_before
from pipelines.table_files import TableFiles, query_id

Quarantine = Callable[[DataFrame], None]
"""Takes a batch with the column `quarantined`, and reports the rows where that is not null."""


class Appends:
    """Appends the batches of one streaming query to a table: a callback for `foreachBatch`.

    Contract: exactly once (:class:`pipelines.table_files.TableFiles`); of a batch that the table has only the state is
    computed once more, if the query keeps one: Spark ends a query whose batch leaves it out.

    With `quarantine` batches have the column `quarantined`: rows where it is not null are not appended. A batch that
    has such rows is given to `quarantine` before it is committed, so at least once.

    With the column `place` (:func:`pipelines.positions.place`) rows of records that the table had when the query was
    started are passed over, bad ones too: so a query that has lost its checkpoint can replay its topic.
    """

    def __init__(self, files: TableFiles, quarantine: Quarantine | None = None) -> None:
        self._files = files
        self._quarantine = quarantine
        self._had: dict[int, int] | None = None

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        query = query_id(batch.sparkSession)
        if self._files.has(query, batch_id):
            batch.write.format("noop").mode("overwrite").save()
            return
        if "place" in batch.columns:
            if self._had is None:
                self._had = self._files.has_of_topic()
            batch = batch.where(~is_before(self._had)).drop("place")
        if self._quarantine is None:
            directory = self._files.write(batch, batch_id)
        else:
            bad = Observation()
            observed = batch.observe(bad, F.count("quarantined").alias("rows"))
            directory = self._files.write(observed.transform(_good), batch_id)
            if bad.get["rows"]:
                self._quarantine(batch)
        self._files.commit(directory, query, batch_id)


def _good(batch: DataFrame) -> DataFrame:
    return batch.where(F.col("quarantined").isNull()).drop("quarantined")
