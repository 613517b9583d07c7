"""The access point of a gateway process on a real broker (G1, G12, G14). Another gateway is played by its records: one
alone can have the sessions."""

import json
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from harness.processes import Gateway
from jobs.stack.process import wait_until
from schemas.events import encode
from schemas.members import GatewayLoad, Heartbeat, decode_heartbeat
from tests.conftest import LocalBroker
from tests.unit.gateway.members.heartbeat_records import heartbeat

PATIENCE_S = 40.0
LONG = {"WAYSTATION_GATEWAY__CLUSTER__TIMEOUT_S": "300"}
"""A gateway that writes a single heartbeat stays on the list."""
LATER = 1 << 62
"""The number of a process that began later: beside a gateway that has all shards an earlier one would be no access
point's matter."""


class Access:
    """Asks one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._url = f"http://127.0.0.1:{gateway.http_port}/v1/connect"

    def ask(self, bearer: str) -> tuple[int, Any]:
        """Status, and the decoded body."""
        try:
            with urllib.request.urlopen(f"{self._url}?bearer={bearer}&client=van-7", timeout=PATIENCE_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, json.load(refusal)

    def listed(self, bearer: str) -> list[tuple[str, int]]:
        status, body = self.ask(bearer)
        return [(point["address"], point["port"]) for point in body["connect_points"]] if status == 200 else []

    def will_list(self, bearer: str, *points: tuple[str, int]) -> bool:
        return wait_until(lambda: self.listed(bearer) == list(points), PATIENCE_S)


def said(broker: LocalBroker, topic: str, name: str = "gateway-1") -> list[Heartbeat]:
    """The records of a gateway on `members` that have not been compacted away."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S)
        consumer.assign([TopicPartition(topic, 0, low)])
        found: list[Heartbeat] = []
        deadline = time.monotonic() + PATIENCE_S
        while low < high and time.monotonic() < deadline:
            record = consumer.poll(1)
            if record is not None and record.error() is None:
                low = record.offset() + 1
                if record.key() == name.encode():
                    found.append(decode_heartbeat(record.key(), record.value())[1])
        return found
    finally:
        consumer.close()


def test_clients_find_the_gateways_that_serve(broker: LocalBroker, unique_prefix: str, tmp_path: Path) -> None:
    """Gateways that come, go, or say nonsense; and one whose access point is off."""
    topics = broker.topics(unique_prefix)
    others = Producer({"bootstrap.servers": broker.bootstrap})

    def write(name: str, value: bytes) -> None:
        others.produce(topics.members, value, name)
        assert others.flush(PATIENCE_S) == 0

    write("dead", encode(heartbeat("dead")))
    gateway = Gateway(tmp_path, broker.bootstrap, unique_prefix, **LONG)
    gateway.start()
    try:
        access, here = Access(gateway), ("127.0.0.1", gateway.port)
        assert access.will_list("mqtt", here), "and not what was there before"
        assert access.will_list("http", ("127.0.0.1", gateway.http_port))
        status, problem = access.ask("mqtts")
        assert (status, problem["reason"]) == (503, "no_operational_gateway")
        write("nonsense", b"{}")
        write("busy", encode(heartbeat("busy", LATER, load=GatewayLoad(connections=500))))
        assert access.will_list("mqtt", here, ("busy.test", 1000))
        write("busy", encode(heartbeat("busy", LATER, seq=1, state="gone")))
        assert access.will_list("mqtt", here)
    finally:
        gateway.stop()
    own = said(broker, topics.members)
    assert list(dict.fromkeys(record.state for record in own)) == ["joining", "up", "draining", "gone"]
    up = next(record for record in own if record.state == "up")
    assert set(up.addresses) == {"mqtt", "ws", "http"}
    assert up.load.memory_bytes > 0
    gateway = Gateway(tmp_path, broker.bootstrap, unique_prefix, WAYSTATION_GATEWAY__ACCESS_POINT__ENABLED="false")
    gateway.start()
    try:
        status, problem = Access(gateway).ask("mqtt")
        assert (status, problem["reason"]) == (404, "access_point_off")

        def is_up() -> bool:
            last = said(broker, topics.members)[-1]
            return last.state == "up" and last.boot > up.boot

        assert wait_until(is_up, PATIENCE_S), "it goes on serving, and says so"
    finally:
        gateway.stop()
