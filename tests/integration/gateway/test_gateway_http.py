"""The HTTP bearer of a gateway process on a real broker, without any router (G11, Q1, G8): curl and aiohttp."""

import asyncio
import json
import subprocess
from pathlib import Path

import aiohttp
from confluent_kafka import Consumer, TopicPartition

from harness.processes import Gateway
from tests.conftest import LocalBroker
from tests.integration.gateway.test_gateway_process import PATIENCE_S


def curl(*arguments: str) -> tuple[int, str]:
    """Status and body."""
    command = ["curl", "--silent", "--show-error", "--max-time", "40", "--write-out", "\n%{http_code}", *arguments]
    body, _, status = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.rpartition("\n")
    return int(status), body


def ids_on_ingress(broker: LocalBroker, topic: str) -> list[str]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False})
    try:
        found = []
        for partition in range(2):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=PATIENCE_S)
            if high > low:
                consumer.assign([TopicPartition(topic, partition, low)])
                records = consumer.consume(high - low, PATIENCE_S)
                found += [dict(record.headers() or [])["id"].decode() for record in records]
        return found
    finally:
        consumer.close()


async def events(port: int, count: int, last_event_id: str = "") -> list[tuple[str, str]]:
    """The first events of the client `receiver`: (id, payload)."""
    found: list[tuple[str, str]] = []
    headers = {"X-Client-Id": "receiver"} | ({"Last-Event-ID": last_event_id} if last_event_id else {})
    event_id = ""
    url = f"http://127.0.0.1:{port}/v1/stream?filter=fresh/%23"
    async with (
        asyncio.timeout(PATIENCE_S),
        aiohttp.ClientSession() as session,
        session.get(url, headers=headers) as got,
    ):
        assert got.status == 200
        async for line in got.content:
            name, _, value = line.decode().strip().partition(": ")
            if name == "id":
                event_id = value
            elif name == "data":
                found.append((event_id, json.loads(value)["payload"]))
                if len(found) == count:
                    break
    return found


def test_posted_with_curl_and_received_over_a_crash(broker: LocalBroker, unique_prefix: str, tmp_path: Path) -> None:
    """Q1, G8, G9: a key makes one message though the gateway is killed; what a stream has not acknowledged, and what
    came while it was away, comes from the next gateway."""
    topics = broker.topics(unique_prefix)
    gateway = Gateway(tmp_path, broker.bootstrap, unique_prefix)
    gateway.start()
    try:
        url = f"http://127.0.0.1:{gateway.http_port}/v1/messages/fresh"
        status, body = curl(
            f"http://127.0.0.1:{gateway.http_port}/v1/stream?filter=fresh/%23&client=receiver&wait=0.01"
        )
        assert status == 200, body
        ids = []
        for n in range(5):
            status, body = curl("-H", "X-Client-Id: sender", "-H", f"Idempotency-Key: {n}", "-d", f"m{n}", f"{url}/{n}")
            assert status == 202, body
            ids.append(json.loads(body)["id"])
        first = asyncio.run(events(gateway.http_port, 5))
        assert [payload for _, payload in first] == [f"m{n}" for n in range(5)]
        gateway.kill()
        gateway.start()
        url = f"http://127.0.0.1:{gateway.http_port}/v1/messages/fresh"
        for n in range(6):
            _, body = curl("-H", "X-Client-Id: sender", "-H", f"Idempotency-Key: {n}", "-d", f"m{n}", f"{url}/{n}")
            assert n == 5 or json.loads(body)["id"] == ids[n]
        again = asyncio.run(events(gateway.http_port, 6))
        assert [payload for _, payload in again] == [f"m{n}" for n in range(6)]
        rest = asyncio.run(events(gateway.http_port, 2, last_event_id=again[3][0]))
        assert [payload for _, payload in rest] == ["m4", "m5"]
        status, body = curl("-X", "DELETE", url)
        assert (status, json.loads(body)["reason"]) == (405, "method_not_allowed")
        stored = ids_on_ingress(broker, topics.ingress)
        assert len(stored) == 6
        assert set(ids) < set(stored)
    finally:
        gateway.stop()
