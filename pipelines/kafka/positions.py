"""Positions: how far a query or a table has the records of its topics.

Every commit to a table records which records the table has: one transaction per partition, whose version is the first
offset the table does not have. A query that has lost its checkpoint, or is of a new generation, resumes from there.
Topics are identified by id. A topic that was deleted and recreated under the same name is a different topic, and no
table has any of it yet.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

from deltalake import DeltaTable, Transaction

EARLIEST = "earliest"
KNOWN = "positions"
"""Name of the transaction that marks a table as recording its positions. Tables of earlier versions lack it."""

NOTHING_YET = "-"
"""What Spark's log of offsets has for a source without offsets (`OffsetSeqLog.SERIALIZED_VOID_OFFSET`)."""

Offsets = dict[str, dict[int, int]]
"""The first offset not taken, by topic and partition."""


class ReadTopic(NamedTuple):
    """A topic that a query reads, as it is on the broker now. `begins`: the oldest existing offset of each
    partition."""

    name: str
    id: str
    begins: Mapping[int, int]


class Lost(NamedTuple):
    """Records that the broker deleted before they were read: offsets `first` to `end` - 1 of a partition."""

    topic: str
    partition: int
    first: int
    end: int


def offsets(text: str | None) -> Offsets:
    """Offsets as Spark's Kafka source reports them. Empty if `text` has none (another source, or nothing yet)."""
    try:
        return logged_offsets(text or NOTHING_YET)
    except ValueError:
        return {}


def logged_offsets(line: str) -> Offsets:
    """The offsets of one source in Spark's log of offsets. Empty if it is no Kafka source, or had nothing yet. Raises
    ValueError if the line is damaged, for example cut off: that must not pass for no offsets."""
    found = None if line == NOTHING_YET else json.loads(line)
    if not isinstance(found, dict) or not all(isinstance(of, dict) for of in found.values()):
        return {}
    try:
        return {topic: {int(n): int(offset) for n, offset in of.items()} for topic, of in found.items()}
    except TypeError as error:
        raise ValueError(str(error)) from error


def recorded_in(table: DeltaTable, topic: ReadTopic) -> dict[int, int]:
    """How far the table has `topic`, by partition; empty if it has nothing of it."""
    recorded = {partition: table.transaction_version(_name(topic, partition)) for partition in topic.begins}
    return {partition: offset for partition, offset in recorded.items() if offset is not None}


def transactions(topic: ReadTopic, reached: Mapping[int, int]) -> list[Transaction]:
    """The transactions that record these positions in a commit."""
    recorded = [Transaction(_name(topic, partition), offset) for partition, offset in reached.items()]
    return [Transaction(KNOWN, 1), *recorded]


def is_silent(table: DeltaTable) -> bool:
    """Whether a table has rows but does not record its positions."""
    return bool(table.file_uris()) and table.transaction_version(KNOWN) is None


def beginning(topic: ReadTopic, reached: Mapping[int, int]) -> str:
    """The position from which to read a topic when everything before `reached` is present, as Spark's option
    `startingOffsets`."""
    if not reached:
        return EARLIEST
    starts = {partition: max(oldest, reached.get(partition, 0)) for partition, oldest in topic.begins.items()}
    return json.dumps({topic.name: starts})


def lost(topic: ReadTopic, reached: Mapping[int, int]) -> list[Lost]:
    """What the broker deleted before it could be read, given that everything before `reached` was read."""
    return [
        Lost(topic.name, partition, reached[partition], oldest)
        for partition, oldest in topic.begins.items()
        if reached.get(partition, oldest) < oldest
    ]


def _name(topic: ReadTopic, partition: int) -> str:
    return f"{topic.id}/{partition}"
