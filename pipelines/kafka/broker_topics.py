"""What the broker reports about the topics that queries read."""

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from pipelines.kafka.positions import ReadTopic
from pipelines.sources import Kafka
from schemas.errors import WaystationError

TIMEOUT_S = 5.0
"""How long each request waits while the broker is unreachable."""


class TopicUnknown(WaystationError):
    """The broker did not report what a query has to know about its topic."""


class KafkaTopics:
    """Queries a broker. Safe for use by many threads."""

    def __init__(self, kafka: Kafka) -> None:
        self._admin = AdminClient({"log_level": 2, **kafka.client, "bootstrap.servers": kafka.bootstrap})

    def named(self, prefix: str) -> list[str]:
        """The names of the topics that begin with `prefix`. Raises TopicUnknown."""
        try:
            return sorted(name for name in self._admin.list_topics(timeout=TIMEOUT_S).topics if name.startswith(prefix))
        except KafkaException as error:
            raise TopicUnknown(f"topics cannot be listed: {error.args[0].str()}") from error

    def read(self, name: str) -> ReadTopic:
        """The current state of the topic. Raises TopicUnknown."""
        try:
            asked = self._admin.describe_topics(TopicCollection([name]), request_timeout=TIMEOUT_S)
            topic = asked[name].result()
            oldest = {TopicPartition(name, part.id): OffsetSpec.earliest() for part in topic.partitions}
            found = self._admin.list_offsets(oldest, request_timeout=TIMEOUT_S)
            begins = {partition.partition: offset.result().offset for partition, offset in found.items()}
        except KafkaException as error:
            raise TopicUnknown(f"topic {name} cannot be read: {error.args[0].str()}") from error
        return ReadTopic(name, str(topic.topic_id), dict(sorted(begins.items())))
