"""The topic a router reads: whether it is still the one that its offsets are of, and what of it was deleted unread."""

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
    """The topic `name` for the query `stream`, which begins where one of its `elders` is if it has no positions of its
    own; checkpoints are under the directory or URI `tables`.

    A router has no other state than its offsets, and yet does not begin a topic that was made again by itself: gateways
    take the new one's messages for copies of those that had their offsets before.
    """

    def __init__(self, kafka: Kafka, name: str, stream: StreamId, elders: Sequence[StreamId], tables: str) -> None:
        self._kafka = kafka
        self.name = name
        self._stream = stream
        self._elders = elders
        self._tables = tables
        self._id = ""

    def begin(self) -> str | None:
        """Where the query is to begin, as Spark's option `startingOffsets`; None for its own positions, or for the
        beginning. Says what was deleted before it was read, and goes on behind it. Raises TopicReplaced, TopicUnknown.

        Asks the broker: tens of milliseconds. The query is stopped.
        """
        topic = self._broker.read(self.name)
        own = SkippingCheckpoint(self._stream, self._tables)
        elders = (Checkpoint(elder, self._tables) for elder in self._elders)
        begun = next((checkpoint for checkpoint in (own, *elders) if checkpoint.taken()), own)
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
        """Between two batches of the query that was begun, which has taken all before `taken` (by partition). Says what
        was deleted meanwhile. Raises TopicReplaced: Spark would go on with whatever topic has the name.

        A broker that does not answer says nothing; the query will, if it cannot go on.
        """
        try:
            topic = self._broker.read(self.name)
        except TopicUnknown as error:
            log.debug("the topic was not looked at", error=str(error))
            return
        if topic.id != self._id:
            raise self._replaced(self._stream.checkpoint(self._tables))
        self._say_lost(topic, taken)

    @cached_property
    def _broker(self) -> KafkaTopics:
        return KafkaTopics(self._kafka)

    def _replaced(self, uri: str) -> TopicReplaced:
        return TopicReplaced(
            f"topic {self.name} was deleted and made again since query {self._stream.query} has read it, and what it "
            f"had not routed of the old one is lost: give the platform another kafka.prefix; or, to have the new one "
            f"routed from its beginning, stop the routers, remove {uri} and start them, but gateways drop what has "
            f"offsets that they have seen"
        )

    def _say_lost(self, topic: ReadTopic, taken: Mapping[int, int]) -> None:
        for part in lost(topic, taken):
            log.error("records lost: deleted before they were read", router=self._stream.query, **part._asdict())
