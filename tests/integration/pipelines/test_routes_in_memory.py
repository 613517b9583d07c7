"""The routes that a router holds in memory (R5)."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.kafka_load import write_routes
from pipelines.routing import route_buckets
from pipelines.routing.route_buckets import (
    BUCKETED,
    BUCKETS,
    KEYS_PER_SUB_BUCKET,
    OVERSIZED,
    SUB_BUCKETS,
    ArrowBucketing,
    BucketedRoutes,
    RouteBuckets,
)
from pipelines.routing.routes_in_memory import COPY, COPY_OF_CATCH_ALL, RoutesInMemory
from pipelines.sources import read_table, table_uri
from pipelines.streams import StreamId
from schemas.identity import hash_of
from schemas.tables import ROUTES

STREAM = StreamId("router-active", 2)


@pytest.fixture
def routes(spark: SparkSession, tmp_path: Path) -> Iterator[RoutesInMemory]:
    yield RoutesInMemory(spark, str(tmp_path), STREAM)
    spark.catalog.clearCache()


def keys(routes: BucketedRoutes) -> int:
    return one_by_one(routes).count()


def one_by_one(routes: BucketedRoutes) -> DataFrame:
    """`route_key, targets, bucket, sub_buckets, sub_bucket`: one row a key again, and where it stands; of keys with few
    targets, which have one slice."""
    sub_buckets = F.posexplode(F.arrays_zip("route_keys", "targets")).alias("sub_bucket", "both")
    rows = routes.rows.select("bucket", F.size("route_keys").alias("sub_buckets"), sub_buckets)
    one = F.explode(F.arrays_zip("both.route_keys", "both.targets")).alias("one")
    each = rows.select("bucket", "sub_buckets", "sub_bucket", one)
    key, targets = F.col("one.route_keys").alias("route_key"), F.flatten("one.targets").alias("targets")
    return each.select(key, targets, "bucket", "sub_buckets", "sub_bucket")


def test_batches_read_the_routes_that_are_in_memory(routes: RoutesInMemory, tmp_path: Path) -> None:
    """Whichever plan reads the routes, an earlier one too, gets what was last taken over; no file is read."""
    write_routes(tmp_path, 3, lambda _: [1])
    assert routes.refresh()
    planned_before = routes.read()
    write_routes(tmp_path, 5, lambda _: [1])
    assert keys(routes.read()) == 1 + 3
    assert routes.refresh()
    for copy in (COPY, COPY_OF_CATCH_ALL):
        (tmp_path / "_checkpoints" / STREAM.name / copy).unlink()
    assert keys(planned_before) == 1 + 5
    assert not routes.refresh(), "nothing has changed"
    tick = {"as_of": "to_timestamp_micros(5000000)"}
    DeltaTable(table_uri(str(tmp_path), ROUTES)).update(updates=tick, predicate="route_key = '#'")
    assert routes.refresh()
    (row,) = (
        planned_before.rows.where(F.array_contains(F.flatten("route_keys"), "#"))
        .selectExpr("unix_micros(as_of)")
        .collect()
    )
    assert row[0] == 5_000_000


def test_a_later_one_does_not_find_the_routes_of_an_earlier(
    spark: SparkSession, routes: RoutesInMemory, tmp_path: Path
) -> None:
    """Their buckets are others: a message would find none of its routes, and go to nobody."""
    write_routes(tmp_path, 3, lambda _: [1])
    assert routes.refresh()
    later = RoutesInMemory(spark, str(tmp_path), STREAM)
    assert later.refresh()
    held = later.read()
    assert one_by_one(held).where(F.col("bucket") == held.buckets.of(F.col("route_key"))).count() == 1 + 3


@pytest.mark.parametrize(
    ("bucket_count", "oversized"),
    [(16, OVERSIZED), (4, 2), (BUCKETS, OVERSIZED)],
    ids=["keys share buckets", "oversized buckets", "as in life"],
)
def test_what_is_in_memory_is_the_table(
    spark: SparkSession,
    routes: RoutesInMemory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bucket_count: int,
    oversized: int,
) -> None:
    """Each key with its targets, in the bucket and the sub-bucket in which messages look for it; and `as_of`. Also once
    keys have come and gone."""
    for name, value in {"BUCKETS": bucket_count, "OVERSIZED": oversized, "KEYS_PER_SUB_BUCKET": 2}.items():
        monkeypatch.setattr(route_buckets, name, value)
    for count in (40, 60, 20):
        write_routes(tmp_path, count, lambda n: list(range(n % 3)))
        assert routes.refresh()
        held, table = routes.read(), read_table(spark, str(tmp_path), ROUTES)
        assert held.rows.schema == spark.createDataFrame([], BUCKETED).schema
        assert held.rows.count() == held.rows.select("bucket").distinct().count() <= 1 + bucket_count
        key = F.col("route_key")
        found = one_by_one(held)
        columns = "route_key", "targets"
        assert_df_equality(found.select(*columns), table.select(*columns), ignore_row_order=True, ignore_nullable=True)
        assert found.where(F.col("bucket") != held.buckets.of(key)).isEmpty()
        assert found.where(F.col("sub_bucket") != held.buckets.sub_bucket_of(key, F.col("sub_buckets"))).isEmpty()
        has_oversized = not found.where(F.col("sub_buckets") != SUB_BUCKETS).isEmpty()
        assert has_oversized == (oversized < OVERSIZED)
        known = table.where(F.col("as_of").isNotNull()).select(held.buckets.of(key), "as_of")
        assert held.rows.where(F.col("as_of").isNotNull()).select("bucket", "as_of").collect() == known.collect()


def test_nobody_knows_which_keys_share_a_bucket() -> None:
    """Another process, other buckets: clients choose the keys."""
    keys = pa.array([f"town/{n}" for n in range(2000)])
    routes = pa.table(
        {"route_key": keys, "targets": [[]] * len(keys), "as_of": pa.nulls(len(keys), pa.timestamp("us"))}
    )
    bucketed = (ArrowBucketing(RouteBuckets()).rows(routes) for _ in range(2))
    one, other = ({tuple(chain(*sub_buckets)) for sub_buckets in rows["route_keys"].to_pylist()} for rows in bucketed)
    assert sum(map(len, one)) == sum(map(len, other)) == len(keys)
    assert one != other


def test_clients_cannot_overfill_the_sub_bucket_of_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even with keys that they have chosen to share a bucket, and a sub-bucket of any other bucket."""
    monkeypatch.setattr(route_buckets, "BUCKETS", 1)
    keys = [key for n in range(100_000) if hash_of(key := f"town/{n}") % SUB_BUCKETS == 3]
    assert len(keys) > 2 * OVERSIZED
    routes = {"route_key": keys, "targets": [[]] * len(keys), "as_of": pa.nulls(len(keys), pa.timestamp("us"))}
    (sub_buckets,) = ArrowBucketing(RouteBuckets()).rows(pa.table(routes))["route_keys"].to_pylist()
    assert sorted(chain(*sub_buckets)) == sorted(keys)
    assert max(map(len, sub_buckets)) < 5 * KEYS_PER_SUB_BUCKET


def test_there_is_no_table_yet(routes: RoutesInMemory, tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        routes.refresh()
    write_routes(tmp_path, 1, lambda _: [1])
    assert routes.refresh()
