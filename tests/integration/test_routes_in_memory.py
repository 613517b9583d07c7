"""The routes that a router holds in memory (R5)."""

from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from bench.routes import write_routes
from pipelines.routes_in_memory import RoutesInMemory
from pipelines.sources import read_table, table_uri
from schemas.tables import ROUTES


def keys(routes: DataFrame) -> int:
    return routes.select("route_key", "targets").count()


def test_batches_read_the_routes_that_are_in_memory(spark: SparkSession, tmp_path: Path) -> None:
    """Whoever reads the table, however it is written in the plan, gets what was last taken over; no file is read."""
    tables = str(tmp_path)
    write_routes(tmp_path, 3, lambda _: [1])
    routes = RoutesInMemory(spark, tables)
    assert routes.refresh()
    planned_before = read_table(spark, tables, ROUTES)
    try:
        write_routes(tmp_path, 5, lambda _: [1])
        assert keys(read_table(spark, tables, ROUTES)) == 1 + 3
        assert routes.refresh()
        assert keys(read_table(spark, tables, ROUTES)) == keys(planned_before.select("*")) == 1 + 5
        assert not routes.refresh(), "nothing has changed"
        tick = {"as_of": "to_timestamp_micros(5000000)"}
        DeltaTable(table_uri(tables, ROUTES)).update(updates=tick, predicate="route_key = '#'")
        assert routes.refresh()
        (row,) = read_table(spark, tables, ROUTES).where("route_key = '#'").selectExpr("unix_micros(as_of)").collect()
        assert row[0] == 5_000_000
        plan = planned_before._jdf.queryExecution().executedPlan().toString()
        assert "InMemoryTableScan" in plan or "InMemoryRelation" in plan
    finally:
        spark.catalog.clearCache()
