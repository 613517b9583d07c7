"""The routes table held in memory by a process that routes, so that a batch begins without reading it.

Spark plans a batch and reads its static sides while nothing flows. Here the table is read beside the queries that go
on, and not by Spark, which takes a second of CPU time to find out what belongs to a Delta table. deltalake copies it to
one file; a plan reads that file, and Spark takes what is cached of it instead. What is held may be older than the table
by the time between two looks; `as_of` is as old as the rest, so that a process that cannot read any more sends to every
shard. The copy has the routes in groups (:mod:`pipelines.route_groups`), as they are joined.
"""

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from pipelines.checkpoints import Checkpoint
from pipelines.route_groups import GROUPED, GroupedRoutes, RouteGroups
from pipelines.sources import table_uri
from pipelines.streams import StreamId
from schemas.tables import ROUTES

COPY = "routes.parquet"


class RoutesInMemory:
    """The routes table under `tables`, in the cache of `spark`; the copy stands in the checkpoint of `stream`, of which
    there is one process at a time. One thread calls :meth:`refresh`, and has called it before any :meth:`read`."""

    def __init__(self, spark: SparkSession, tables: str, stream: StreamId) -> None:
        self._spark = spark
        self._checkpoint = Checkpoint(stream, tables)
        self._groups = RouteGroups()
        self._uri = table_uri(tables, ROUTES)
        self._table: DeltaTable | None = None
        self._cached: DataFrame | None = None
        self._version: int | None = None

    def read(self) -> GroupedRoutes:
        """The routes in groups, for a query's plan: each of its batches has them as they were taken over last."""
        return GroupedRoutes(self._groups, self._copy())

    def refresh(self) -> bool:
        """Take over the table as it is now; False if nothing has changed. Raises what Spark and deltalake raise.

        A query that is started in the very moment between the copy and the cache may find a file of another length,
        fail, and is started again.
        """
        if self._table is None:
            self._table = DeltaTable(self._uri)
        else:
            self._table.update_incremental()
        version = self._table.version()
        if version == self._version:
            return False
        routes = self._table.to_pyarrow_table(columns=["route_key", "targets", "as_of"])
        self._checkpoint.write(COPY, _as_parquet(self._groups.arrow_rows(routes)))
        now = self._copy()
        if self._cached is not None:
            self._cached.unpersist()
        self._cached = now.cache()
        self._cached.write.format("noop").mode("overwrite").save()
        self._version = version
        return True

    def _copy(self) -> DataFrame:
        return self._spark.read.schema(GROUPED).parquet(f"{self._checkpoint.uri}/{COPY}")


def _as_parquet(rows: pa.Table) -> bytes:
    """Not packed: it is read once, a moment later."""
    file = pa.BufferOutputStream()
    pq.write_table(rows, file, compression="none", use_dictionary=False, write_statistics=False)
    return bytes(file.getvalue())
