"""How far the ledger has the topics of feeds, which come and go while it runs.

The rules are those of :mod:`pipelines.kafka.starting_offsets` and :mod:`pipelines.kafka.positions`, for each topic by
itself. In addition:

* A topic that is created later is read from its beginning. Spark finds it by itself; what it is (its id) is asked of
  the broker when a batch has it for the first time.
* A topic that is deleted, or replaced by another of its name, ends the query, because Spark does not plan a batch
  without it. At the next start the topic is taken out of the checkpoint, and reported. To delete a feed is a decision
  of an operator; it must not stop the ledger of the others.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from deltalake import Transaction

from pipelines.kafka import positions
from pipelines.kafka.broker_topics import KafkaTopics
from pipelines.kafka.positions import EARLIEST, Lost, Offsets, ReadTopic, lost
from pipelines.kafka.starting_offsets import RecordsDeleted
from pipelines.storage.checkpoints import TOPICS, Checkpoint
from pipelines.storage.table_files import TableFiles
from pipelines.streams import StreamId
from schemas.table import Table


class Ended(NamedTuple):
    """A topic that is not the one that was read: it was deleted, or deleted and created again. `taken` is how far it
    was read, by partition."""

    topic: str
    is_replaced: bool
    taken: Mapping[int, int]


class FeedTopics:
    """The topics of feeds, as the broker last described them."""

    def __init__(self, broker: KafkaTopics, prefix: str) -> None:
        self._broker = broker
        self._known = {name: broker.read(name) for name in broker.named(prefix)}

    @property
    def known(self) -> list[ReadTopic]:
        return list(self._known.values())

    def of(self, names: Iterable[str]) -> tuple[list[ReadTopic], bool]:
        """These topics, and whether any of them was not known before. Raises TopicUnknown."""
        wanted = list(names)
        new = [name for name in wanted if name not in self._known]
        self._known |= {name: self._broker.read(name) for name in new}
        return [self._known[name] for name in wanted], bool(new)


class FeedCheckpoint(Checkpoint):
    """The checkpoint of the query that reads them."""

    def __init__(self, stream: StreamId, tables: str, table: str) -> None:
        super().__init__(stream, tables, table)

    def record(self, topics: Iterable[ReadTopic]) -> None:
        """Record which topics the offsets belong to. Raises DamagedCheckpoint."""
        known = self._topic_ids()
        ids = known | {topic.name: topic.id for topic in topics}
        if ids != known:
            self.write(TOPICS, json.dumps(ids).encode())

    def settle(self, topics: Sequence[ReadTopic]) -> list[Ended]:
        """Make the query go on with `topics`: those that have ended are taken out, and returned; those that are new,
        and whose oldest records are deleted already, are read from what is there.

        Call it only while the query is stopped. It rewrites what Spark reads at its start: where the last batch ended.
        A crash leaves each file in its old or its new state.
        """
        ids, there = self._topic_ids(), {topic.name: topic for topic in topics}
        finished = self._batches("commits")
        begun = sorted(batch for batch in self._batches("offsets") if batch >= max(finished, default=0))
        ended: dict[str, Ended] = {}
        for batch in begun:
            reached = self.reached(batch)
            for name, taken in reached.items():
                topic = there.get(name)
                if topic is None or ids.get(name, topic.id) != topic.id:
                    ended.setdefault(name, Ended(name, topic is not None, taken))
            kept = {name: of for name, of in reached.items() if name not in ended}
            late = {name: dict(topic.begins) for name, topic in there.items() if any(topic.begins.values())}
            settled = {name: kept.get(name) or late[name] for name in kept.keys() | late.keys()}
            if settled != reached:
                self._rewrite(batch, settled)
        self.record(topics)
        return list(ended.values())

    def _rewrite(self, batch: int, reached: Mapping[str, Mapping[int, int]]) -> None:
        name = f"offsets/{batch}"
        lines = self._read(name).splitlines()
        text = {topic: {str(n): offset for n, offset in of.items()} for topic, of in reached.items()}
        self.write(name, "\n".join([*lines[:2], json.dumps(text)]).encode())
        self.remove(f"offsets/.{batch}.crc")  # Hadoop's, for the file as it was


class FeedFiles(TableFiles):
    """The files of `feed_copies`: each commit records how far the table has every topic of a feed."""

    def __init__(self, uri: str, table: Table, topics: FeedTopics, checkpoint: FeedCheckpoint) -> None:
        super().__init__(uri, table)
        self._topics = topics
        self._of_feeds = checkpoint
        self._has: dict[str, dict[int, int]] = {}
        self._made: tuple[int, list[Transaction]] = -1, []

    def has_of(self, topic: ReadTopic) -> dict[int, int]:
        """How far the table has a topic, by partition; asked of the table once, which has one writer."""
        if topic.id not in self._has:
            self._has[topic.id] = positions.recorded_in(self._delta, topic)
        return self._has[topic.id]

    def partitions(self, batch_id: int) -> dict[str, int]:
        """The number of partitions of each topic that a batch reads. Raises TopicUnknown."""
        reached = self._of_feeds.reached(batch_id)
        topics, has_new = self._topics.of(reached)
        if has_new:
            self._of_feeds.record(topics)
        return {name: len(of) for name, of in reached.items()}

    def _positions_after(self, batch_id: int) -> list[Transaction]:
        """Only what has moved: the rest is in the table's log. The same for each attempt to commit a batch."""
        if self._made[0] != batch_id:
            self._made = batch_id, self._moved_by(self._of_feeds.reached(batch_id))
        return self._made[1]

    def _moved_by(self, reached: Offsets) -> list[Transaction]:
        made = positions.transactions(ReadTopic("", "", {}), {})
        for topic in self._topics.of(reached)[0]:
            has = self.has_of(topic)
            # Never less than before: a query that re-reads its topics may be behind its table.
            moved = {n: offset for n, offset in reached[topic.name].items() if offset > has.get(n, -1)}
            made += positions.transactions(topic, moved)[1:]
            self._has[topic.id] = has | moved
        return made


def resolve_feeds(
    topics: Sequence[ReadTopic],
    checkpoint: FeedCheckpoint,
    table: FeedFiles,
    on_lost: Callable[[Lost], None],
    on_ended: Callable[[Ended], None],
) -> str:
    """Where the query starts, as Spark's option `startingOffsets`; `topics` are those of feeds that there are.

    `on_lost` is called for records that are neither in the table nor on their topics, `on_ended` for topics that are
    not there any more. Raises RecordsDeleted, DamagedCheckpoint.
    """
    if not checkpoint.is_new:
        for ended in checkpoint.settle(topics):
            on_ended(ended)
        taken = checkpoint.taken()
        gone = [part for topic in topics for part in lost(topic, taken.get(topic.name, {}))]
        if gone:
            raise RecordsDeleted(
                f"the broker deleted records of topic {gone[0].topic} before they were read, from offset "
                f"{gone[0].first} of partition {gone[0].partition} on: to continue without them, stop the ledger, "
                f"remove {checkpoint.uri} and start it again"
            )
        return EARLIEST
    checkpoint.record(topics)
    for topic in topics:
        for part in lost(topic, table.has_of(topic)):
            on_lost(part)
    if not any(table.has_of(topic) for topic in topics):
        return EARLIEST
    return json.dumps(
        {
            topic.name: {
                str(partition): max(oldest, table.has_of(topic).get(partition, 0))
                for partition, oldest in topic.begins.items()
            }
            for topic in topics
        }
    )
