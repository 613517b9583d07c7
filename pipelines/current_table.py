"""Tables that say how things are now, one row a key, from the records of a compacted topic.

Such a table is partitioned by `bucket`, a hash of the key, and a batch rewrites the partitions that it concerns: the
cost goes with the number of keys, not with what has happened to them.
"""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.appends import Quarantine
from pipelines.records import Format, judged
from pipelines.sources import read_table
from pipelines.table_files import TableFiles, query_id, until_committed
from schemas.tables import CURRENT_BUCKETS, Table


class CurrentTable:
    """Brings a table up to date with batches of records of a Kafka source: a callback for `foreachBatch`. They have the
    format `form`; `rows_of` makes rows of the table of the last good one of each key (`name`, the key as text, `record`
    as `form` parses it, `timestamp`).

    Contract: exactly once (:class:`pipelines.table_files.TableFiles`). Of the good records of a key the last counts; if
    it has no value, or `rows_of` makes no row of it, the key has none from then on. Bad records change nothing; a batch
    that has any is given to `quarantine` before it is committed, so at least once. When maintenance has
    taken rows away meanwhile, the batch begins anew.
    """

    def __init__(
        self,
        tables: str,
        table: Table,
        files: TableFiles,
        form: Format,
        rows_of: Callable[[DataFrame], DataFrame],
        quarantine: Quarantine,
    ) -> None:
        self._tables = tables
        self._table = table
        self._files = files
        self._form = form
        self._rows_of = rows_of
        self._quarantine = quarantine

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
        records = batch.transform(judged, self._form).withColumn("quarantined", _complaint())
        last = F.max_by(F.struct("record", "timestamp"), _offset_if_good()).alias("last")
        by_key = records.groupBy("key").agg(last, F.count("quarantined").alias("bad"))
        news = by_key.select("last.*", "bad", F.col("key").cast("string").alias("name")).cache()
        try:
            good = news.where("timestamp IS NOT NULL")
            counts = news.groupBy(bucket_of(F.col("name"))).agg(F.count("timestamp"), F.sum("bad")).collect()
            if any(bad for _, _, bad in counts):
                self._quarantine(records)
            buckets = sorted(str(bucket) for bucket, keys, _ in counts if keys)
            if buckets:
                current = read_table(spark, self._tables, self._table).where(f"bucket IN ({', '.join(buckets)})")
                others = current.join(good.select(F.col("name").alias(key)), on=key, how="left_anti")
                rows = self._rows_of(good).withColumn("bucket", bucket_of(F.col(key)))
                ordered = others.unionByName(rows).repartition("bucket").sortWithinPartitions("bucket", key)
                self._files.commit(self._files.write(ordered, batch_id), query, batch_id, replacing=buckets)
        finally:
            news.unpersist()


def _complaint() -> Column:
    """What is wrong with a record: no value is right, it ends the key."""
    ends = F.col("value").isNull() & F.col("key").isNotNull()
    return F.when(~ends, F.col("quarantined"))


def _offset_if_good() -> Column:
    return F.when(F.col("quarantined").isNull(), F.col("offset"))


def bucket_of(key: Column) -> Column:
    """The partition in which a key's row stands."""
    return (F.crc32(key) % CURRENT_BUCKETS).cast("int")
