"""The topics on a broker: creates the declared ones, reads their end offsets."""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from jobs.errors import TopicsError
from schemas.settings import Settings
from schemas.topics import DAY_MS, ESSENTIAL, Topic, Topics

TIMEOUT_S = 20.0
ELECTION_S = 10.0
AS_THE_BROKER_SAYS = -1
"""Replicas: the broker's `default.replication.factor`."""
BETWEEN_LEADERS = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._NOENT,
)
"""Errors of an existing partition: its leader learns of it only a moment after its creation."""


class _NoLeader(TopicsError):
    """A partition has no leader for a moment, as after its creation or the broker's restart: ask again."""


class TopicEnd(NamedTuple):
    """The end offset of each partition of a topic."""

    name: str
    end_offsets: list[int]


def declared_topics(settings: Settings) -> list[Topic]:
    """All topics of an installation, as its settings require them."""
    kafka, feeds = settings.kafka, settings.feeds
    kept_ms = kafka.retention_days * DAY_MS
    return list(
        Topics(kafka.prefix).declared(kafka.ingress_partitions, kafka.shards, kept_ms, feeds.names, feeds.partitions)
    )


def admin_client(bootstrap: str, client: Mapping[str, str]) -> AdminClient:
    """Raises TopicsError for settings that the Kafka client does not know or allow."""
    try:
        return AdminClient({"log_level": 2, **client, "bootstrap.servers": bootstrap})
    except KafkaException as error:
        raise TopicsError(
            f"kafka.client cannot be used: {error.args[0].str()}; correct it as librdkafka's list of configuration "
            "properties says"
        ) from error


def missing_topics(admin: AdminClient, declared: Iterable[Topic]) -> list[Topic]:
    """Those of the declared topics that do not exist yet.

    Raises TopicsError, which names them all, if some exist with another number of partitions.
    """
    wanted, existing = list(declared), _partition_counts(admin)
    there = [topic for topic in wanted if topic.name in existing]
    if differ := [topic for topic in there if existing[topic.name] != topic.partitions]:
        each = ", ".join(
            f"topic {topic.name} has {existing[topic.name]} partitions, but the configuration says {topic.partitions}"
            for topic in differ
        )
        raise TopicsError(
            f"{each}: the number cannot change once a topic exists; restore the old number, or use another "
            f"kafka.prefix or --data directory"
        )
    return [topic for topic in wanted if topic.name not in existing]


def create_topics(admin: AdminClient, declared: Iterable[Topic], replicas: int = AS_THE_BROKER_SAYS) -> list[str]:
    """Create the missing topics and wait until they can be used; returns the names of those created.

    Raises TopicsError if a topic exists with another number of partitions, or the broker refuses.
    """
    missing = missing_topics(admin, declared)
    if missing:
        _create(admin, missing, replicas)
        _ends(admin, {topic.name: topic.partitions for topic in missing})
    return [topic.name for topic in missing]


def other_settings(admin: AdminClient, there: Iterable[Topic]) -> dict[str, dict[str, str]]:
    """For existing topics, by name: the settings that differ from the declaration, with their values.

    Raises TopicsError, which names them all, if topics differ in settings that the platform cannot do without
    (:data:`schemas.topics.ESSENTIAL`), or the broker refuses to answer.
    """
    declared = {topic.name: topic for topic in there}
    if not declared:
        return {}
    asked = [ConfigResource(ResourceType.TOPIC, name) for name in declared]
    found: dict[str, dict[str, str]] = {}
    for resource, future in admin.describe_configs(asked, request_timeout=TIMEOUT_S).items():
        entries, wanted = _result(future), declared[resource.name].config
        found[resource.name] = {name: entries[name].value for name in wanted if entries[name].value != wanted[name]}
    if wrong := [(name, key) for name, others in found.items() for key in others if key in ESSENTIAL]:
        each = ", ".join(
            f"topic {name} has {key}={found[name][key]}, but needs {declared[name].config[key]}" for name, key in wrong
        )
        raise TopicsError(
            f"{each}: change it with kafka-configs --alter before you start anything, or delete the topic"
        )
    return found


def topic_ends(admin: AdminClient, prefix: str, timeout_s: float = TIMEOUT_S) -> list[TopicEnd]:
    """The end offsets of every topic under `prefix`, ordered by name. Raises TopicsError if the broker does not give
    its first answer within `timeout_s`, or a later one within TIMEOUT_S."""
    counts = {name: count for name, count in _partition_counts(admin, timeout_s).items() if name.startswith(prefix)}
    return _ends(admin, counts)


@retry(retry=retry_if_exception_type(_NoLeader), stop=stop_after_delay(ELECTION_S), wait=wait_fixed(0.1), reraise=True)
def _ends(admin: AdminClient, counts: Mapping[str, int]) -> list[TopicEnd]:
    asked = {TopicPartition(name, n): OffsetSpec.latest() for name, count in counts.items() for n in range(count)}
    if not asked:
        return []
    ends: dict[tuple[str, int], int] = {}
    try:
        for partition, future in admin.list_offsets(asked, request_timeout=TIMEOUT_S).items():
            ends[partition.topic, partition.partition] = _result(future).offset
    except _NoLeader:
        _partition_counts(admin)  # otherwise the client may go on using what it has cached of the topic
        raise
    return [TopicEnd(name, [ends[name, n] for n in range(count)]) for name, count in sorted(counts.items())]


def _partition_counts(admin: AdminClient, timeout_s: float = TIMEOUT_S) -> dict[str, int]:
    try:
        metadata = admin.list_topics(timeout=timeout_s)
    except KafkaException as error:
        raise TopicsError(
            f"the broker does not answer: {error.args[0].str()}; check kafka.bootstrap and kafka.client"
        ) from error
    return {name: len(topic.partitions) for name, topic in metadata.topics.items()}


def _create(admin: AdminClient, topics: list[Topic], replicas: int) -> None:
    new = [NewTopic(t.name, num_partitions=t.partitions, replication_factor=replicas, config=t.config) for t in topics]
    for future in admin.create_topics(new, operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S).values():
        _result(future, but=KafkaError.TOPIC_ALREADY_EXISTS)


def _result(future: "Future[Any]", but: int | None = None) -> Any:
    """The future's result; an error becomes a TopicsError, except for the error code `but`."""
    try:
        return future.result()
    except KafkaException as error:
        code = error.args[0].code()
        if code == but:
            return None
        if code in BETWEEN_LEADERS:
            raise _NoLeader(f"the broker is not ready: {error.args[0].str()}") from error
        raise TopicsError(f"the broker refused the request: {error.args[0].str()}") from error
