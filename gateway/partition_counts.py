"""Whether the topics have as many partitions as the configuration says (G4).

The numbers say to which shard a client belongs, and where its messages are. A gateway with another number than the one
with which the topics were made would look for sessions where they are not, or leave messages unread, and two gateways
with different numbers would both have the same client.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException

from gateway.errors import BusError
from schemas.errors import SettingsError
from schemas.settings import KafkaSettings
from schemas.topics import NO_GROUP, Topics

_ANSWER_S: Final = 30.0


def partition_counts(settings: Mapping[str, Any], topics: Iterable[str]) -> dict[str, int]:
    """The number of partitions of each of these topics that exist; `settings` are those of the Kafka client. Waits in
    the calling thread. Raises BusError."""
    consumer = Consumer(dict(settings) | {"group.id": NO_GROUP, "enable.auto.commit": False})
    found: dict[str, int] = {}
    try:
        for topic in topics:
            about = consumer.list_topics(topic, timeout=_ANSWER_S).topics[topic]
            if about.error is None:
                found[topic] = len(about.partitions)
            elif about.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:  # whoever reads it says that it is missing
                raise KafkaException(about.error)
    except KafkaException as error:
        raise BusError(f"Kafka does not say which partitions there are: {error.args[0].str()}") from error
    finally:
        consumer.close()
    return found


def topics_that_count(topics: Topics) -> list[str]:
    """Those on which it depends where a client's session and its messages are."""
    return [*_settings_of(topics)]


def check_partitions(found: Mapping[str, int], topics: Topics, kafka: KafkaSettings) -> None:
    """`found`: the number of partitions by topic. Raises SettingsError if the configuration says another one."""
    for topic, setting in _settings_of(topics).items():
        configured = getattr(kafka, setting)
        if found.get(topic, configured) != configured:
            raise SettingsError(
                f"kafka.{setting} = {configured}, but the topic {topic} has {found[topic]} partitions: the number "
                "cannot change once the topics exist, and all parts of a site need the same"
            )


def _settings_of(topics: Topics) -> dict[str, str]:
    """The setting in `[kafka]` by topic."""
    return {
        topics.egress: "shards",
        topics.sessions: "shards",
        topics.spool: "shards",
        topics.ingress: "ingress_partitions",
    }
