"""The routes that a router holds in memory (R5)."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyspark.sql import DataFrame, SparkSession

from bench.routes import write_routes
from pipelines.routes_in_memory import COPY, RoutesInMemory
from pipelines.sources import read_table, table_uri
from pipelines.streams import StreamId
from schemas.tables import ROUTES

STREAM = StreamId("router-active", 2)


@pytest.fixture
def routes(spark: SparkSession, tmp_path: Path) -> Iterator[RoutesInMemory]:
    yield RoutesInMemory(spark, str(tmp_path), STREAM)
    spark.catalog.clearCache()


def keys(routes: DataFrame) -> int:
    return routes.select("route_key", "targets").count()


def test_batches_read_the_routes_that_are_in_memory(routes: RoutesInMemory, tmp_path: Path) -> None:
    """Whichever plan reads the routes, an earlier one too, gets what was last taken over; no file is read."""
    write_routes(tmp_path, 3, lambda _: [1])
    assert routes.refresh()
    planned_before = routes.read()
    write_routes(tmp_path, 5, lambda _: [1])
    assert keys(routes.read()) == 1 + 3
    assert routes.refresh()
    (tmp_path / "_checkpoints" / STREAM.name / COPY).unlink()
    assert keys(planned_before.select("*")) == 1 + 5
    assert not routes.refresh(), "nothing has changed"
    tick = {"as_of": "to_timestamp_micros(5000000)"}
    DeltaTable(table_uri(str(tmp_path), ROUTES)).update(updates=tick, predicate="route_key = '#'")
    assert routes.refresh()
    (row,) = planned_before.where("route_key = '#'").selectExpr("unix_micros(as_of)").collect()
    assert row[0] == 5_000_000


def test_what_is_in_memory_is_the_table(spark: SparkSession, routes: RoutesInMemory, tmp_path: Path) -> None:
    """Every column as Spark reads it of the table: names, types and values."""
    write_routes(tmp_path, 40, lambda n: list(range(n % 3)))
    routes.refresh()
    table = read_table(spark, str(tmp_path), ROUTES)
    assert [(field.name, field.dataType) for field in routes.read().schema] == [
        (field.name, field.dataType) for field in table.schema
    ]
    assert sorted(routes.read().collect()) == sorted(table.collect())


def test_there_is_no_table_yet(routes: RoutesInMemory, tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        routes.refresh()
    write_routes(tmp_path, 1, lambda _: [1])
    assert routes.refresh()
