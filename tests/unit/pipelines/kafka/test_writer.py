"""Writing records from the driver, without a broker."""

import pytest

from pipelines.kafka.writer import KafkaWriter, NotWritten, Out
from pipelines.sources import Kafka


def test_a_record_that_is_too_large_for_the_client_is_named() -> None:
    """The client refuses it before it is sent."""
    writer = KafkaWriter(Kafka("127.0.0.1:1", {"log_level": 0}))
    with pytest.raises(NotWritten, match=r"a record of 2000001 bytes for t: .*Message size too large"):
        writer.write([Out("t", 0, b"k", bytes(2_000_000))])
