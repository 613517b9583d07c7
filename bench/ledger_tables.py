"""Whether a batch takes longer because the tables are large: batches of the same size, in turns, over tables of few and
of many rows, by the ledger's own queries in one session."""

import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from confluent_kafka import Producer
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from bench.figures import Figures
from bench.life import life
from jobs.ledger.queries import queries
from jobs.stack.topics import admin_client, create_topics
from pipelines.sinks import ensure_tables
from pipelines.sources import table_uri
from pipelines.storage.table_files import TableFiles
from schemas.settings import Settings
from schemas.tables import COMPLETIONS, INSTRUCTIONS, MESSAGES, OUTCOMES, Table
from schemas.topics import DAY_MS, Topics

SHARDS = 4
FILLED: tuple[Table, ...] = (MESSAGES, INSTRUCTIONS, OUTCOMES, COMPLETIONS)
MEASURED = ("messages", "instructions", "outcomes", "completion", "completions")
ROWS_A_FILE = 20_000
"""What is appended every 100 s at 200 messages a second: many small files, as before a compaction."""

DAYS = 10
FILLER = "filled"
WARM_ROUNDS = 4
"""The first batches of a session are compiled, and make their stores of state."""


class Ledger(NamedTuple):
    """Queries over tables of their own, by name."""

    topics: Topics
    running: dict[str, StreamingQuery]


class TablesBench:
    """`settings` for a directory and a prefix of topics."""

    def __init__(
        self, spark: SparkSession, figures: Figures, bootstrap: str, settings: Callable[[Path, str], Settings]
    ) -> None:
        self._spark = spark
        self._figures = figures
        self._bootstrap = bootstrap
        self._settings = settings
        self._producer = Producer({"bootstrap.servers": bootstrap})

    def run(self, few: int, many: int, rounds: int, messages: int) -> None:
        """Records `ledger_batch_ms_<rows>`, the time of a batch of `messages`, all queries one after the other, with so
        many rows in the tables, medians of `rounds`; and the second by the first as `ledger_batch_ratio_20m`."""
        with TemporaryDirectory(prefix="waystation-bench-") as directory:
            ledgers = {rows: self._ledger(Path(directory) / f"{rows}", rows) for rows in (few, many)}
            found: dict[int, list[float]] = {few: [], many: []}
            try:
                for number in range(WARM_ROUNDS + rounds):
                    # In turns, or always the same one would find the processors as the other has left them.
                    for rows, ledger in sorted(ledgers.items(), reverse=number % 2 == 1):
                        took_ms = self._batch(ledger, 1 + number * messages, messages)
                        if number >= WARM_ROUNDS:
                            found[rows].append(took_ms)
            finally:
                for ledger in ledgers.values():
                    for query in ledger.running.values():
                        query.stop()
        for rows, took in found.items():
            self._figures.add(f"ledger_batch_ms_{rows}", round(median(took)))
        self._figures.add("ledger_batch_ratio_20m", round(median(found[many]) / median(found[few]), 3))

    def _ledger(self, data: Path, rows: int) -> Ledger:
        topics = Topics(f"rows{rows}.")
        create_topics(admin_client(self._bootstrap, {}), topics.declared(2, SHARDS, DAY_MS))
        settings = self._settings(data, topics.prefix)
        ensure_tables(settings.tables)
        # A session of its own: names of queries are the same in each. They have done a batch before there are rows, or
        # they would want to know how far the tables have the topics.
        starts = queries(self._spark.newSession(), settings, time.time)
        begun = Ledger(topics, {name: starts[name]() for name in MEASURED})
        self._batch(begun, 0, 1)
        for query in begun.running.values():
            query.stop()
        for table in FILLED:
            fill(self._spark, settings.tables, table, rows // len(FILLED))
        # What is remembered of copies is made anew from the tables: as much as there would be after so many rows.
        shutil.rmtree(data / "states")
        return Ledger(topics, {name: starts[name]() for name in MEASURED})

    def _batch(self, ledger: Ledger, first: int, count: int) -> float:
        """Puts the records of `count` messages on the topics and has each query take them; milliseconds of its work."""
        known = {name: last_batch(query) for name, query in ledger.running.items()}
        prefix, begin_ms = ledger.topics.prefix, int(time.time() * 1000) - 5 * (first + count) - 1000
        for one in life(range(first, first + count), 2, SHARDS, begin_ms):
            if one.topic in ("ingress", "egress", "progress"):
                headers = list(one.headers or [])
                self._producer.produce(prefix + one.topic, one.value, one.key, one.partition, headers=headers)
        self._producer.flush(60)
        return sum(work_ms(query, known[name]) for name, query in ledger.running.items())


def last_batch(query: StreamingQuery) -> int:
    """The number of the last batch that has ended; -1 if none has since the query was started."""
    last = query.lastProgress
    return -1 if last is None else last.batchId


def work_ms(query: StreamingQuery, known: int) -> float:
    """Has a query take all there is; what its batches took after the batch `known`. It began on its own, when the
    records came."""
    query.processAllAvailable()
    return float(sum(each.batchDuration for each in query.recentProgress if each.numInputRows and each.batchId > known))


def fill(spark: SparkSession, tables: str, table: Table, rows: int) -> None:
    """Rows of the past DAYS, in files of ROWS_A_FILE and a commit for each day."""
    files = TableFiles(table_uri(tables, table), table)
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    a_day = rows // DAYS
    for day in range(DAYS):
        files.has(FILLER, day)  # looks at the table as it is now
        begin = today - timedelta(days=DAYS - day)
        made = spark.range(a_day).repartition(max(1, a_day // ROWS_A_FILE))
        columns = [value_of(column.name, column.type, begin).alias(column.name) for column in table.columns]
        files.commit(files.write(made.select(*columns), day), FILLER, day)


def value_of(name: str, kind: str, begin: datetime) -> Column:
    """Something of the type, different from row to row; times within the day from `begin` on."""
    number = F.col("id")
    at = F.lit(begin) + F.make_dt_interval(secs=(number % 86_400).cast("decimal(16,6)"))
    values: dict[str, Column] = {
        "string": F.concat(F.lit(f"{name}-"), number.cast("string")),
        "int": (number % SHARDS).cast("int"),
        "long": number,
        "boolean": F.lit(False),
        "binary": F.expr("CAST(uuid() AS BINARY)"),
        "timestamp": at,
        "date": F.lit(begin.date()),
    }
    return values[kind]
