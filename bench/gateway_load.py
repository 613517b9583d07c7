"""Load on one gateway, as a process of its own: `python -m bench.gateway_load in|out …` prints one line of JSON.

The answer has what messages cost in CPU time of the gateway's process.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import psutil
import uvloop
from confluent_kafka import Producer

from bench.figures import percentile
from bench.mqtt_clients import PAYLOAD, VERSION, Counter, Idle, Publisher, Quiet, Subscriber, connect_all
from bench.usage import WINDOW_S, Usage
from mqtt.encode import encode
from mqtt.packets import Connect, Subscribe, Subscription
from schemas.envelope import Instruction, Meta, ingress_headers
from schemas.identity import new_message_id, shard_of
from schemas.topics import Topics

QUIET_RATE = 50.0
QUIET_TURNS = 3
FLOOD_BEGINS_S = 3.0


async def load_in(
    port: int, pid: int, connections: int, window: int, warm_s: float, seconds: float
) -> dict[str, float]:
    """Client to Kafka: QoS 1, PUBACK once Kafka has it."""
    clients = [Publisher(f"in-{number}", window) for number in range(connections)]
    await connect_all(port, clients)
    for client in clients:
        client.transport.write(b"".join(client.packets.values()))
    await asyncio.sleep(warm_s)
    usage, ends = Usage(pid), time.monotonic() + seconds
    while True:
        usage.note(sum(client.acknowledged for client in clients))
        if time.monotonic() >= ends:
            break
        await asyncio.sleep(WINDOW_S)
    for client in clients:
        client.transport.abort()
    return usage.answer()


class Feed(NamedTuple):
    """Where instructions are written: what a router would do."""

    bootstrap: str
    prefix: str
    shards: int
    lead_s: float


async def load_out(
    port: int, pid: int, connections: int, window: int, warm_s: float, seconds: float, feed: Feed
) -> dict[str, float]:
    """Kafka to client: each message to one client, `window` unacknowledged for each."""
    counter = Counter()
    clients = [Subscriber(f"out-{number}", f"bench/out/{number:05}", counter) for number in range(connections)]
    places = [(client.topic, [shard_of(client.name, feed.shards)]) for client in clients]
    return await _feed_all(port, pid, clients, places, counter, window * connections, warm_s, seconds, feed)


async def load_fanout(
    port: int, pid: int, connections: int, window: int, warm_s: float, seconds: float, feed: Feed
) -> dict[str, float]:
    """Kafka to clients: each message to all of them, `window` messages on their way at a time."""
    counter = Counter()
    clients = [Subscriber(f"fan-{number}", "bench/fan", counter) for number in range(connections)]
    places = [("bench/fan", sorted({shard_of(client.name, feed.shards) for client in clients}))]
    return await _feed_all(
        port, pid, clients, places, counter, window * connections, warm_s, seconds, feed, copies=connections
    )


async def _feed_all(
    port: int,
    pid: int,
    clients: list[Subscriber],
    places: list[tuple[str, list[int]]],
    counter: Counter,
    most: int,
    warm_s: float,
    seconds: float,
    feed: Feed,
    copies: int = 1,
) -> dict[str, float]:
    """Writes instructions to `places` (topic, its shards) in turn, so that at most `most` deliveries are on their way;
    a message makes `copies` of them."""
    await connect_all(port, clients)
    for client in clients:
        await client.ask(encode(Subscribe(1, [Subscription(client.topic, 1)]), VERSION))
    await asyncio.sleep(feed.lead_s + 3)
    producer = Producer({"bootstrap.servers": feed.bootstrap, "linger.ms": 1, "acks": "1"})
    egress, meta = Topics(feed.prefix).egress, Meta(1, "", None, 0, None)
    usage, sent, first = Usage(pid), 0, time.monotonic()
    while (now := time.monotonic()) < first + warm_s + seconds + WINDOW_S:
        if now - first >= warm_s:
            usage.note(counter.got)
        appended = int(time.time() * 1000)
        while sent * copies - counter.got <= most - copies:
            topic, shards = places[sent % len(places)]
            headers = ingress_headers(new_message_id(), "bench", meta, b"\0")
            for number, shard in enumerate(shards):
                limit = len(shards) if number == len(shards) - 1 else None
                instruction = Instruction(0, sent, number, limit, appended).encode()
                whole = [*headers, ("instr", instruction), ("router", b"active")]
                producer.produce(egress, PAYLOAD, topic.encode(), shard, headers=whole)  # type: ignore[arg-type]
            sent += 1
            if not sent % 500:
                break
        producer.poll(0)
        await asyncio.sleep(0 if sent * copies - counter.got <= most - copies else 0.0005)
    producer.flush(30)
    for client in clients:
        client.transport.abort()
    return usage.answer()


class _Answering(asyncio.Protocol):
    """A server that accepts every CONNECT and acknowledges every PUBLISH, all of one length, and does nothing else."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._is_connected = False
        self._partial = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if not self._is_connected:
            self._is_connected = True
            self._transport.write(b"\x20\x02\0\0")
            return
        data = self._partial + data
        length, at, answers = 0, 0, []
        while len(data) - at > 2:
            length = 3 + (data[at + 1] & 127) + (data[at + 2] << 7)
            if len(data) - at < length:
                break
            stop = at + length - len(PAYLOAD)
            answers.append(b"\x40\x02" + data[stop - 2 : stop])
            at += length
        self._partial = data[at:]
        self._transport.write(b"".join(answers))


def _serve_answers(ready: Any) -> None:
    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(_Answering, "127.0.0.1", 0)
        ready.send(server.sockets[0].getsockname()[1])
        await asyncio.Event().wait()

    uvloop.run(serve())


async def load_ceiling(connections: int, window: int, warm_s: float, seconds: float) -> dict[str, float]:
    """What this process itself can do, and what the bare server costs."""
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve_answers, args=(theirs,), daemon=True)
    server.start()
    assert server.pid is not None, "it has been started"
    port = await asyncio.to_thread(ours.recv)
    try:
        return await load_in(port, server.pid, connections, window, warm_s, seconds)
    finally:
        server.kill()


async def load_quiet(port: int, warm_s: float, seconds: float) -> dict[str, float]:
    """A client that sends 50 messages of QoS 1 a second, one at a time: how long its PUBACK takes, alone and beside a
    client that floods the gateway from another process; in turns, as the machine's speed changes."""
    took_ms: dict[str, list[float]] = {"alone": [], "flood": []}
    rates = []
    for turn in range(QUIET_TURNS):
        took_ms["alone"] += await _quiet_turn(port, f"alone-{turn}", warm_s, seconds / QUIET_TURNS)
        async with _flooding(port, warm_s + seconds / QUIET_TURNS + 2) as flood:
            took_ms["flood"] += await _quiet_turn(port, f"flood-{turn}", warm_s, seconds / QUIET_TURNS)
        rates.append(flood["per_s"])
    found = {"flood_per_s": sum(rates) / QUIET_TURNS}
    for name, taken in took_ms.items():
        ordered = sorted(taken)
        found[f"{name}_p50_ms"] = percentile(ordered, 0.5)
        found[f"{name}_p99_ms"] = percentile(ordered, 0.99)
    return found


async def _quiet_turn(port: int, name: str, warm_s: float, seconds: float) -> list[float]:
    """Milliseconds from each PUBLISH to its PUBACK, the first `warm_s` seconds left out."""
    client, taken = Quiet(f"quiet-{name}"), []
    await connect_all(port, [client])
    for _ in range(int((warm_s + seconds) * QUIET_RATE)):
        took_ms = await client.send()
        taken.append(took_ms)
        await asyncio.sleep(max(0, 1 / QUIET_RATE - took_ms / 1000))
    client.transport.abort()
    return taken[int(warm_s * QUIET_RATE) :]


@asynccontextmanager
async def _flooding(port: int, seconds: float) -> AsyncIterator[dict[str, float]]:
    """One client that floods the gateway from another process; what that did, when it has ended."""
    arguments = ("in", "--port", str(port), "--pid", str(os.getpid()), "--connections", "1", "--window", "5000")
    timing = ("--warm-s", "1", "--seconds", str(seconds))
    argv = (sys.executable, "-m", "bench.gateway_load", *arguments, *timing)
    flood = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    await asyncio.sleep(FLOOD_BEGINS_S)
    answer: dict[str, float] = {}
    try:
        yield answer
    finally:
        out, _ = await flood.communicate()
    answer.update(json.loads(out))


async def load_connect(port: int, pid: int, connections: int, rate: float) -> dict[str, float]:
    """New connections at `rate` a second, each with a session and one subscription: how long CONNACK takes, and what an
    idle connection costs of the gateway's resident memory."""
    gateway, loop = psutil.Process(pid), asyncio.get_running_loop()
    clients, took_ms = [Idle(f"idle-{number}") for number in range(connections)], []

    async def connect(client: Idle) -> None:
        began = loop.time()
        await loop.create_connection(lambda: client, "127.0.0.1", port)
        await client.ask(encode(Connect(client.name, version=VERSION, clean_start=False), VERSION))
        took_ms.append((loop.time() - began) * 1000)

    before, began, tasks = gateway.memory_info().rss, loop.time(), []
    for number, client in enumerate(clients):
        tasks.append(loop.create_task(connect(client)))
        await asyncio.sleep(max(0, began + (number + 1) / rate - loop.time()))
    await asyncio.gather(*tasks)
    reached = connections / (loop.time() - began)
    for client in clients:
        await client.ask(encode(Subscribe(1, [Subscription(f"bench/idle/{client.name}", 1)]), VERSION))
    await asyncio.sleep(5)
    after, ordered = gateway.memory_info().rss, sorted(took_ms)
    for client in clients:
        client.transport.abort()
    return {
        "per_s": reached,
        "p50_ms": percentile(ordered, 0.5),
        "p99_ms": percentile(ordered, 0.99),
        "idle_kb": (after - before) / connections / 1024,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gateway_load", description=__doc__)
    parser.add_argument("direction", choices=["ceiling", "in", "out", "fanout", "quiet", "connect"])
    for name in ("port", "pid", "connections", "window", "shards"):
        parser.add_argument(f"--{name}", type=int, default=4)
    for name, value in (("warm-s", 3.0), ("seconds", 10.0), ("lead-s", 6.0), ("rate", 1000.0)):
        parser.add_argument(f"--{name}", type=float, default=value)
    parser.add_argument("--bootstrap", default="")
    parser.add_argument("--prefix", default="")
    o = parser.parse_args()
    common = (o.port, o.pid, o.connections, o.window, o.warm_s, o.seconds)
    match o.direction:
        case "in":
            work = load_in(*common)
        case "out":
            work = load_out(*common, Feed(o.bootstrap, o.prefix, o.shards, o.lead_s))
        case "fanout":
            work = load_fanout(*common, Feed(o.bootstrap, o.prefix, o.shards, o.lead_s))
        case "ceiling":
            work = load_ceiling(o.connections, o.window, o.warm_s, o.seconds)
        case "quiet":
            work = load_quiet(o.port, o.warm_s, o.seconds)
        case _:
            work = load_connect(o.port, o.pid, o.connections, o.rate)
    sys.stdout.write(json.dumps(uvloop.run(work)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
