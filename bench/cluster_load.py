"""Load on a site of gateways, and what it costs: the path at QoS 2, a relay, processor time, throughput."""

import asyncio
import time
from statistics import median
from typing import Final

import psutil

from bench.cluster_fleet import QUIET_S, names_of, within
from bench.mqtt_clients import PAYLOAD, Client, Member, Publisher, Quiet, connect_all
from bench.processes import cpu_s
from harness.gateway_site import Site, SiteGateway
from mqtt.codes import PacketType
from mqtt.encode import encode, encode_publish
from mqtt.packets import Pubrel, Subscribe, Subscription

PATH_RATE: Final = 50.0
RELAYED: Final = 100
LOAD_RATE: Final = 400.0
LOAD_S: Final = 8.0
IN_CONNECTIONS: Final = 50
IN_WINDOW: Final = 20
IN_WARM_S: Final = 2.0
IN_S: Final = 4.0


async def relay_added_ms(site: Site) -> float:
    """What a client that is relayed waits longer for PUBACK, by the medians; in turns."""
    name, other = (names_of(range(1), site.shards, word)[0] for word in ("quiet", "quieter"))
    home = site.owner_of(name)
    elsewhere = next(gateway for gateway in site.up if gateway is not home)
    took_ms: dict[str, list[float]] = {}
    at = {name: home, other: elsewhere}
    clients = {of: Quiet(of) for of in at}
    for of, client in clients.items():
        await connect_all(at[of].mqtt, [client])
        took_ms[of] = []
        await client.send()
    for _ in range(RELAYED):
        for of, client in clients.items():
            took_ms[of].append(await client.send())
            await asyncio.sleep(0.005)
    for client in clients.values():
        client.transport.abort()
    return median(took_ms[other]) - median(took_ms[name])


class Sender(Client):
    """Publishes at this `qos` without waiting; answers PUBREC with PUBREL."""

    def __init__(self, name: str, topic: str, qos: int) -> None:
        super().__init__(name)
        self._topic, self._qos, self.sent = topic.encode(), qos, 0

    def publish(self) -> None:
        self.sent += 1
        payload = time.monotonic_ns().to_bytes(Member.STAMP_BYTES) + PAYLOAD[Member.STAMP_BYTES :]
        packet_id = 1 + self.sent % 60_000
        self.transport.write(encode_publish(self._topic, payload, self._qos, False, False, packet_id, None))

    async def run(self, rate: float, seconds: float) -> None:
        """Publishes so often a second, for so long."""
        began = time.monotonic()
        for number in range(round(rate * seconds)):
            await asyncio.sleep(max(0, began + number / rate - time.monotonic()))
            self.publish()

    def take(self, data: bytes) -> int:
        whole = len(data) // 4 * 4
        for at in range(0, whole, 4):
            if data[at] >> 4 == PacketType.PUBREC:
                self.transport.write(encode(Pubrel(int.from_bytes(data[at + 2 : at + 4])), 4))
        return whole


class Qos2Path:
    """A sender and a receiver of QoS 2, both with persistent sessions, at one gateway."""

    TOPIC: Final = "bench/path/2"

    def __init__(self) -> None:
        self._took_ms: list[float] = []
        self._sender = Sender("path-sender", self.TOPIC, 2)
        self._receiver = Member("path-receiver", self.TOPIC, 2, self._took_ms)

    @classmethod
    async def open(cls, gateway: SiteGateway) -> "Qos2Path":
        path = cls()
        await connect_all(gateway.mqtt, [path._sender, path._receiver], clean_start=False)
        await path._receiver.ask(encode(Subscribe(1, [Subscription(cls.TOPIC, 2)]), 4))
        return path

    async def take(self, seconds: float) -> list[float]:
        """From writing a PUBLISH until the receiver has it, milliseconds. Raises RuntimeError if some do not come."""
        self._took_ms.clear()
        before = self._sender.sent
        await self._sender.run(PATH_RATE, seconds)
        await within(lambda: len(self._took_ms) >= self._sender.sent - before, "messages at QoS 2 came")
        return list(self._took_ms)

    def close(self) -> None:
        for client in (self._sender, self._receiver):
            client.transport.abort()


async def cpu_under_load(site: Site) -> float:
    """Processor seconds of all gateways for LOAD_S of messages that come in and go out, QoS 1, to a session a shard."""
    names = names_of(range(site.shards), site.shards)
    took_ms: list[float] = []
    topic = "bench/load"
    members = [Member(name, topic, 1, took_ms) for name in names]
    for member in members:
        await connect_all(site.owner_of(member.name).mqtt, [member], clean_start=False)
        await member.ask(encode(Subscribe(1, [Subscription(topic, 1)]), 4))
    sender = Sender("load-sender", topic, 1)
    await connect_all(site.owner_of(sender.name).mqtt, [sender])
    await sender.run(LOAD_RATE, QUIET_S)
    before = cpu_of(site)
    await sender.run(LOAD_RATE, LOAD_S)
    await within(lambda: len(took_ms) >= sender.sent * len(members), "messages of the load came")
    used = cpu_of(site) - before
    for client in (sender, *members):
        client.transport.abort()
    return used


async def throughput_in(site: Site) -> tuple[float, float]:
    """Messages a second that all gateways take, and the processor seconds of theirs for each."""
    clients = [Publisher(f"in-{number}", IN_WINDOW) for number in range(IN_CONNECTIONS)]
    for client in clients:
        await connect_all(site.owner_of(client.name).mqtt, [client])
    for client in clients:
        client.transport.write(b"".join(client.packets.values()))
    await asyncio.sleep(IN_WARM_S)
    before, cpu, began = sum(client.acknowledged for client in clients), cpu_of(site), time.monotonic()
    await asyncio.sleep(IN_S)
    messages = sum(client.acknowledged for client in clients) - before
    used, seconds = cpu_of(site) - cpu, time.monotonic() - began
    for client in clients:
        client.transport.abort()
    return messages / seconds, used / messages


def cpu_of(site: Site) -> float:
    return sum(cpu_s(psutil.Process(gateway.pid)) for gateway in site.up)
