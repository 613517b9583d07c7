"""The client library and a gateway process on a real broker, by way of its access point (G1, G3, G10, G13)."""

import asyncio
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from edge.reconnect import FullJitter
from harness.processes import Gateway
from tests import draw
from tests.conftest import LocalBroker
from tests.integration.edge.ingress_records import records
from tests.integration.edge.publisher_process import killed_after
from waystation import Client, PublishRefused

PATIENCE_S = 60.0
NUMBER = 60


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
    found = Counter(record.value for record in records(broker.bootstrap, topics.ingress))
    assert {payload: found[payload] for payload in found if payload.isdigit()} == {b"%d" % n: 1 for n in range(NUMBER)}


@draw.long_test
def test_a_killed_publisher_over_http_stores_each_message_once(
    broker: LocalBroker, unique_prefix: str, tmp_path: Path
) -> None:
    """G13, Q1: over `kill -9` of the client, again and again, and of the gateway once; in order by topic (R8)."""
    topics, choice = broker.topics(unique_prefix), draw.generator("kills of the publisher over HTTP")
    gateway = Gateway(tmp_path / "gateway", broker.bootstrap, unique_prefix)

    async def scenario() -> None:
        accepted: list[int] = []
        arguments = f"http://127.0.0.1:{gateway.http_port}", "5.0", str(tmp_path / "outbox")
        for attempt in range(6 if draw.SOAK else 2):
            publishing = asyncio.create_task(killed_after(choice.uniform(0.1, 0.3), *arguments))
            if attempt == 1:
                await asyncio.sleep(choice.uniform(0.5, 0.8))  # a random moment is what is tested
                gateway.kill()
                await publishing
                await asyncio.to_thread(gateway.start)
            accepted += await publishing
        async with (
            Client(
                client_id="publisher",
                connect_points=[arguments[0]],
                store=arguments[2],
                backoff=FullJitter(0.05, 0.5),
            ) as last,
            asyncio.timeout(PATIENCE_S),
        ):
            await last.drained()
            everything = range(1, last._outbox.last_sequence + 1)
        found = records(broker.bootstrap, topics.ingress)
        assert accepted
        assert {int(record.value) for record in found} == set(everything) >= set(accepted)
        assert len({record.message_id for record in found}) == len(everything)
        assert len(found) == len(everything), "a message is stored twice"
        for topic in {record.key for record in found}:
            of_topic = [int(record.value) for record in found if record.key == topic]
            assert of_topic == sorted(of_topic)

    gateway.start()
    try:
        gateway.environ["WAYSTATION_GATEWAY__HTTP_PORT"] = str(gateway.http_port)
        asyncio.run(scenario())
    finally:
        gateway.stop()
