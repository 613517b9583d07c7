"""Load on one gateway, as a process of its own: `python -m bench.gateway_load WHAT LOAD` prints one line of JSON.

The answer has what messages cost in CPU time of the gateway's process.
"""

import asyncio
import json
import multiprocessing
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psutil
import uvloop

from bench.feed import feed
from bench.load import WINDOW_S, Load, Usage, tails
from bench.mqtt_clients import (
    VERSION,
    Client,
    Counter,
    Publisher,
    Quiet,
    Subscriber,
    connect_all,
    serve_answers,
)
from bench.share_load import load_share, load_share_latency
from mqtt.encode import encode
from mqtt.packets import Connect, Subscribe, Subscription
from schemas.identity import shard_of

QUIET_RATE = 50.0
QUIET_TURNS = 3
FLOOD_BEGINS_S = 3.0


def command(what: str, load: Load) -> list[str]:
    """Starts this module."""
    return [sys.executable, "-m", "bench.gateway_load", what, json.dumps(load._asdict())]


async def load_in(load: Load) -> dict[str, float]:
    """Client to Kafka: QoS 1, PUBACK once Kafka has it."""
    clients = [Publisher(f"in-{number}", load.window) for number in range(load.connections)]
    await connect_all(load.port, clients)
    for client in clients:
        client.transport.write(b"".join(client.packets.values()))
    await asyncio.sleep(load.warm_s)
    usage, ends = Usage(load.pid), time.monotonic() + load.seconds
    while True:
        usage.note(sum(client.acknowledged for client in clients))
        if time.monotonic() >= ends:
            break
        await asyncio.sleep(WINDOW_S)
    for client in clients:
        client.transport.abort()
    return usage.answer()


async def load_out(load: Load) -> dict[str, float]:
    """Kafka to client: each message to one client, `window` unacknowledged for each."""
    counter = Counter()
    clients = [Subscriber(f"out-{number}", f"bench/out/{number:05}", counter) for number in range(load.connections)]
    places = [(client.topic_filter, [shard_of(client.name, load.shards)]) for client in clients]
    return await feed(load, clients, places, counter)


async def load_fanout(load: Load) -> dict[str, float]:
    """Kafka to clients: each message to all of them, `window` messages on their way at a time."""
    counter = Counter()
    clients = [Subscriber(f"fan-{number}", "bench/fan", counter) for number in range(load.connections)]
    places = [("bench/fan", sorted({shard_of(client.name, load.shards) for client in clients}))]
    return await feed(load, clients, places, counter, copies=load.connections)


async def load_ceiling(load: Load) -> dict[str, float]:
    """What this process itself can do, and what the bare server costs."""
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve_answers, args=(theirs,), daemon=True)
    server.start()
    assert server.pid is not None, "it has been started"
    port = await asyncio.to_thread(ours.recv)
    try:
        return await load_in(load._replace(port=port, pid=server.pid))
    finally:
        server.kill()


async def load_quiet(load: Load) -> dict[str, float]:
    """A client that sends 50 messages of QoS 1 a second, one at a time: how long its PUBACK takes, alone and beside a
    client that floods the gateway from another process; in turns, as the machine's speed changes."""
    turn_load = load._replace(seconds=load.seconds / QUIET_TURNS)
    took_ms: dict[str, list[float]] = {"alone": [], "flood": []}
    rates = []
    for turn in range(QUIET_TURNS):
        took_ms["alone"] += await _quiet_turn(turn_load, f"alone-{turn}")
        async with _flooding(load.port, load.warm_s + turn_load.seconds + 2) as flood:
            took_ms["flood"] += await _quiet_turn(turn_load, f"flood-{turn}")
        rates.append(flood["per_s"])
    return {
        "flood_per_s": sum(rates) / QUIET_TURNS,
        **tails(took_ms["alone"], "alone_"),
        **tails(took_ms["flood"], "flood_"),
    }


async def _quiet_turn(load: Load, name: str) -> list[float]:
    """Milliseconds from each PUBLISH to its PUBACK, the first `warm_s` seconds left out."""
    client, taken = Quiet(f"quiet-{name}"), []
    await connect_all(load.port, [client])
    for _ in range(int((load.warm_s + load.seconds) * QUIET_RATE)):
        took_ms = await client.send()
        taken.append(took_ms)
        await asyncio.sleep(max(0, 1 / QUIET_RATE - took_ms / 1000))
    client.transport.abort()
    return taken[int(load.warm_s * QUIET_RATE) :]


@asynccontextmanager
async def _flooding(port: int, seconds: float) -> AsyncIterator[dict[str, float]]:
    """One client that floods the gateway from another process; what that did, when it has ended."""
    argv = command("in", Load(port, os.getpid(), window=5000, warm_s=1, seconds=seconds))
    flood = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    await asyncio.sleep(FLOOD_BEGINS_S)
    answer: dict[str, float] = {}
    try:
        yield answer
    finally:
        out, _ = await flood.communicate()
    answer.update(json.loads(out))


async def load_connect(load: Load) -> dict[str, float]:
    """New connections at `rate` a second, each with a session and one subscription: how long CONNACK takes, and what an
    idle connection costs of the gateway's resident memory."""
    gateway, loop = psutil.Process(load.pid), asyncio.get_running_loop()
    clients, took_ms = [Client(f"idle-{number}") for number in range(load.connections)], []

    async def connect(client: Client) -> None:
        began = loop.time()
        await loop.create_connection(lambda: client, "127.0.0.1", load.port)
        await client.ask(encode(Connect(client.name, version=VERSION, clean_start=False), VERSION))
        took_ms.append((loop.time() - began) * 1000)

    before, began, tasks = gateway.memory_info().rss, loop.time(), []
    for number, client in enumerate(clients):
        tasks.append(loop.create_task(connect(client)))
        await asyncio.sleep(max(0, began + (number + 1) / load.rate - loop.time()))
    await asyncio.gather(*tasks)
    reached = load.connections / (loop.time() - began)
    for client in clients:
        await client.ask(encode(Subscribe(1, [Subscription(f"bench/idle/{client.name}", 1)]), VERSION))
    await asyncio.sleep(5)
    kb = (gateway.memory_info().rss - before) / load.connections / 1024
    for client in clients:
        client.transport.abort()
    return {"per_s": reached, "idle_connection_kb": kb, **tails(took_ms)}


LOADS = {
    "in": load_in,
    "out": load_out,
    "fanout": load_fanout,
    "ceiling": load_ceiling,
    "quiet": load_quiet,
    "connect": load_connect,
    "share": load_share,
    "share_latency": load_share_latency,
}

if __name__ == "__main__":
    what, asked = sys.argv[1:]
    sys.stdout.write(json.dumps(uvloop.run(LOADS[what](Load(**json.loads(asked))))) + "\n")
