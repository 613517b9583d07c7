"""Feeds a gateway with instructions on `egress`, as a router would: no router runs."""

import asyncio
import time

from confluent_kafka import Producer

from bench.load import WINDOW_S, Load, Usage
from bench.mqtt_clients import PAYLOAD, VERSION, Counter, Subscriber, connect_all
from mqtt.encode import encode
from mqtt.packets import Subscribe, Subscription
from schemas.envelope import Instruction, Meta, ingress_headers
from schemas.identity import new_message_id
from schemas.topics import Topics

ROUTE_MARGIN_S = 3.0
"""So much later than the settings say, routes are in effect for certain."""


class Instructions:
    """Writes instructions where `load` says, batched for up to `linger_ms`."""

    def __init__(self, load: Load, linger_ms: int) -> None:
        self._producer = Producer({"bootstrap.servers": load.bootstrap, "linger.ms": linger_ms, "acks": "1"})
        self._egress = Topics(load.prefix).egress
        self.sent = 0

    def write(self, topic: str, shards: list[int], qos: int = 1, payload: bytes = PAYLOAD) -> None:
        """One message to `topic`: an instruction for each of the `shards`."""
        headers = ingress_headers(new_message_id(), "bench", Meta(qos, "", None, 0, None), b"\0")
        appended = int(time.time() * 1000)
        for number, shard in enumerate(shards):
            limit = len(shards) if number == len(shards) - 1 else None
            instruction = Instruction(0, self.sent, number, limit, appended).encode()
            whole = [*headers, ("instr", instruction), ("router", b"active")]
            self._producer.produce(self._egress, payload, topic.encode(), shard, headers=whole)  # type: ignore[arg-type]
        self.sent += 1

    def poll(self) -> None:
        self._producer.poll(0)

    def flush(self) -> None:
        self._producer.flush(30)


async def feed(
    load: Load, clients: list[Subscriber], places: list[tuple[str, list[int]]], counter: Counter, copies: int = 1
) -> dict[str, float]:
    """Connects and subscribes the clients, then writes instructions to `places` (topic, its shards) in turn, so that no
    more deliveries are on their way than the load says; a message makes `copies` of them."""
    await connect_all(load.port, clients)
    for client in clients:
        await client.ask(encode(Subscribe(1, [Subscription(client.topic_filter, 1)]), VERSION))
    await asyncio.sleep(load.lead_s + ROUTE_MARGIN_S)
    instructions, most = Instructions(load, linger_ms=1), load.window * load.connections
    usage, first = Usage(load.pid), time.monotonic()
    while (now := time.monotonic()) < first + load.warm_s + load.seconds + WINDOW_S:
        if now - first >= load.warm_s:
            usage.note(counter.got)
        while instructions.sent * copies - counter.got <= most - copies:
            instructions.write(*places[instructions.sent % len(places)])
            if not instructions.sent % 500:
                break
        instructions.poll()
        await asyncio.sleep(0 if instructions.sent * copies - counter.got <= most - copies else 0.0005)
    instructions.flush()
    for client in clients:
        client.transport.abort()
    return usage.answer()
