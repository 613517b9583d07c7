"""The identity of a streaming query: one name for the query, its checkpoint and its Delta transactions."""

from typing import NamedTuple


class StreamId(NamedTuple):
    """`query` says what it computes, `generation` how often it was begun anew.

    The name is query name, checkpoint name and `txnAppId` at once, so that they cannot part: Delta skips a transaction
    it has seen from the same application, and a new checkpoint counts its batches from 0 again. A new generation
    replays its topics from the beginning.
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
