"""The routes table held in memory by a process that routes, so that a batch begins without reading it.

Spark plans a batch and reads its static sides while nothing flows. Here the table is read beside the queries that go
on, and not by Spark, which takes a second of CPU time to find out what belongs to a Delta table. deltalake copies it to
two files; a plan reads these, and Spark takes what is cached of them instead. What is held may be older than the table
by the time between two looks; `as_of` is as old as the rest, so that a process that cannot read any more sends to every
shard. The copy has the routes in groups (:mod:`pipelines.routing.route_buckets`), as they are joined; the catch-all
has a file of its own, because mostly nothing but its row has changed.
"""

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from pipelines.routing.route_buckets import GROUPED, GROUPS, ArrowGrouping, GroupedRoutes, RouteGroups
from pipelines.routing.routes import CATCH_ALL_BUCKET
from pipelines.sources import table_uri
from pipelines.storage.checkpoints import Checkpoint
from pipelines.streams import StreamId
from schemas.tables import ROUTES

COPY, COPY_OF_CATCH_ALL = "routes.parquet", "catch-all.parquet"
ROWS_AT_ONCE = GROUPS // 4
"""What one task of Spark's reads at least, if the copy is too large for one."""


class RoutesInMemory:
    """The routes table under `tables`, in the cache of `spark`; the copy stands in the checkpoint of `stream`, of which
    there is one process at a time, and in it one of these: a later one takes the copy and the cache over. One thread
    calls :meth:`refresh`, and has called it before any :meth:`read`."""

    def __init__(self, spark: SparkSession, tables: str, stream: StreamId) -> None:
        checkpoint = Checkpoint(stream, tables)
        self._uri = table_uri(tables, ROUTES)
        self._table: DeltaTable | None = None
        self._version: int | None = None
        self._files: frozenset[str] | None = None
        self._groups = RouteGroups()
        self._routes = _Copy(spark, checkpoint, COPY, self._groups)
        self._catch_all = _Copy(spark, checkpoint, COPY_OF_CATCH_ALL, self._groups)

    def read(self) -> GroupedRoutes:
        """The routes in groups, for a query's plan: each of its batches has them as they were taken over last."""
        return GroupedRoutes(self._groups, self._routes.read().unionByName(self._catch_all.read()))

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
        # `as_of` comes last: until then it says that less is known than there is.
        files = _files_of_routes(self._table)
        if files != self._files:
            self._routes.replace(_routes_of(self._table, "!="))
            self._files = files
        self._catch_all.replace(_routes_of(self._table, "="))
        self._version = version
        return True


class _Copy:
    """Routes in groups in a file that plans read, which Spark has in its cache."""

    def __init__(self, spark: SparkSession, checkpoint: Checkpoint, name: str, groups: RouteGroups) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self._name = name
        self._grouping = ArrowGrouping(groups)

    def read(self) -> DataFrame:
        return self._spark.read.schema(GROUPED).parquet(f"{self._checkpoint.uri}/{self._name}")

    def replace(self, routes: pa.Table) -> None:
        self._checkpoint.write(self._name, _as_parquet(self._grouping.rows(routes)))
        # Spark knows what is cached by its plan: also what an earlier one of these has left.
        now = self.read().unpersist().cache()
        now.write.format("noop").mode("overwrite").save()


def _routes_of(table: DeltaTable, is_catch_all: str) -> pa.Table:
    """`route_key, targets, as_of` of the catch-all (`=`) or of all others (`!=`)."""
    only = [("bucket", is_catch_all, CATCH_ALL_BUCKET)]
    return table.to_pyarrow_table(filters=only, columns=["route_key", "targets", "as_of"])


def _files_of_routes(table: DeltaTable) -> frozenset[str]:
    files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return frozenset(file["path"] for file in files if file["partition.bucket"] != CATCH_ALL_BUCKET)


def _as_parquet(rows: pa.Table) -> bytes:
    """Not packed: it is read once, a moment later."""
    file = pa.BufferOutputStream()
    pq.write_table(
        rows, file, compression="none", use_dictionary=False, write_statistics=False, row_group_size=ROWS_AT_ONCE
    )
    return bytes(file.getvalue())
