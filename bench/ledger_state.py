"""How much the ledger remembers as time goes by: an hour's messages, spread over days, through the queries that drop
copies and find completions. Once the window is full, what comes in pushes out as much; and of what is complete nothing
is kept.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from bench.figures import Figures
from bench.life import Written, life
from bench.recorded import stream, write_batch
from pipelines.kafka.writer import Out
from pipelines.ledger import completion, history
from pipelines.ledger.completion_sink import CompletionSink
from pipelines.sinks import ensure_tables, files_of
from pipelines.storage.appends import Appends
from pipelines.storage.local_database import file_of, measures_of
from pipelines.storage.seen import SeenKeys
from pipelines.streams import StreamId
from schemas.events import ProgressEvent, encode
from schemas.settings import DAY_S
from schemas.tables import COMPLETIONS, INSTRUCTIONS, OUTCOMES, Table

PARTITIONS, SHARDS = 2, 4
WINDOW_DAYS = 1
HOUR_MS = 60 * 60 * 1000
BEGIN_MS = 1_790_000_000_000
HOURS = 40
FULL = 26
"""Hours after which there is as much as there ever is: a window, the hour by which it is over, and the batch after."""

AWAY_HOURS = 6
"""So long the second of two recipients of each message is away: so many hours' messages are in flight."""

Write = Callable[[DataFrame, int], None]


class Kept(NamedTuple):
    """A query that remembers something: its rows, what takes them, and how many `messages` it has to know at a time."""

    rows: DataFrame
    write: Write
    messages: int


class Nowhere:
    """Takes records and writes none."""

    def write(self, records: Iterable[Out]) -> None:
        deque(records, maxlen=0)


class StateBench:
    """Batches of `messages` each, an hour apart, HOURS of them."""

    def __init__(self, spark: SparkSession, figures: Figures, messages: int) -> None:
        self._spark = spark
        self._figures = figures
        self._messages = messages

    def run(self) -> None:
        """Records for each query `state_rows_per_message_<query>`, what it remembers by the messages that it has to
        know, at the end, and `state_growth_<query>`: the most by what it was when the window was full."""
        with TemporaryDirectory(prefix="waystation-bench-") as directory:
            topics, away = Path(directory) / "topics", Path(directory) / "away"
            for hour in range(HOURS):
                numbers = range(hour * self._messages, (hour + 1) * self._messages)
                begin_ms = BEGIN_MS + hour * HOUR_MS - numbers.start * 5
                write_batch(topics, hour, life(numbers, PARTITIONS, SHARDS, begin_ms))
                write_batch(away, hour, self._with_one_away(hour))
            for name, kept in self._queries(Path(directory), topics, away).items():
                sizes = self._sizes(kept, file_of(Path(directory), name), Path(directory) / name)
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

        nowhere: Any = Nowhere()
        sink = CompletionSink(nowhere, "completion", PARTITIONS, SHARDS, kept_s, directory, lambda _spark: None)
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
