"""What the checkpoint of a query says of its sources: positions, for a generation that goes on where another is."""

import json
from collections.abc import Mapping
from itertools import count

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipelines.streams import StreamId

Files = Mapping[str, Mapping[int, bytes]]
"""`offsets` and `commits` of a checkpoint: the content of each file by its batch number."""


def inherited_positions(spark: SparkSession, stream: StreamId, tables: str) -> str | None:
    """Where a generation begins: Kafka's `startingOffsets` as JSON, the positions after the last committed batch of the
    youngest earlier generation that has one. None if the stream has positions of its own, or there are none at all.

    What the earlier generation did since that batch is done again: nothing is left out.
    """
    if stream.generation == 1 or _positions(spark, stream.checkpoint(tables)):
        return None
    earlier = (stream._replace(generation=number) for number in count(stream.generation - 1, -1))
    for one in earlier:
        if one.generation < 1:
            return None
        if found := _positions(spark, one.checkpoint(tables)):
            return found
    return None


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
            found = spark.read.format("binaryFile").load(f"{checkpoint}/{log}").select("path", "content").collect()
        except PySparkException:
            return None
        numbered = ((path.rpartition("/")[2], bytes(content)) for path, content in found)
        files[log] = {int(name): content for name, content in numbered if name.isdecimal()}
    return committed_positions(files)
