"""The gateway's producer: idempotent, stored by all replicas, and it never gives up on its own."""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException, Producer

from gateway.kafka_stats import STATISTICS_MS, KafkaStats
from schemas.errors import SettingsError
from schemas.topics import LARGEST_RECORD


def make_producer(settings: Mapping[str, Any], stats: KafkaStats) -> Producer:
    """With these settings of the Kafka client; `stats` gets what it reports about itself. Raises SettingsError for
    settings that the client does not know or allow."""
    own = {
        "acks": "all",
        "enable.idempotence": True,
        "linger.ms": 0,
        # Records that arrive during a request are collected for the next: fewer, fuller requests cost less than
        # half. Without a request in flight, nothing waits.
        "max.in.flight.requests.per.connection": 1,
        "message.timeout.ms": 0,
        "message.max.bytes": LARGEST_RECORD,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 1_048_576,
        "compression.type": "none",
        "statistics.interval.ms": STATISTICS_MS,
        "stats_cb": stats.take_producer,
    }
    try:
        return Producer(dict(settings) | own)
    except KafkaException as error:
        raise SettingsError(
            f"kafka.client cannot be used: {error.args[0].str()}; correct it as librdkafka's list of configuration "
            "properties says"
        ) from error
