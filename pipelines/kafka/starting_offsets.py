"""Where a query starts reading, and which losses it must not skip silently."""

from collections.abc import Callable

from pipelines.kafka.positions import EARLIEST, Lost, ReadTopic, beginning, lost
from pipelines.storage.checkpoints import Checkpoint
from pipelines.storage.table_files import TableFiles
from schemas.errors import WaystationError


class PositionsUnknown(WaystationError):
    """A query has no checkpoint, and its table does not record its positions: starting afresh would duplicate all
    rows."""


class RecordsDeleted(WaystationError):
    """The broker deleted records before the query read them."""


def resolve(topic: ReadTopic, checkpoint: Checkpoint, table: TableFiles | None, on_lost: Callable[[Lost], None]) -> str:
    """Where a query with a new `checkpoint` starts reading `topic`, as Spark's option `startingOffsets`: where its
    `table` ends, if it writes one, otherwise at the oldest record.

    `on_lost` is called for records that are neither in the table nor on the topic. Raises TopicReplaced,
    PositionsUnknown, RecordsDeleted.
    """
    checkpoint.belongs_to(topic)
    if not checkpoint.is_new:
        gone = lost(topic, checkpoint.taken().get(topic.name, {}))
        if gone:
            raise RecordsDeleted(
                f"the broker deleted records of topic {topic.name} before they were read: {_listed(gone)}; to continue "
                f"without them, stop the ledger, remove {checkpoint.uri} and start it again"
            )
        return EARLIEST
    if table is None:
        return EARLIEST
    if table.is_silent:
        raise PositionsUnknown(
            f"{checkpoint.uri} is missing, and its table was written by an earlier version, which did not record its "
            f"offsets: restore the checkpoint, or move the table away to have it rewritten from what Kafka still has"
        )
    reached = table.has_of_topic()
    for part in lost(topic, reached):
        on_lost(part)
    return beginning(topic, reached)


def _listed(gone: list[Lost]) -> str:
    return ", ".join(f"offsets {part.first} to {part.end - 1} of partition {part.partition}" for part in gone)
