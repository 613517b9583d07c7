"""One publisher and one subscriber for measuring what clients see: the client of `edge`."""

import asyncio
import ssl
import time
from collections.abc import Callable

from bench.mqtt_clients import PAYLOAD, VERSION
from edge.link import Address
from edge.mqtt_client import MqttClient
from mqtt.client_limits import ClientLimits
from mqtt.client_outbound import MESSAGES_MAX
from mqtt.client_session import ClientSession
from mqtt.packets import Connect, Publish

DRAIN_S = 30.0


class LoadClient:
    """`latencies_ms` from the time at the head of each payload. What is published goes out at once, however much is
    unacknowledged."""

    def __init__(self, port: int, client_id: str, tls: ssl.SSLContext | None) -> None:
        self.latencies_ms: list[float] = []
        self.mqtt = MqttClient(
            Address("127.0.0.1", port, tls),
            Connect(client_id, version=VERSION),
            session=ClientSession(queue_max=MESSAGES_MAX),
            limits=ClientLimits(in_flight_max=MESSAGES_MAX),
            on_message=self._received,
        )

    @classmethod
    async def connect(cls, port: int, client_id: str, tls: ssl.SSLContext | None = None) -> "LoadClient":
        client = cls(port, client_id, tls)
        await client.mqtt.connect()
        return client

    def publish(self, topic: str, qos: int) -> None:
        payload = b"%020d" % time.perf_counter_ns() + b"x" * (len(PAYLOAD) - 20)
        self.mqtt.publish(topic, payload, qos)

    def _received(self, message: Publish) -> None:
        self.latencies_ms.append((time.perf_counter_ns() - int(message.payload[:20])) / 1e6)


async def publish_while(
    goes_on: Callable[[int], bool], port: int, qos: int, rate: float, topic: str, tls: ssl.SSLContext | None = None
) -> tuple[list[float], list[float]]:
    """One publisher through the whole platform to one subscriber, at `rate` messages a second while it `goes_on`, which
    is told how many were sent; both with `tls`, or neither.

    Of each message, in order, when it was sent (seconds of `time.perf_counter`), and how much later it came (ms).
    Raises RuntimeError if the subscriber does not get each once.
    """
    subscriber = await LoadClient.connect(port, f"bench-sub-{qos}-{time.time_ns()}", tls)
    publisher = await LoadClient.connect(port, f"bench-pub-{qos}-{time.time_ns()}", tls)
    await subscriber.mqtt.subscribe(topic, qos=qos)
    sent: list[float] = []
    began = time.perf_counter()
    while goes_on(len(sent)):
        sent.append(time.perf_counter())
        publisher.publish(topic, qos)
        await asyncio.sleep(max(0.0, began + len(sent) / rate - time.perf_counter()))
    deadline = time.monotonic() + DRAIN_S
    while len(subscriber.latencies_ms) < len(sent) and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    for client in (subscriber, publisher):
        await client.mqtt.disconnect()
    if len(subscriber.latencies_ms) != len(sent):
        raise RuntimeError(f"QoS {qos}: {len(subscriber.latencies_ms)} messages came of {len(sent)}")
    return sent, subscriber.latencies_ms
