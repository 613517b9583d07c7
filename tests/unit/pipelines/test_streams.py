"""The one identity of a stream."""

import pytest

from pipelines.sources import Kafka
from pipelines.streams import StreamId


def test_name_checkpoint_and_generation() -> None:
    stream = StreamId("messages", 2)
    assert stream.name == "messages-2"
    assert stream.checkpoint("/t", "messages") == "/t/messages/_checkpoints/messages-2"
    assert stream.checkpoint("s3://b/t") == "s3://b/t/_checkpoints/messages-2"


@pytest.mark.parametrize("stream", [StreamId("messages"), StreamId("router-active", 7), StreamId("a_b", 12)])
def test_parse_is_the_inverse_of_name(stream: StreamId) -> None:
    assert StreamId.parse(stream.name) == stream


def test_a_name_without_generation_is_a_first_one() -> None:
    assert StreamId.parse("router-active") == StreamId("router-active")
    assert StreamId.parse("plain") == StreamId("plain")


def test_client_settings_are_spelled_for_java() -> None:
    client = {"security.protocol": "SASL_SSL", "sasl.mechanisms": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
    options = Kafka("b:9092", client).options()
    assert options["kafka.bootstrap.servers"] == "b:9092"
    assert options["kafka.sasl.mechanism"] == "PLAIN"
    assert 'username="u" password="p"' in options["kafka.sasl.jaas.config"]
    assert not {"kafka.sasl.username", "kafka.sasl.password", "kafka.sasl.mechanisms"} & options.keys()


def test_no_batch_waits_for_records_that_are_not_there() -> None:
    """A source's consumer asks for the next records before it asks how far the topic goes, and the broker answers in
    order: with Kafka's half second every batch of the ledger waited that long for each partition."""
    kafka = Kafka("b:9092", {"security.protocol": "PLAINTEXT"})
    assert kafka.source_options() == kafka.options() | {"kafka.fetch.max.wait.ms": "5"}
