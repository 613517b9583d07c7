"""The identity of a streaming query: one name for the query, its checkpoint and its Delta transactions."""

from typing import NamedTuple

STANDBY = "-standby"
"""Suffix of the name of a router's standby query (`router.standby_query`)."""


class StreamId(NamedTuple):
    """`query` says what is computed, `generation` how often it was started afresh.

    The query and its checkpoint have the same name, so they always match. A new generation starts with a new
    checkpoint, counts its batches from 0 again, and resumes where its table ends
    (:mod:`pipelines.kafka.starting_offsets`). Commits to a table identify their batch by Spark's id of the query, which
    changes with the checkpoint too.
    """

    query: str
    generation: int = 1

    @property
    def name(self) -> str:
        return f"{self.query}-{self.generation}"

    @classmethod
    def parse(cls, name: str) -> "StreamId":
        """The identity with this name; a name without a generation counts as the first generation."""
        query, _, generation = name.rpartition("-")
        return cls(query, int(generation)) if query and generation.isdecimal() else cls(name)

    def checkpoint(self, tables: str, table: str | None = None) -> str:
        """The location of the checkpoint: under the table the query writes, or beside the tables if it writes a topic.

        Delta and its readers ignore names that begin with an underscore.
        """
        return f"{tables}/{table}/_checkpoints/{self.name}" if table else f"{tables}/_checkpoints/{self.name}"
