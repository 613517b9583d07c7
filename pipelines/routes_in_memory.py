"""The routes table held in memory by a process that routes, so that a batch begins without reading it.

Spark plans a batch and reads its static sides while nothing flows. Here the table is read beside the queries that go
on: Spark takes what is cached wherever a plan reads the table. What is held may be older than the table by the time
between two looks; `as_of` is as old as the rest, so that a process that cannot read any more sends to every shard.
"""

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipelines.sources import read_table, table_uri
from schemas.tables import ROUTES


class RoutesInMemory:
    """The routes table under `tables` in the cache of `spark`. One thread calls :meth:`refresh`."""

    def __init__(self, spark: SparkSession, tables: str) -> None:
        self._spark = spark
        self._tables = tables
        self._table = DeltaTable(table_uri(tables, ROUTES))
        self._frame = read_table(spark, tables, ROUTES)
        self._version: int | None = None

    def refresh(self) -> bool:
        """Take over the table as it is now; False if nothing has changed. Raises what Spark and deltalake raise.

        A batch that begins meanwhile reads the table itself, as it would without us.
        """
        self._table.update_incremental()
        version = self._table.version()
        if version == self._version:
            return False
        self._frame.unpersist()
        self._frame = read_table(self._spark, self._tables, ROUTES).cache()
        self._frame.count()
        self._version = version
        return True
