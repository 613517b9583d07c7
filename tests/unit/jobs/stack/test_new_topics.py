"""Topics just created: the broker that leads a partition learns of it a moment later than the one that created it."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from jobs.errors import TopicsError
from jobs.stack.topics import admin_client, create_topics
from schemas.topics import Topic

TOPIC = Topic("t.ingress", 2, {})


class Broker:
    """Has no topics yet; asked how far those go that it has created, it answers with `errors` first, one a question."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)

    def list_topics(self, timeout: float) -> SimpleNamespace:
        return SimpleNamespace(topics={})

    def create_topics(self, new: list[Any], **_: float) -> dict[str, "Future[None]"]:
        return {topic.topic: done(None) for topic in new}

    def list_offsets(self, asked: dict[TopicPartition, Any], **_: float) -> dict[TopicPartition, "Future[Any]"]:
        if self.errors:
            refusal = KafkaException(KafkaError(self.errors.pop(0)))
            return {partition: failed(refusal) for partition in asked}
        return {partition: done(SimpleNamespace(offset=0)) for partition in asked}


def done(value: Any) -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def failed(error: Exception) -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


@pytest.mark.parametrize("error", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE])
def test_they_are_waited_for(error: int) -> None:
    broker: Any = Broker(error, error)
    assert create_topics(broker, [TOPIC]) == [TOPIC.name]
    assert broker.errors == []


def test_a_refusal_is_told() -> None:
    broker: Any = Broker(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(TopicsError, match="the broker refused the request"):
        create_topics(broker, [TOPIC])


def test_a_setting_that_the_kafka_client_refuses_is_named() -> None:
    with pytest.raises(TopicsError, match=r'^kafka\.client .*: No such configuration property: "foo\.bar"; '):
        admin_client("127.0.0.1:9092", {"foo.bar": "1"})
