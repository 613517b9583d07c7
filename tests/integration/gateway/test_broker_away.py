"""Kafka stands still, or is killed: publishers are held, memory stays flat, nothing acknowledged is lost (Q1, R9)."""

import asyncio
import contextlib
import signal
from pathlib import Path

import psutil
import pytest

from harness.processes import HOST, Broker, Gateway
from jobs.stack.topics import admin_client, create_topics
from mqtt.encode import encode
from mqtt.packets import Connect, Publish
from schemas.topics import DAY_MS, Topics
from tests import draw
from tests.faithful_client import FaithfulClient, eventually

AWAY_S = 20.0
IN_FLIGHT_BYTES = 16 << 20
PAYLOAD = b"x" * 16_384
FLOODERS = 4
SPARE_BYTES = 64 << 20
"""What a gateway may grow by beside what is on its way: buffers of connections, librdkafka's own, the heap's."""


async def _flood(port: int, number: int, sent: list[int]) -> None:
    """Pushes QoS 0 messages as fast as the gateway takes them."""
    _reader, writer = await asyncio.open_connection(HOST, port)
    with contextlib.closing(writer):
        writer.write(encode(Connect(f"flood-{number}", 5), 5))
        packet = encode(Publish("flood/x", PAYLOAD), 5)
        while True:
            writer.write(packet)
            await writer.drain()
            sent[number] += 1


async def _publish(sender: FaithfulClient) -> None:
    number = 0
    while True:
        if sender.unacknowledged < 200:
            sender.publish("kept/x", b"%d" % number, 1 + number % 2)
            number += 1
        await asyncio.sleep(0.01)


async def _endure(broker: Broker, gateway: Gateway) -> None:
    process = psutil.Process(gateway.process.identity.pid)
    sender = await FaithfulClient(lambda: gateway.port, "sender").come()
    receiver = await FaithfulClient(lambda: gateway.port, "receiver").come()
    await receiver.subscribe("kept/#", 2)
    tasks = [asyncio.create_task(_publish(sender))]
    await eventually(lambda: len(receiver.got) > 100, "messages before")
    before = process.memory_info().rss
    broker.signal(signal.SIGSTOP)
    sent = [0] * FLOODERS
    tasks += [asyncio.create_task(_flood(gateway.port, n, sent)) for n in range(FLOODERS)]
    peak = 0
    for _ in range(int(AWAY_S * 2)):
        await asyncio.sleep(0.5)
        peak = max(peak, process.memory_info().rss)
    assert sum(sent) * len(PAYLOAD) < IN_FLIGHT_BYTES + SPARE_BYTES, "publishers are not held"
    assert sum(sent) * len(PAYLOAD) >= IN_FLIGHT_BYTES, "the limit was not reached: nothing was tried"
    assert peak - before < IN_FLIGHT_BYTES + SPARE_BYTES
    broker.signal(signal.SIGCONT)
    got = len(receiver.got)
    await eventually(lambda: len(receiver.got) > got + 300, "messages again")
    await asyncio.to_thread(broker.kill)
    await asyncio.sleep(2)
    await asyncio.to_thread(broker.start)
    got = len(receiver.got)
    await eventually(lambda: len(receiver.got) > got + 300, "messages after the broker's death")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await sender.published()
    await eventually(lambda: sender.acknowledged <= set(receiver.payloads), "every acknowledged message")
    assert not sender.faults + receiver.faults
    assert sender.connection == receiver.connection == 1, "connections last"
    assert len(receiver.payloads) == len(set(receiver.payloads)), "came twice"
    assert receiver.payloads == sorted(receiver.payloads, key=int)
    for client in (sender, receiver):
        await client.leave(goodbye=True)


@draw.long_test
@pytest.mark.timeout(240)
def test_kafka_stands_still_and_is_killed(own_broker: Broker, tmp_path: Path) -> None:
    """Q1, R9, G8: 20 s without an answer, with clients that push; then `kill -9`."""
    create_topics(admin_client(own_broker.bootstrap, {}), Topics("away.").declared(2, 4, DAY_MS))
    more = {
        "WAYSTATION_GATEWAY__LIMITS__IN_FLIGHT_BYTES": str(IN_FLIGHT_BYTES),
        "WAYSTATION_ROUTER__ROUTE_LEAD_S": "3600.0",  # there is no router
    }
    gateway = Gateway(tmp_path, own_broker.bootstrap, "away.", **more)
    gateway.start()
    try:
        asyncio.run(_endure(own_broker, gateway))
    finally:
        own_broker.signal(signal.SIGCONT)
        gateway.stop()
