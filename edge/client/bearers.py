"""Makes the client's bearer. Each is imported when it is used: who uses MQTT need not pay the memory of the others."""

from edge.client.bearer_client import BearerClient, BearerHooks
from edge.client.limits import Limits
from edge.client.options import Options
from edge.client.outbox import Outbox
from edge.client.store import Recovered


def make_bearer(options: Options, limits: Limits, outbox: Outbox, found: Recovered, hooks: BearerHooks) -> BearerClient:
    """The bearer of these connect points, or the one that access points are asked for. `found` is what the outbox held.
    Raises MissingPackage."""
    match options.family:
        case "http":
            from edge.client.http_bearer import HttpBearer

            return HttpBearer(options, limits, outbox, found, hooks)
        case "kafka":
            from edge.client.kafka_bearer import KafkaBearer

            return KafkaBearer(options, limits, outbox, found, hooks)
        case _:
            from edge.client.mqtt_bearer import MqttBearer

            return MqttBearer(options, limits, outbox, found, hooks)
