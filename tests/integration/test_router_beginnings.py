"""What a router's query begins with: the routes in memory, and the positions of another query (R5)."""

from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from bench.routes import write_routes
from pipelines.checkpoints import inherited_positions
from pipelines.routes_in_memory import RoutesInMemory
from pipelines.sources import read_table, table_uri
from pipelines.streams import StreamId
from schemas.tables import ROUTES

OFFSETS = 'v1\n{"batchWatermarkMs":0}\n{"ws.ingress":{"0":%d}}'


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


def write_checkpoint(tables: Path, stream: StreamId, batches: int, committed: int) -> None:
    """Batch n of it ends at offset 10 n."""
    for log, content in (("offsets", OFFSETS), ("commits", "v1\n{}")):
        directory = Path(stream.checkpoint(str(tables))) / log
        directory.mkdir(parents=True)
        (directory / f".{batches}.crc").write_bytes(b"crc")
        for batch in range(batches if log == "offsets" else committed):
            (directory / f"{batch}").write_text(content % (10 * batch) if log == "offsets" else content)


def test_a_new_generation_begins_where_the_one_before_it_has_committed(spark: SparkSession, tmp_path: Path) -> None:
    """R5: what the old one has written since may come twice, and nothing is left out."""
    tables, stream = str(tmp_path), StreamId("router-active", 4)
    elders = [stream._replace(generation=number) for number in (3, 2, 1)]
    assert inherited_positions(spark, stream, elders, tables) is None
    write_checkpoint(tmp_path, StreamId("router-active", 1), batches=2, committed=2)
    write_checkpoint(tmp_path, StreamId("router-active", 2), batches=12, committed=11)
    write_checkpoint(tmp_path, StreamId("router-active", 3), batches=1, committed=0)
    assert inherited_positions(spark, stream, elders, tables) == '{"ws.ingress":{"0":100}}'
    write_checkpoint(tmp_path, stream, batches=1, committed=1)
    assert inherited_positions(spark, stream, elders, tables) is None, "it has positions of its own"
