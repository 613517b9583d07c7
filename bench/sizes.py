"""`python -m bench.sizes`: how much room things take, for docs/capacity.md; a minute, no broker.

* bytes a row of each history table, as the ledger's own queries append it from batches of so many messages, and after
  compaction;
* bytes a row of what the queries that drop copies remember, and a message of what is in flight for the query that finds
  completions;
* bytes a route of what a router broadcasts;
* bytes of the records on Kafka.

Times, clients and topics are as a fleet of devices has them; payloads are random, so nothing compresses them.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.kafka_load import write_routes
from bench.ledger_growth import completion_sink
from bench.life import SPARK_SCHEMA, Written, life, stream, write_batch
from jobs.runtime.spark_session import build_session
from pipelines.ledger import completion, history
from pipelines.routing.instructions import RoutingPlan, route
from pipelines.routing.routes import routes_history
from pipelines.routing.routes_in_memory import RoutesInMemory
from pipelines.sinks import Remembered, append_to_table, ensure_tables
from pipelines.storage.local_database import file_of, measures_of
from pipelines.streams import StreamId
from schemas import tables
from schemas.settings import DAY_S

PARTITIONS = 6
SHARDS = 12
WINDOW_DAYS = 7
BATCHES = 10
HAVE_COPIES = (tables.INSTRUCTIONS, tables.OUTCOMES, tables.COMPLETIONS)
TOPICS = "topics"
RECORD_OVERHEAD = 12
"""Of a record in Kafka's format (KIP-98): lengths, attributes, deltas; a batch's own 61 bytes are shared by many."""
HEADER_OVERHEAD = 2

BEGIN_MS = 1_790_000_000_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.sizes", description=__doc__)
    parser.add_argument("--messages", type=int, default=2000, help="messages in a batch")
    parser.add_argument("--routes", type=int, nargs="*", default=[10_000, 200_000])
    options = parser.parse_args()
    with TemporaryDirectory() as directory:
        spark = build_session("sizes", "local[2]", {"spark.sql.adaptive.enabled": "false"})
        measure_rows(spark, Path(directory) / "rows", options.messages)
        for count in options.routes:
            size = broadcast_bytes(spark, Path(directory) / str(count), count)
            say(f"routes {count}: {size / count:.0f} bytes a route broadcast")
        spark.stop()
    return 0


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def measure_rows(spark: SparkSession, directory: Path, messages: int) -> None:
    for batch in range(BATCHES):
        numbers = range(batch * messages, (batch + 1) * messages)
        found = [one for one in life(numbers, PARTITIONS, SHARDS, BEGIN_MS) if not one.is_copy]
        write_batch(directory / TOPICS, batch, found)
        sizes = Counter[str]()
        for one in found:
            sizes[one.topic] += kafka_bytes(one)
    for topic, size in sizes.items():
        say(f"topic {topic}: {size // messages} bytes a record")
    ensure_tables(str(directory))
    for table, topic, transform in queries():
        append(spark, directory, table, topic, transform)
    states(spark, directory)


def kafka_bytes(one: Written) -> int:
    headers = sum(len(name) + len(content) + HEADER_OVERHEAD for name, content in one.headers or [])
    return RECORD_OVERHEAD + len(one.key) + len(one.value) + headers


def queries() -> list[tuple[tables.Table, str, Callable[[DataFrame], DataFrame]]]:
    return [
        (tables.MESSAGES, "ingress", history.messages),
        (tables.INSTRUCTIONS, "egress", history.instructions),
        (tables.OUTCOMES, "progress", history.outcomes),
        (tables.COMPLETIONS, "completion", history.completions),
        (tables.PRESENCE_HISTORY, "presence", history.presence_history),
        (tables.ROUTES_HISTORY, "routes", lambda records: routes_history(records, 25.0)),
    ]


def append(
    spark: SparkSession, directory: Path, table: tables.Table, topic: str, transform: Callable[[DataFrame], DataFrame]
) -> None:
    rows = transform(stream(spark, directory / TOPICS, topic))
    bad = (lambda batch: None) if "quarantined" in rows.columns else None
    states = directory / "states"
    seen = Remembered(states, WINDOW_DAYS * DAY_S) if table in HAVE_COPIES else None
    query = append_to_table(rows, StreamId(table.name), str(directory), table, 0.1, bad, seen=seen)
    query.processAllAvailable()
    query.stop()
    delta = DeltaTable(str(directory / table.name))
    count, batches = stored(delta)
    delta.optimize.compact()
    _, compacted = stored(DeltaTable(str(directory / table.name)))
    state = (measures_of(file_of(states, table.name)) or {"disk_bytes": 0})["disk_bytes"]
    say(
        f"table {table.name}: {batches / count:.0f} bytes a row in batches of {count // BATCHES}, "
        f"{compacted / count:.0f} in one file; state {state / count:.0f}"
    )


def stored(table: DeltaTable) -> tuple[int, int]:
    """Rows and bytes."""
    files = pa.table(table.get_add_actions(flatten=True)).to_pydict()
    return sum(files["num_records"]), sum(files["size_bytes"])


def states(spark: SparkSession, directory: Path) -> None:
    """The query that finds completions writes no table."""
    sink = completion_sink(directory, PARTITIONS, SHARDS, WINDOW_DAYS * DAY_S)
    rows = completion.relinquished(stream(spark, directory / TOPICS, "progress")).withColumn("limit", F.lit(2))
    query = rows.writeStream.foreachBatch(sink).option("checkpointLocation", str(directory / "completion")).start()
    query.processAllAvailable()
    query.stop()
    count = sum(file.num_rows for file in map(pq.read_metadata, (directory / TOPICS / "progress").glob("*.parquet")))
    size = (measures_of(file_of(directory, "completion")) or {})["disk_bytes"]
    say(f"query completion: state {size / count:.0f} bytes a message in flight")


def broadcast_bytes(spark: SparkSession, directory: Path, routes: int) -> int:
    """What the join with the routes table broadcasts, as Spark's own metric has it."""
    directory.mkdir()
    write_routes(directory, routes, lambda number: [number % SHARDS])
    held = RoutesInMemory(spark, str(directory), StreamId("bench"))
    held.refresh()
    plan = RoutingPlan("egress", "progress", 6, SHARDS, 25.0, "active")
    messages = spark.createDataFrame([], SPARK_SCHEMA)
    routed = route(messages, held.read(), plan)
    executed = routed._jdf.queryExecution().executedPlan()
    executed.execute().count()
    return max(exchange_sizes(executed))


def exchange_sizes(node: Any) -> Iterator[int]:
    if "BroadcastExchange" in node.nodeName():
        yield int(node.metrics().apply("dataSize").value())
    children = node.children()
    for index in range(children.size()):
        yield from exchange_sizes(children.apply(index))


if __name__ == "__main__":
    sys.exit(main())
