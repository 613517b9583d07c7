"""Load on one gateway, as a process of its own: `python -m bench.gateway_load in|out …` prints one line of JSON.

The clients are as light as Python allows: packets of one length, encoded once; acknowledgements are found by position.
The answer has the CPU time of the gateway's process between the moments at which messages are counted.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import psutil
import uvloop
from confluent_kafka import Producer

from gateway.mqtt.encode import encode, encode_publish
from gateway.mqtt.packets import Connect, Subscribe, Subscription
from schemas.envelope import Instruction, Meta, ingress_headers
from schemas.identity import new_message_id, shard_of
from schemas.topics import Topics

VERSION = 4
PAYLOAD = b"x" * 256
_CONNECTING_AT_ONCE = 50


class _Client(asyncio.Protocol):
    """Connects and hands what comes behind the answer to CONNECT to `take`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.transport: Any = None
        self._answer: asyncio.Future[None] | None = None
        self._partial = b""

    async def ask(self, data: bytes) -> None:
        """Sends a packet and waits for the one that answers it."""
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(data)
        await asyncio.wait_for(self._answer, 60)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self._answer is not None:
            answer, self._answer = self._answer, None
            answer.set_result(None)
            return
        if self._partial:
            data = self._partial + data
        self._partial = data[self.take(data) :]

    def take(self, data: bytes) -> int:
        """Handles the whole packets in `data`; returns how many bytes they are."""
        raise NotImplementedError


class Publisher(_Client):
    """Keeps `window` PUBLISH of QoS 1 in flight: each PUBACK lets the next one go, with the same packet id."""

    def __init__(self, name: str, window: int) -> None:
        super().__init__(name)
        topic = f"bench/in/{name}".encode()
        self.packets = {
            number.to_bytes(2): encode_publish(topic, PAYLOAD, 1, False, False, number, None)
            for number in range(1, window + 1)
        }
        self.acknowledged = 0

    def take(self, data: bytes) -> int:
        packets = self.packets
        again = [packets[data[at + 2 : at + 4]] for at in range(0, len(data) - 3, 4)]
        self.acknowledged += len(again)
        self.transport.write(b"".join(again))
        return len(again) * 4


class Subscriber(_Client):
    """Acknowledges each PUBLISH of QoS 1; all of them have one length."""

    def __init__(self, name: str, on_messages: Callable[[int], None]) -> None:
        super().__init__(name)
        self.topic = f"bench/out/{name}"
        packet = encode_publish(self.topic.encode(), PAYLOAD, 1, False, False, 1, None)
        self._length = len(packet)
        self._id_at = self._length - len(PAYLOAD) - 2
        self._on_messages = on_messages

    def take(self, data: bytes) -> int:
        length, at = self._length, self._id_at
        count = len(data) // length
        answers = [b"\x40\x02" + data[start + at : start + at + 2] for start in range(0, count * length, length)]
        self.transport.write(b"".join(answers))
        self._on_messages(count)
        return count * length


class _Usage:
    """CPU seconds of the gateway's process, and the time."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)

    def now(self) -> tuple[float, float]:
        times = self._process.cpu_times()
        return times.user + times.system, time.monotonic()


async def connect_all(port: int, clients: list[Any]) -> None:
    """Connects and waits for CONNACK, some at a time."""
    loop, turn = asyncio.get_running_loop(), asyncio.Semaphore(_CONNECTING_AT_ONCE)

    async def connect(client: _Client) -> None:
        async with turn:
            await loop.create_connection(lambda: client, "127.0.0.1", port)
            await client.ask(encode(Connect(client.name, version=VERSION), VERSION))

    await asyncio.gather(*map(connect, clients))


async def load_in(
    port: int, pid: int, connections: int, window: int, warm_s: float, seconds: float
) -> dict[str, float]:
    """Client to Kafka: QoS 1, PUBACK once Kafka has it."""
    clients = [Publisher(f"in-{number}", window) for number in range(connections)]
    await connect_all(port, clients)
    for client in clients:
        client.transport.write(b"".join(client.packets.values()))
    await asyncio.sleep(warm_s)
    usage = _Usage(pid)
    before, began = sum(client.acknowledged for client in clients), usage.now()
    await asyncio.sleep(seconds)
    count, ended = sum(client.acknowledged for client in clients) - before, usage.now()
    for client in clients:
        client.transport.abort()
    return _answer(count, began, ended)


async def load_out(
    port: int,
    pid: int,
    connections: int,
    window: int,
    warm_s: float,
    seconds: float,
    bootstrap: str,
    prefix: str,
    shards: int,
    lead_s: float,
) -> dict[str, float]:
    """Kafka to client: instructions written as a router would, `window` unacknowledged for each client."""
    got = 0

    def on_messages(count: int) -> None:
        nonlocal got
        got += count

    clients = [Subscriber(f"out-{number}", on_messages) for number in range(connections)]
    await connect_all(port, clients)
    for client in clients:
        await client.ask(encode(Subscribe(1, [Subscription(client.topic, 1)]), VERSION))
    await asyncio.sleep(lead_s + 3)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "acks": "1"})
    egress, meta = Topics(prefix).egress, Meta(1, "", None, 0, None)
    places = [(client.topic.encode(), shard_of(client.name, shards)) for client in clients]
    usage, sent, began = _Usage(pid), 0, (0.0, 0.0)
    before, first = 0, time.monotonic()
    while True:
        now = time.monotonic()
        if not began[1] and now - first >= warm_s:
            before, began = got, usage.now()
        if now - first >= warm_s + seconds:
            break
        appended = int(time.time() * 1000)
        while sent - got < window * connections:
            key, shard = places[sent % connections]
            headers = ingress_headers(new_message_id(), "bench", meta, b"\0")
            headers += [("instr", Instruction(0, sent, 0, 1, appended).encode()), ("router", b"active")]
            producer.produce(egress, PAYLOAD, key, shard, headers=headers)  # type: ignore[arg-type]
            sent += 1
            if not sent % 500:
                break
        producer.poll(0)
        await asyncio.sleep(0 if sent - got < window * connections else 0.0005)
    answer = _answer(got - before, began, usage.now())
    producer.flush(30)
    for client in clients:
        client.transport.abort()
    return answer


def _answer(count: int, began: tuple[float, float], ended: tuple[float, float]) -> dict[str, float]:
    cpu_s, seconds = ended[0] - began[0], ended[1] - began[1]
    return {
        "messages": count,
        "per_s": count / seconds,
        "per_cpu_s": count / cpu_s if cpu_s else 0,
        "cores": cpu_s / seconds,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gateway_load", description=__doc__)
    parser.add_argument("direction", choices=["in", "out"])
    for name in ("port", "pid", "connections", "window", "shards"):
        parser.add_argument(f"--{name}", type=int, default=4)
    for name, value in (("warm-s", 3.0), ("seconds", 10.0), ("lead-s", 6.0)):
        parser.add_argument(f"--{name}", type=float, default=value)
    parser.add_argument("--bootstrap", default="")
    parser.add_argument("--prefix", default="")
    o = parser.parse_args()
    common = (o.port, o.pid, o.connections, o.window, o.warm_s, o.seconds)
    work = load_in(*common) if o.direction == "in" else load_out(*common, o.bootstrap, o.prefix, o.shards, o.lead_s)
    sys.stdout.write(json.dumps(uvloop.run(work)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
