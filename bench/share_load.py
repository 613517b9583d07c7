"""Load on one share group of a gateway, `$share/bench/<topic>`: what a message to a member costs, and how long it
takes."""

import asyncio
import time
from statistics import median

from bench.feed import ROUTE_MARGIN_S, Instructions, feed
from bench.load import Load, tails
from bench.mqtt_clients import PAYLOAD, VERSION, Counter, Member, Subscriber, connect_all
from gateway.shard.messages import GROUP_MARK
from mqtt.encode import encode
from mqtt.packets import Subscribe, Subscription
from schemas.identity import shard_of

TURNS = 3
RECEIVED_S = 10.0
"""So long the last messages of a turn may take."""


async def load_share(load: Load) -> dict[str, float]:
    """Kafka to the members of one group, QoS 1: each message to one of them, `window` unacknowledged for each on
    average."""
    group, counter = Group("bench/share", 1, load.shards), Counter()
    clients = [Subscriber(f"share-{n}", group.topic, counter, group.name) for n in range(load.connections)]
    return await feed(load, clients, [(group.topic, [group.shard])], counter)


async def load_share_latency(load: Load) -> dict[str, float]:
    """Milliseconds from writing an instruction until a member has the PUBLISH, at `rate` messages a second: QoS 1, and
    QoS 2 with persistent sessions, in turns; the median of the turns."""
    groups = {"": Group("bench/share/qos1", 1, load.shards), "qos2_": Group("bench/share/qos2", 2, load.shards)}
    for group in groups.values():
        await group.begin(load)
    await asyncio.sleep(load.lead_s + ROUTE_MARGIN_S)
    instructions, found = Instructions(load, linger_ms=0), dict[str, list[float]]()
    for group in groups.values():
        await group.latencies_ms(instructions, load.rate, load.warm_s)
    for _ in range(TURNS):
        for prefix, group in groups.items():
            took_ms = await group.latencies_ms(instructions, load.rate, load.seconds / TURNS)
            for name, value in tails(took_ms, prefix).items():
                found.setdefault(name, []).append(value)
    instructions.flush()
    for group in groups.values():
        group.abort()
    return {name: median(values) for name, values in found.items()}


class Group:
    """The share group of `topic`, whose members subscribe with this `qos`."""

    def __init__(self, topic: str, qos: int, shards: int) -> None:
        self.topic = topic
        self.name = f"$share/bench/{topic}"
        self.shard = shard_of(GROUP_MARK + self.name, shards)
        self._qos = qos
        self._members: list[Member] = []
        self._took_ms: list[float] = []

    async def begin(self, load: Load) -> None:
        """Connects the members, with persistent sessions if the group has QoS 2, and subscribes them."""
        names = (f"member-{self._qos}-{number}" for number in range(load.connections))
        self._members = [Member(name, self.topic, self._qos, self._took_ms) for name in names]
        await connect_all(load.port, self._members, clean_start=self._qos < 2)
        for member in self._members:
            await member.ask(encode(Subscribe(1, [Subscription(self.name, self._qos)]), VERSION))

    async def latencies_ms(self, instructions: Instructions, rate: float, seconds: float) -> list[float]:
        """Sends messages at `rate` a second; the milliseconds that each took, in order of arrival. Raises RuntimeError
        if some do not arrive."""
        self._took_ms.clear()
        count, began = int(rate * seconds), time.monotonic()
        for number in range(count):
            await asyncio.sleep(max(0, began + number / rate - time.monotonic()))
            stamp = time.monotonic_ns().to_bytes(Member.STAMP_BYTES)
            instructions.write(self.topic, [self.shard], self._qos, stamp + PAYLOAD[Member.STAMP_BYTES :])
            instructions.poll()
        ends = time.monotonic() + RECEIVED_S
        while len(self._took_ms) < count and time.monotonic() < ends:
            await asyncio.sleep(0.01)
        if len(self._took_ms) != count:
            raise RuntimeError(f"{self.name}: {count} messages sent, {len(self._took_ms)} received")
        return list(self._took_ms)

    def abort(self) -> None:
        for member in self._members:
            member.transport.abort()
