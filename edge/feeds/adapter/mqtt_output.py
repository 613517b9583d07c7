"""The output for plain MQTT subscribers, if `[feed] mqtt` asks for it (S2, S3)."""

from collections.abc import Sequence

from edge.feeds.adapter.kafka_writer import KafkaWriter, TopicRecord
from edge.feeds.adapter.outputs import Output
from edge.feeds.adapter.settings import AdapterSettings
from edge.feeds.ingress_output import IngressOutput
from schemas.topics import Topics


def mqtt_outputs(settings: AdapterSettings) -> Sequence[Output]:
    """What an adapter writes beside `feed.<name>`."""
    if not settings.feed.mqtt:
        return ()
    writer = KafkaWriter(settings.kafka, Topics(settings.kafka.prefix).ingress)
    return (IngressOutput(settings.feed.name, writer, TopicRecord),)
