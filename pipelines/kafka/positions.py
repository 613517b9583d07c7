"""How far a query, or a table, has what stands on its topics.

A table says with every commit which records it has: a transaction for each partition, whose version is the first offset
that it has not. A query that has lost its checkpoint, or whose generation is new, goes on from there. Topics are told
apart by their ids: one that was deleted and made again under the same name is another one, which no table has yet.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

from deltalake import DeltaTable, Transaction

EARLIEST = "earliest"
KNOWN = "positions"
"""Names the transaction which says that the table tells its positions; tables of earlier versions do not."""

Offsets = dict[str, dict[int, int]]
"""By topic and partition the first offset that is not taken."""


class ReadTopic(NamedTuple):
    """A topic that a query reads, as the broker has it now. `begins`: by partition the oldest offset there is."""

    name: str
    id: str
    begins: Mapping[int, int]


class Lost(NamedTuple):
    """Records that the broker had deleted before they were read: those of a partition from `first` to before `end`."""

    topic: str
    partition: int
    first: int
    end: int


def offsets(text: str | None) -> Offsets:
    """Offsets as Spark's Kafka source writes them down; empty for what is none (another source, nothing yet)."""
    try:
        found = json.loads(text or "")
        return {topic: {int(n): int(offset) for n, offset in of.items()} for topic, of in found.items()}
    except (TypeError, ValueError, AttributeError):
        return {}


def told_by(table: DeltaTable, topic: ReadTopic) -> dict[int, int]:
    """By partition, how far the table has `topic`; empty if it has nothing of it."""
    told = {partition: table.transaction_version(_name(topic, partition)) for partition in topic.begins}
    return {partition: offset for partition, offset in told.items() if offset is not None}


def transactions(topic: ReadTopic, reached: Mapping[int, int]) -> list[Transaction]:
    """What tells it, for a commit."""
    told = [Transaction(_name(topic, partition), offset) for partition, offset in reached.items()]
    return [Transaction(KNOWN, 1), *told]


def is_silent(table: DeltaTable) -> bool:
    """Whether a table has rows and does not tell its positions."""
    return bool(table.file_uris()) and table.transaction_version(KNOWN) is None


def beginning(topic: ReadTopic, reached: Mapping[int, int]) -> str:
    """Where to begin a topic of which all before `reached` is there, as Spark's option `startingOffsets`."""
    if not reached:
        return EARLIEST
    starts = {partition: max(oldest, reached.get(partition, 0)) for partition, oldest in topic.begins.items()}
    return json.dumps({topic.name: starts})


def lost(topic: ReadTopic, reached: Mapping[int, int]) -> list[Lost]:
    """What was deleted before it could be read, if all before `reached` was."""
    return [
        Lost(topic.name, partition, reached[partition], oldest)
        for partition, oldest in topic.begins.items()
        if reached.get(partition, oldest) < oldest
    ]


def _name(topic: ReadTopic, partition: int) -> str:
    return f"{topic.id}/{partition}"
