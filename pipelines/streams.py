"""The identity of a streaming query: one name for the query, its checkpoint and its Delta transactions."""

from typing import NamedTuple


class StreamId(NamedTuple):
    """`query` says what it computes, `generation` how often it was begun anew.

    The name is query name and checkpoint name at once, so that they cannot part. A new generation begins with a new
    checkpoint, counts its batches from 0 again, and goes on where its table ends
    (:mod:`pipelines.kafka.starting_offsets`). What
    its commits to a table say of the batch they hold goes with the checkpoint too: it is Spark's id of the query.
    """

    query: str
    generation: int = 1

    @property
    def name(self) -> str:
        return f"{self.query}-{self.generation}"

    @classmethod
    def parse(cls, name: str) -> "StreamId":
        """The identity whose name is `name`; a name without a generation is taken as a first one."""
        query, _, generation = name.rpartition("-")
        return cls(query, int(generation)) if query and generation.isdecimal() else cls(name)

    def checkpoint(self, tables: str, table: str | None = None) -> str:
        """Where the checkpoint stands: under the table the query writes, or beside the tables if it writes a topic.

        Delta and its readers pass over names that begin with an underscore.
        """
        return f"{tables}/{table}/_checkpoints/{self.name}" if table else f"{tables}/_checkpoints/{self.name}"
