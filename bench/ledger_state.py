"""How much state the ledger keeps as time goes by: an hour's messages, spread over days, through the queries that drop
copies and find completions. Once the window is full, what comes in pushes out as much.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession

from bench.figures import Figures
from bench.life import life
from bench.recorded import stream, write_batch
from pipelines import completion, ledger

PARTITIONS, SHARDS = 2, 4
WINDOW_DAYS = 1
HOUR_MS = 60 * 60 * 1000
BEGIN_MS = 1_790_000_000_000
HOURS = 76
FULL = 50
"""Hours after which there is as much state as there ever is: two windows, for Spark keeps what copies are told by for a
window and lets go of it a window late; the hour by which that is done, and the batch after it."""


class StateBench:
    """Batches of `messages` each, an hour apart, HOURS of them."""

    def __init__(self, spark: SparkSession, figures: Figures, messages: int) -> None:
        self._spark = spark
        self._figures = figures
        self._messages = messages

    def run(self) -> None:
        """Records for each query `state_rows_per_message_<query>`, rows of state by the messages of one window at the
        end, and `state_growth_<query>`: rows at the end by those when the window was full for the first time."""
        with TemporaryDirectory(prefix="waystation-bench-") as directory:
            topics = Path(directory) / "topics"
            for hour in range(HOURS):
                numbers = range(hour * self._messages, (hour + 1) * self._messages)
                begin_ms = BEGIN_MS + hour * HOUR_MS - numbers.start * 5
                write_batch(topics, hour, life(numbers, PARTITIONS, SHARDS, begin_ms))
            queries = {
                "instructions": ledger.instructions(stream(self._spark, topics, "egress"), WINDOW_DAYS),
                "outcomes": ledger.outcomes(stream(self._spark, topics, "progress"), WINDOW_DAYS),
                "completions": ledger.completions(stream(self._spark, topics, "completion"), WINDOW_DAYS),
                "completion": completion.completions(stream(self._spark, topics, "progress"), SHARDS, WINDOW_DAYS),
            }
            for name, rows in queries.items():
                sizes = self._sizes(rows, Path(directory) / name)
                in_window = WINDOW_DAYS * 24 * self._messages
                self._figures.add(f"state_rows_per_message_{name}", round(sizes[-1] / in_window, 2))
                self._figures.add(f"state_growth_{name}", round(max(sizes[FULL:]) / sizes[FULL], 3))

    def _sizes(self, rows: DataFrame, checkpoint: Path) -> list[int]:
        """Rows of state after each batch."""
        writer = rows.writeStream.format("noop").outputMode("update")
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        try:
            query.processAllAvailable()
            batches = [progress for progress in query.recentProgress if progress.numInputRows]
            return [sum(operator.numRowsTotal for operator in batch.stateOperators) for batch in batches]
        finally:
            query.stop()
