"""The client library and a gateway process on a real broker, by way of its access point (G1, G3, G10, G13)."""

import asyncio
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from edge.reconnect import FullJitter
from harness.processes import Gateway
from tests.conftest import LocalBroker
from waystation import Client, PublishRefused

PATIENCE_S = 60.0
NUMBER = 60
PARTITIONS = 2
"""Of `ingress`, where tests create the topics."""


@pytest.fixture
def gateway(broker: LocalBroker, unique_prefix: str, tmp_path: Path) -> Gateway:
    """Lets in alice, who may not publish below `secret/`."""
    command = [sys.executable, "-m", "jobs.cli.main", "passwd", str(tmp_path / "passwords"), "alice"]
    subprocess.run(command, input="open sesame\n", text=True, check=True, timeout=PATIENCE_S)
    (tmp_path / "acl.toml").write_text('[[rules]]\npublish.deny = ["secret/#"]\npublish.allow = ["#"]\n')
    broker.topics(unique_prefix)
    return Gateway(
        tmp_path,
        broker.bootstrap,
        unique_prefix,
        WAYSTATION_GATEWAY__AUTHENTICATION__METHODS='["password"]',
        WAYSTATION_GATEWAY__AUTHENTICATION__PASSWORD__FILE=str(tmp_path / "passwords"),
        WAYSTATION_GATEWAY__AUTHORIZATION__FILE=str(tmp_path / "acl.toml"),
    )


def stored(broker: LocalBroker, topic: str, partitions: int) -> Counter[bytes]:
    """How often each payload is on a topic."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False})
    found: Counter[bytes] = Counter()
    try:
        for partition in range(partitions):
            position, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=PATIENCE_S)
            consumer.assign([TopicPartition(topic, partition, position)])
            while position < end:
                record = consumer.poll(PATIENCE_S)
                assert record is not None
                assert record.error() is None
                found[record.value() or b""] += 1
                position = record.offset() + 1
    finally:
        consumer.close()
    return found


def test_a_killed_gateway_loses_nothing_and_doubles_nothing(
    broker: LocalBroker, unique_prefix: str, gateway: Gateway, tmp_path: Path
) -> None:
    """G8, M2: at QoS 2, over `kill -9`, published before, while it is away, and after."""

    async def scenario() -> None:
        client = Client(
            client_id="van-7",
            access_points=[f"http://127.0.0.1:{gateway.http_port}"],
            username="alice",
            password=b"open sesame",
            store=tmp_path / "outbox",
            backoff=FullJitter(0.05, 0.5),
        )
        async with client, asyncio.timeout(PATIENCE_S):
            await client.connected()
            with pytest.raises(PublishRefused):
                await (await client.publish("secret/plan", b"x")).acknowledged
            messages = []
            for n in range(NUMBER):
                messages.append(await client.publish("vans/7", b"%d" % n, qos=2))
                if n == NUMBER // 3:
                    gateway.kill()
                elif n == 2 * NUMBER // 3:
                    await asyncio.to_thread(gateway.start)
            for message in messages:
                await message.acknowledged

    gateway.start()
    try:
        # The access point has the same address after the kill: it is all that the client knows.
        gateway.environ["WAYSTATION_GATEWAY__HTTP_PORT"] = str(gateway.http_port)
        asyncio.run(scenario())
    finally:
        gateway.stop()
    topics = broker.topics(unique_prefix)
    found = stored(broker, topics.ingress, PARTITIONS)
    assert {payload: found[payload] for payload in found if payload.isdigit()} == {b"%d" % n: 1 for n in range(NUMBER)}
