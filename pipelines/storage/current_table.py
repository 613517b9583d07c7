"""Current-state tables, one row per key, from the records of a compacted topic.

Such a table is partitioned by `bucket`, a hash of the key, and a batch rewrites the partitions it touches. So the cost
grows with the number of keys, not with the length of their history. Spark judges the records and turns them into rows.
The few that remain are merged and written without Spark, because planning a query for one batch takes seconds.
"""

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.records import Format, judged, text
from pipelines.storage.appends import Quarantine
from pipelines.storage.table_files import TableFiles, query_id, until_committed
from schemas.identity import hash_of
from schemas.table import Table
from schemas.tables import CURRENT_BUCKETS


def current_rows(records: DataFrame, form: Format, columns: list[Column]) -> DataFrame:
    """Records of a Kafka source with the format `form`, as :class:`CurrentTable` takes them: `name`, the key as text;
    `offset`; `good`; `quarantined` (:func:`pipelines.records.judged`); and the table's `columns`, except `bucket`,
    computed from `record`, as `form` parses it, and `timestamp`. The key column is null if the record belongs to
    another table."""
    # A record without a value is valid: it ends the key, unless that is no text, which no key of a state is.
    ends = F.col("value").isNull() & text("key").isNotNull()
    judgement = F.when(~ends, F.col("quarantined"))
    rows = records.transform(judged, form).withColumn("quarantined", judgement)
    good = F.col("quarantined").isNull().alias("good")
    return rows.select(F.col("key").cast("string").alias("name"), "offset", good, "quarantined", *columns)


class CurrentTable:
    """Brings a table up to date with batches of :func:`current_rows`: a callback for `foreachBatch`.

    Contract: exactly once (:class:`pipelines.storage.table_files.TableFiles`). The last good record of a key counts. If
    it has no value, or belongs to another table, the key has no row from then on. Bad records change nothing; a batch
    with any is passed to `quarantine` before it is committed, so at least once. If maintenance removes rows meanwhile,
    the batch is merged again.
    """

    def __init__(self, table: Table, files: TableFiles, quarantine: Quarantine) -> None:
        (self._key,) = table.key
        self._columns = [column.name for column in table.columns]
        self._files = files
        self._quarantine = quarantine

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        query = query_id(batch.sparkSession)
        if self._files.has(query, batch_id):
            return
        news = batch.drop("quarantined").toArrow()
        if not pc.all(news["good"]).as_py():
            self._quarantine(batch)
        last = _last_of_each(news.filter(news["good"]))
        if last.num_rows:
            self._merge(last, query, batch_id)

    def _merge(self, news: pa.Table, query: str, batch_id: int) -> None:
        """Repeat until no other writer has changed the same partitions meanwhile."""
        names = news["name"].to_pylist()
        buckets = sorted({bucket_of(name) for name in names})
        rows = news.filter(pc.is_valid(news[self._key]))
        places = pa.array(map(bucket_of, rows[self._key].to_pylist()), pa.int32())
        rows = rows.append_column("bucket", places).select(self._columns)
        for attempt in until_committed():
            with attempt:
                if attempt.retry_state.attempt_number > 1 and self._files.has(query, batch_id):
                    return
                there = self._files.rows_in(buckets).select(self._columns)
                others = there.filter(pc.invert(pc.is_in(there[self._key], pa.array(names))))
                merged = pa.concat_tables([others, rows.cast(others.schema)])
                ordered = merged.sort_by([("bucket", "ascending"), (self._key, "ascending")])
                self._files.replace(ordered, buckets, query, batch_id)


def _last_of_each(rows: pa.Table) -> pa.Table:
    """For each `name`, the row with the greatest `offset`."""
    ordered = rows.sort_by("offset")
    last = {name: place for place, name in enumerate(ordered["name"].to_pylist())}
    return ordered.take(pa.array(sorted(last.values()), pa.int64()))


def bucket_of(key: str) -> int:
    """The partition that holds a key's row."""
    return hash_of(key) % CURRENT_BUCKETS
