"""The routes table held in memory by a router process, so that a batch starts without reading it.

Nothing flows while Spark plans a batch and reads its static sides. So the table is read beside the running queries, and
not by Spark, which takes a second of CPU time to find a Delta table's files. deltalake copies the table to two files; a
plan reads these, and Spark uses the cached data instead. The routes in memory may be older than the table by one
refresh interval. `as_of` is as old as the rest, so a process that can no longer read sends to every shard. The copy has
the routes in buckets (:mod:`pipelines.routing.route_buckets`), as they are joined. The catch-all has a file of its own,
because mostly only its row has changed.
"""

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from pipelines.routing.route_buckets import BUCKETED, BUCKETS, ArrowBucketing, BucketedRoutes, RouteBuckets
from pipelines.routing.routes import CATCH_ALL_BUCKET
from pipelines.sources import table_uri
from pipelines.storage.checkpoints import Checkpoint
from pipelines.streams import StreamId
from schemas.tables import ROUTES

COPY, COPY_OF_CATCH_ALL = "routes.parquet", "catch-all.parquet"
ROWS_AT_ONCE = BUCKETS // 4
"""The least that one Spark task reads, if the copy is too large for one task."""


class RoutesInMemory:
    """The routes table under `tables`, in the cache of `spark`. The copy is in the checkpoint of `stream`, which one
    process uses at a time, with one instance of this class; a later instance takes over copy and cache. One thread
    calls :meth:`refresh`, and must do so before any :meth:`read`."""

    def __init__(self, spark: SparkSession, tables: str, stream: StreamId) -> None:
        checkpoint = Checkpoint(stream, tables)
        self._uri = table_uri(tables, ROUTES)
        self._table: DeltaTable | None = None
        self._version: int | None = None
        self._files: frozenset[str] | None = None
        self._buckets = RouteBuckets()
        self._routes = _Copy(spark, checkpoint, COPY, self._buckets)
        self._catch_all = _Copy(spark, checkpoint, COPY_OF_CATCH_ALL, self._buckets)

    def read(self) -> BucketedRoutes:
        """The routes in buckets, for a query's plan: each batch uses the routes as last refreshed."""
        return BucketedRoutes(self._buckets, self._routes.read().unionByName(self._catch_all.read()))

    def refresh(self) -> bool:
        """Load the current table; False if nothing has changed. Raises what Spark and deltalake raise.

        A query that is started exactly between copying and caching may find a file of another length and fail; it is
        then restarted.
        """
        if self._table is None:
            self._table = DeltaTable(self._uri)
        else:
            self._table.update_incremental()
        version = self._table.version()
        if version == self._version:
            return False
        # `as_of` comes last: until then it claims less than the copy has.
        files = _files_of_routes(self._table)
        if files != self._files:
            self._routes.replace(_routes_of(self._table, "!="))
            self._files = files
        self._catch_all.replace(_routes_of(self._table, "="))
        self._version = version
        return True


class _Copy:
    """Routes in buckets in a file that plans read and Spark caches."""

    def __init__(self, spark: SparkSession, checkpoint: Checkpoint, name: str, buckets: RouteBuckets) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self._name = name
        self._bucketing = ArrowBucketing(buckets)

    def read(self) -> DataFrame:
        return self._spark.read.schema(BUCKETED).parquet(f"{self._checkpoint.uri}/{self._name}")

    def replace(self, routes: pa.Table) -> None:
        self._checkpoint.write(self._name, _as_parquet(self._bucketing.rows(routes)))
        # Spark finds cached data by plan, including what an earlier instance has left.
        now = self.read().unpersist().cache()
        now.write.format("noop").mode("overwrite").save()


def _routes_of(table: DeltaTable, is_catch_all: str) -> pa.Table:
    """`route_key, targets, as_of` of the catch-all (`=`) or of all other keys (`!=`)."""
    only = [("bucket", is_catch_all, CATCH_ALL_BUCKET)]
    return table.to_pyarrow_table(filters=only, columns=["route_key", "targets", "as_of"])


def _files_of_routes(table: DeltaTable) -> frozenset[str]:
    files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return frozenset(file["path"] for file in files if file["partition.bucket"] != CATCH_ALL_BUCKET)


def _as_parquet(rows: pa.Table) -> bytes:
    """Uncompressed: it is read once, a moment later."""
    file = pa.BufferOutputStream()
    pq.write_table(
        rows, file, compression="none", use_dictionary=False, write_statistics=False, row_group_size=ROWS_AT_ONCE
    )
    return bytes(file.getvalue())
