"""A light MQTT client for measuring: the gateway's own codec over asyncio, one publisher and one subscriber."""

import asyncio
import ssl
import time
from collections.abc import Callable

from bench.mqtt_clients import PAYLOAD, VERSION, Asking
from mqtt.decode import Decoder
from mqtt.encode import encode, encode_puback, encode_pubcomp, encode_publish, encode_pubrec, encode_pubrel
from mqtt.packets import Connack, Connect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe, Subscription

DRAIN_S = 30.0


class LoadClient(Asking):
    """Answers what has to be answered; `latencies_ms` from the time at the head of each payload."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._decoder = Decoder(1 << 20, VERSION)
        self._packet_id = 0
        self.latencies_ms: list[float] = []
        self.acknowledged = 0

    @classmethod
    async def connect(cls, port: int, client_id: str, tls: ssl.SSLContext | None = None) -> "LoadClient":
        client = cls(client_id)
        await asyncio.get_running_loop().create_connection(lambda: client, "127.0.0.1", port, ssl=tls)
        await client.ask(encode(Connect(client_id, version=VERSION), VERSION))
        return client

    async def subscribe(self, topic_filter: str, qos: int) -> None:
        await self.ask(encode(Subscribe(1, [Subscription(topic_filter, qos)]), VERSION))

    def publish(self, topic: bytes, qos: int) -> None:
        self._packet_id = self._packet_id % 65_535 + 1
        payload = b"%020d" % time.perf_counter_ns() + b"x" * (len(PAYLOAD) - 20)
        self.transport.write(encode_publish(topic, payload, qos, False, False, self._packet_id, None))

    def close(self) -> None:
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter_ns()
        answers = []
        for packet in self._decoder.feed(data):
            match packet:
                case Publish():
                    self.latencies_ms.append((now - int(packet.payload[:20])) / 1e6)
                    if packet.qos:
                        answers.append((encode_puback if packet.qos == 1 else encode_pubrec)(packet.packet_id))
                case Pubrec():
                    answers.append(encode_pubrel(packet.packet_id))
                case Pubrel():
                    answers.append(encode_pubcomp(packet.packet_id))
                case Puback() | Pubcomp():
                    self.acknowledged += 1
                case Connack() | Suback():
                    self.answered()
        if answers:
            self.transport.write(b"".join(answers))


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
    await subscriber.subscribe(topic, qos)
    sent: list[float] = []
    began, name = time.perf_counter(), topic.encode()
    while goes_on(len(sent)):
        sent.append(time.perf_counter())
        publisher.publish(name, qos)
        await asyncio.sleep(max(0.0, began + len(sent) / rate - time.perf_counter()))
    deadline = time.monotonic() + DRAIN_S
    while len(subscriber.latencies_ms) < len(sent) and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    subscriber.close()
    publisher.close()
    if len(subscriber.latencies_ms) != len(sent):
        raise RuntimeError(f"QoS {qos}: {len(subscriber.latencies_ms)} messages came of {len(sent)}")
    return sent, subscriber.latencies_ms
