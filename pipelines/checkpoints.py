"""What the checkpoint of a query says of its sources: positions, for another that is to go on from there."""

import json
from collections.abc import Iterable, Mapping

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from pipelines.streams import StreamId

Files = Mapping[str, Mapping[int, bytes]]
"""`offsets` and `commits` of a checkpoint: the content of each file by its batch number."""


def inherited_positions(spark: SparkSession, stream: StreamId, elders: Iterable[StreamId], tables: str) -> str | None:
    """Where a query that has committed nothing begins: Kafka's `startingOffsets` as JSON, the positions after the last
    committed batch of the first of `elders` that has one. None if the stream has positions of its own, or none has.

    What the elder has done since that batch is done again: nothing is left out. Raises what Spark raises if a
    checkpoint cannot be read: to begin at the beginning for that would route all of it again.
    """
    if _positions(spark, stream.checkpoint(tables)):
        return None
    found = (_positions(spark, elder.checkpoint(tables)) for elder in elders)
    return next(filter(None, found), None)


def committed_positions(files: Files) -> str | None:
    """The last line of the newest offsets that are committed; a batch has more than one source nowhere here."""
    done = files.get("offsets", {}).keys() & files.get("commits", {}).keys()
    if not done:
        return None
    text = files["offsets"][max(done)].decode().rstrip().rpartition("\n")[2]
    return text if isinstance(json.loads(text), dict) else None


def _positions(spark: SparkSession, checkpoint: str) -> str | None:
    files: dict[str, dict[int, bytes]] = {}
    for log in ("commits", "offsets"):
        try:
            found = spark.read.format("binaryFile").load(f"{checkpoint}/{log}").select("path", "content")
        except AnalysisException:  # there is no such directory
            return None
        numbered = ((path.rpartition("/")[2], bytes(content)) for path, content in found.collect())
        files[log] = {int(name): content for name, content in numbered if name.isdecimal()}
    return committed_positions(files)
