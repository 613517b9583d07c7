"""The topic a router reads: whether its offsets still belong to it, and which records were deleted unread."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import structlog

from pipelines.kafka.broker_topics import KafkaTopics, TopicUnknown
from pipelines.kafka.positions import ReadTopic, beginning, lost
from pipelines.sources import Kafka
from pipelines.storage.checkpoints import Checkpoint, TopicReplaced
from pipelines.storage.skipping import SkippingCheckpoint
from pipelines.streams import StreamId

log = structlog.get_logger(__name__)


class RouterTopic:
    """The topic `name` for the query `stream`. Without positions of its own the query starts from those of one of its
    `previous` (its previous generation, or its role's query); checkpoints are under the directory or URI `tables`.

    A router has no other state than its offsets, but must not start on a recreated topic by itself: gateways take the
    new topic's messages for copies of those that had their offsets before.
    """

    def __init__(self, kafka: Kafka, name: str, stream: StreamId, previous: Sequence[StreamId], tables: str) -> None:
        self._kafka = kafka
        self.name = name
        self._stream = stream
        self._previous = previous
        self._tables = tables
        self._id = ""

    def begin(self) -> str | None:
        """The position to start from, as Spark's option `startingOffsets`; None for the query's own positions, or for
        the beginning. Logs records deleted before they were read, and continues after them. Raises TopicReplaced,
        TopicUnknown.

        Asks the broker: tens of milliseconds. The query is stopped.
        """
        topic = self._broker.read(self.name)
        own = SkippingCheckpoint(self._stream, self._tables)
        previous = (Checkpoint(stream, self._tables) for stream in self._previous)
        begun = next((checkpoint for checkpoint in (own, *previous) if checkpoint.taken()), own)
        for checkpoint in (begun, own):
            try:
                checkpoint.belongs_to(topic)
            except TopicReplaced:
                raise self._replaced(checkpoint.uri) from None
        self._id = topic.id
        taken = begun.taken().get(self.name, {})
        self._say_lost(topic, taken)
        if begun is own:
            own.skip(topic)
            return None
        return beginning(topic, taken)

    def look(self, taken: Mapping[int, int]) -> None:
        """Check between two batches of the running query, which has processed all before `taken` (by partition). Logs
        records deleted meanwhile. Raises TopicReplaced: Spark would go on with any topic of that name.

        If the broker does not answer, nothing is reported; the query fails if it cannot go on.
        """
        try:
            topic = self._broker.read(self.name)
        except TopicUnknown as error:
            log.debug("cannot check the topic", topic=self.name, error=str(error))
            return
        if topic.id != self._id:
            raise self._replaced(self._stream.checkpoint(self._tables))
        self._say_lost(topic, taken)

    @cached_property
    def _broker(self) -> KafkaTopics:
        return KafkaTopics(self._kafka)

    def _replaced(self, uri: str) -> TopicReplaced:
        return TopicReplaced(
            f"topic {self.name} was deleted and created again after query {self._stream.query} had read it, and its "
            f"unrouted messages are lost: set another kafka.prefix; or stop the routers, remove {uri} and start them "
            f"again to route the new topic from its beginning, but then gateways drop messages at offsets that they "
            f"have already seen"
        )

    def _say_lost(self, topic: ReadTopic, taken: Mapping[int, int]) -> None:
        for part in lost(topic, taken):
            log.error("records lost, deleted before they were read", router=self._stream.query, **part._asdict())
