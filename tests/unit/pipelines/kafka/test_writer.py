"""Writing records from the driver, without a broker."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from pipelines.kafka import writer as writer_module
from pipelines.kafka.writer import KafkaWriter, NotWritten, Out
from pipelines.sources import Kafka


def test_a_record_that_is_too_large_for_the_client_is_named() -> None:
    """The client refuses it before it is sent."""
    writer = KafkaWriter(Kafka("127.0.0.1:1", {"log_level": 0}))
    with pytest.raises(NotWritten, match=r"a record of 2000001 bytes for t: .*Message size too large"):
        writer.write([Out("t", 0, b"k", bytes(2_000_000))])


class LeaderlessConsumer:
    """Of the partitions asked for, the last one has no leader just now; in the others nothing is so young."""

    def __init__(self, _settings: dict[str, Any]) -> None: ...

    def offsets_for_times(self, asked: list[TopicPartition], _timeout_s: float) -> list[Any]:
        *others, last = asked
        found = [SimpleNamespace(partition=one.partition, offset=-1, error=None) for one in others]
        error = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
        return [*found, SimpleNamespace(partition=last.partition, offset=-1001, error=error)]

    def assign(self, _: list[TopicPartition]) -> None: ...

    def close(self) -> None: ...


def test_a_partition_that_cannot_be_asked_is_not_taken_for_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """R12: otherwise messages that are on it would be written a second time."""
    monkeypatch.setattr(writer_module, "Consumer", LeaderlessConsumer)
    with pytest.raises(NotWritten, match="t cannot be read"):
        list(KafkaWriter(Kafka("127.0.0.1:1", {"log_level": 0})).since("t", 3, 0))
