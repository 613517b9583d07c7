"""Tables that say how things are now, one row a key, from the records of a compacted topic.

Such a table is partitioned by `bucket`, a hash of the key, and a batch rewrites the partitions that it concerns: the
cost goes with the number of keys, not with what has happened to them.
"""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.sources import read_table, table_uri
from pipelines.table_files import TableFiles, query_id, until_committed
from schemas.tables import CURRENT_BUCKETS, Table


class CurrentTable:
    """Brings a table up to date with batches of records (`key, value, offset, timestamp`): a callback for
    `foreachBatch`. `rows_of` makes rows of the table of the records of a batch, the last of each key.

    Contract: exactly once (:class:`pipelines.table_files.TableFiles`). Of the records of a key the last counts; if
    `rows_of` makes no row of it, as of one without value, the key has none from then on. When maintenance has taken
    rows away meanwhile, the batch begins anew.
    """

    def __init__(self, tables: str, table: Table, rows_of: Callable[[DataFrame], DataFrame]) -> None:
        self._tables = tables
        self._table = table
        self._rows_of = rows_of
        self._files = TableFiles(table_uri(tables, table), table)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        for attempt in until_committed():
            with attempt:
                self._write(batch, batch_id)

    def _write(self, batch: DataFrame, batch_id: int) -> None:
        spark = batch.sparkSession
        query = query_id(spark)
        if self._files.has(query, batch_id):
            return
        (key,) = self._table.key
        last = F.max_by(F.struct("value", "timestamp"), F.col("offset")).alias("last")
        news = batch.groupBy("key").agg(last).select("key", "last.*", F.col("key").cast("string").alias("name")).cache()
        try:
            touched = news.select(bucket_of(F.col("name"))).distinct().collect()
            buckets = sorted(str(row[0]) for row in touched)
            if buckets:
                current = read_table(spark, self._tables, self._table).where(f"bucket IN ({', '.join(buckets)})")
                others = current.join(news.select(F.col("name").alias(key)), on=key, how="left_anti")
                rows = self._rows_of(news).withColumn("bucket", bucket_of(F.col(key)))
                ordered = others.unionByName(rows).repartition("bucket").sortWithinPartitions("bucket", key)
                self._files.commit(self._files.write(ordered, batch_id), query, batch_id, replacing=buckets)
        finally:
            news.unpersist()


def bucket_of(key: Column) -> Column:
    """The partition in which a key's row stands."""
    return (F.crc32(key) % CURRENT_BUCKETS).cast("int")
