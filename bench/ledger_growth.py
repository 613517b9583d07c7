"""Whether the ledger's work grows with what it has: batches of the same size, in turns, over tables of few and of many
rows; and how much it remembers as time goes by: an hour's messages, spread over days, through the queries that drop
copies and find completions. Once the window is full, what comes in pushes out as much; and of what is complete nothing
is kept.
"""

import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any, NamedTuple

from confluent_kafka import Producer
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from bench.figures import Figures
from bench.life import Written, life, stream, write_batch
from bench.processes import fresh_directory
from jobs.ledger.queries import queries
from jobs.stack.topics import admin_client, create_topics
from pipelines.ledger import completion, history
from pipelines.ledger.completion_sink import CompletionSink
from pipelines.sinks import ensure_tables, files_of
from pipelines.sources import table_uri
from pipelines.storage.appends import Appends
from pipelines.storage.local_database import file_of, measures_of
from pipelines.storage.seen import SeenKeys
from pipelines.storage.table_files import TableFiles
from pipelines.streams import StreamId
from schemas.events import ProgressEvent, encode
from schemas.settings import DAY_S, process_settings
from schemas.table import Table
from schemas.tables import COMPLETIONS, INSTRUCTIONS, MESSAGES, OUTCOMES
from schemas.topics import DAY_MS, Topics

PARTITIONS, SHARDS = 2, 4
WINDOW_DAYS = 1
HOUR_MS = 60 * 60 * 1000
BEGIN_MS = 1_790_000_000_000
HOURS = 40
FULL = 26
"""Hours after which there is as much as there ever is: a window, the hour by which it is over, and the batch after."""

AWAY_HOURS = 6
"""So long the second of two recipients of each message is away: so many hours' messages are in flight."""

FILLED: tuple[Table, ...] = (MESSAGES, INSTRUCTIONS, OUTCOMES, COMPLETIONS)
MEASURED = ("messages", "instructions", "outcomes", "completion", "completions")
ROWS_A_FILE = 20_000
"""What is appended every 100 s at 200 messages a second: many small files, as before a compaction."""

DAYS = 10
FILLER = "filled"
WARM_ROUNDS = 4
"""The first batches of a session are compiled, and make their stores of state."""

Write = Callable[[DataFrame, int], None]


class Ledger(NamedTuple):
    """Queries over tables of their own, by name."""

    topics: Topics
    running: dict[str, StreamingQuery]


class TablesBench:
    def __init__(self, spark: SparkSession, figures: Figures, bootstrap: str) -> None:
        self._spark = spark
        self._figures = figures
        self._bootstrap = bootstrap
        self._producer = Producer({"bootstrap.servers": bootstrap})

    def run(self, few: int, many: int, rounds: int, messages: int) -> None:
        """Records `ledger_batch_ms_<rows>`, the time of a batch of `messages`, all queries one after the other, with so
        many rows in the tables, medians of `rounds`; and the second by the first as `ledger_batch_ratio_20m`."""
        with fresh_directory() as directory:
            ledgers = {rows: self._ledger(directory / f"{rows}", rows) for rows in (few, many)}
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
        kafka = {"BOOTSTRAP": self._bootstrap, "PREFIX": topics.prefix}
        own = {"DATA": str(data), "LEDGER__TRIGGER_S": "0.1", **{f"KAFKA__{name}": kafka[name] for name in kafka}}
        settings = process_settings({f"WAYSTATION_{name}": value for name, value in own.items()})
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
                self._producer.produce(prefix + one.topic, one.value, one.key, one.partition, headers=headers)  # type: ignore[arg-type]
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


class Kept(NamedTuple):
    """A query that remembers something: its rows, what takes them, and how many `messages` it has to know at a time."""

    rows: DataFrame
    write: Write
    messages: int


def completion_sink(directory: Path, partitions: int, shards: int, kept_s: int) -> CompletionSink:
    """The sink of the query that finds completions, with its state in `directory`; it reports them to nobody."""
    nowhere: Any = SimpleNamespace(write=lambda records: deque(records, maxlen=0))
    return CompletionSink(nowhere, "completion", partitions, shards, kept_s, directory, lambda _spark: None)


class StateBench:
    """Batches of `messages` each, an hour apart, HOURS of them."""

    def __init__(self, spark: SparkSession, figures: Figures, messages: int) -> None:
        self._spark = spark
        self._figures = figures
        self._messages = messages

    def run(self) -> None:
        """Records for each query `state_rows_per_message_<query>`, what it remembers by the messages that it has to
        know, at the end, and `state_growth_<query>`: the most by what it was when the window was full."""
        with fresh_directory() as directory:
            topics, away = directory / "topics", directory / "away"
            for hour in range(HOURS):
                numbers = range(hour * self._messages, (hour + 1) * self._messages)
                begin_ms = BEGIN_MS + hour * HOUR_MS - numbers.start * 5
                write_batch(topics, hour, life(numbers, PARTITIONS, SHARDS, begin_ms))
                write_batch(away, hour, self._with_one_away(hour))
            for name, kept in self._queries(directory, topics, away).items():
                sizes = self._sizes(kept, file_of(directory, name), directory / name)
                self._figures.add(f"state_rows_per_message_{name}", round(sizes[-1] / kept.messages, 2))
                self._figures.add(f"state_growth_{name}", round(max(sizes[FULL:]) / sizes[FULL], 3))

    def _queries(self, directory: Path, topics: Path, away: Path) -> dict[str, Kept]:
        tables, kept_s = str(directory / "tables"), WINDOW_DAYS * DAY_S
        ensure_tables(tables)

        def appended(topic: str, table: Table, rows_of: Callable[[DataFrame], DataFrame]) -> Kept:
            files, _ = files_of(StreamId(table.name), tables, table, None)
            seen = SeenKeys(file_of(directory, table.name), table.key, kept_s, files.since)
            write = Appends(files, lambda bad: None, seen)
            return Kept(rows_of(stream(self._spark, topics, topic)), write, WINDOW_DAYS * 24 * self._messages)

        sink = completion_sink(directory, PARTITIONS, SHARDS, kept_s)
        relinquished = completion.relinquished(stream(self._spark, away, "progress"))
        return {
            "instructions": appended("egress", INSTRUCTIONS, history.instructions),
            "outcomes": appended("progress", OUTCOMES, history.outcomes),
            "completions": appended("completion", COMPLETIONS, history.completions),
            "completion": Kept(relinquished, sink, AWAY_HOURS * self._messages),
        }

    def _with_one_away(self, hour: int) -> Iterator[Written]:
        """What is relinquished in an hour: the first instruction of this hour's messages, and the second and last one
        of those that were sent AWAY_HOURS before."""
        for number, sent in ((0, hour), (1, hour - AWAY_HOURS)):
            for n in range(self._messages if sent >= 0 else 0):
                event = ProgressEvent(
                    kind="relinquish",
                    id=f"{sent:04}-{n:08}",
                    partition=0,
                    offset=n,
                    appended_ms=BEGIN_MS + sent * HOUR_MS,
                    shard=number,
                    number=number,
                    limit=2 if number else None,
                )
                at_ms = BEGIN_MS + hour * HOUR_MS
                yield Written(n, "progress", n % PARTITIONS, n, event.id.encode(), encode(event), at_ms)

    def _sizes(self, kept: Kept, file: Path, checkpoint: Path) -> list[int]:
        """Rows that are remembered after each batch."""
        sizes: list[int] = []

        def taken(batch: DataFrame, batch_id: int) -> None:
            kept.write(batch, batch_id)
            sizes.append((measures_of(file) or {})["rows"])

        query = kept.rows.writeStream.foreachBatch(taken).option("checkpointLocation", str(checkpoint)).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        return sizes
