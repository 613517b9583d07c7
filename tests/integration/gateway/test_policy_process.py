"""Policy as real clients meet it: a gateway process on a real broker, paho and Debian's Mosquitto clients (Q12)."""

import os
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from harness import processes
from jobs.stack.process import wait_until
from tests.conftest import LocalBroker
from tests.paho_client import Paho

PATIENCE_S = 40.0
PAHO_AT_QOS_2 = 0x92
"""To a PUBREC that refuses paho sends PUBREL all the same, and shows what PUBCOMP says: there is no such packet id."""
POLICY = """
[gateway.policy]
message_bytes = 1000
blocked_publish = ["secret/#"]
blocked_subscribe = ["test/nosubscribe"]

[gateway.policy.attachments]
types = ["image/*"]
bytes = 100

[gateway.policy.message_rate]
messages_per_s = 200.0
messages_burst = 50
above = "pause"

[gateway.policy.connection_rate]
client_per_s = 0.01
client_burst = 2
"""


class Gateway(processes.Gateway):
    """A gateway whose metrics can be read."""

    def found(self, finding: str) -> float:
        """How often policy found it."""
        return self.value(f'waystation_policy_findings_total{{finding="{finding}"}}')

    def value(self, metric: str) -> float:
        """A value of the metrics."""
        with urllib.request.urlopen(f"http://{self.addresses['metrics']}/metrics", timeout=PATIENCE_S) as answer:
            lines = answer.read().decode().splitlines()
        return next(float(line.removeprefix(metric)) for line in lines if line.startswith(f"{metric} "))


@pytest.fixture
def gateway(broker: LocalBroker, unique_prefix: str, tmp_path: Path) -> Iterator[Gateway]:
    broker.topics(unique_prefix)
    overlay = tmp_path / "policy.toml"
    overlay.write_text(POLICY)
    configuration = os.pathsep.join([str(Path(__file__).parents[3] / "conf" / "base.toml"), str(overlay)])
    gateway = Gateway(tmp_path, broker.bootstrap, unique_prefix, WAYSTATION_CONF=configuration)
    with gateway.running():
        yield gateway


class Client:
    """A paho client that speaks MQTT 5 and notes the reason of each answer."""

    def __init__(self, name: str, port: int) -> None:
        self.answers: dict[int, int] = {}
        self.granted: list[int] = []
        self.connack: list[int] = []
        self._mqtt = Paho(mqtt.CallbackAPIVersion.VERSION2, name, protocol=mqtt.MQTTv5, reconnect_on_failure=False)
        self._mqtt.on_publish = lambda _c, _d, mid, reason, _p: self.answers.update({mid: reason.value})
        self._mqtt.on_subscribe = lambda _c, _d, _m, reasons, _p: self.granted.extend(r.value for r in reasons)
        self._mqtt.on_connect = lambda _c, _d, _f, reason, _p: self.connack.append(reason.value)
        self._mqtt.connect("127.0.0.1", port)
        self._mqtt.loop_start()
        assert wait_until(lambda: self.connack, PATIENCE_S)

    def leave(self) -> None:
        self._mqtt.disconnect()
        self._mqtt.loop_stop()

    def publish(self, topic: str, payload: bytes, qos: int, content_type: str = "") -> int:
        """The reason of the answer."""
        properties = Properties(PacketTypes.PUBLISH)
        if content_type:
            properties.ContentType = content_type
        mid = self._mqtt.publish(topic, payload, qos, properties=properties).mid
        assert wait_until(lambda: mid in self.answers, PATIENCE_S)
        return self.answers[mid]

    def subscribe(self, *filters: str) -> list[int]:
        self._mqtt.subscribe([(name, mqtt.SubscribeOptions(1)) for name in filters])
        assert wait_until(lambda: len(self.granted) == len(filters), PATIENCE_S)
        return self.granted


def test_refusals_reach_clients_of_both_versions(gateway: Gateway) -> None:
    """Q12: reason codes of MQTT 5; with 3.1.1 the connection ends; each is counted."""
    client = Client("five", gateway.port)
    assert client.subscribe("test/nosubscribe", "test/#") == [0x80, 1]
    assert client.publish("a", b"x" * 1_001, 1) == 0x97
    assert client.publish("a", b"x" * 1_001, 2) == PAHO_AT_QOS_2
    assert client.publish("secret/a", b"x", 1) == 0x90
    assert client.publish("a", b"x" * 101, 1, "image/png") == 0x97
    assert client.publish("a", b"x" * 101, 1, "text/plain") in (0x00, 0x10)
    client.leave()
    old = ["mosquitto_pub", "-V", "311", "-p", str(gateway.port), "-i", "old", "-q", "1", "-t", "secret/b", "-m", "x"]
    publish = subprocess.Popen(old, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert wait_until(lambda: gateway.found("blocked_topic") >= 2, PATIENCE_S)
    finally:
        publish.kill()
        publish.wait()
    assert gateway.found("message_bytes") == 2
    assert gateway.found("attachment_bytes") == 1
    assert gateway.found("blocked_filter") == 1


def test_a_client_that_connects_too_often_is_told(gateway: Gateway) -> None:
    """Q12: 0x9F; another client comes in."""
    clients = [Client("same", gateway.port) for _ in range(3)]
    assert [client.connack[0] for client in clients] == [0, 0, 0x9F]
    clients.append(Client("other", gateway.port))
    assert clients[-1].connack == [0]
    for client in clients:
        client.leave()
    assert gateway.found("client_connection_rate") == 1


def test_a_flood_is_slowed_down_and_nothing_of_it_is_lost(gateway: Gateway) -> None:
    """Q12, R9: back-pressure down to the client's own socket; another client goes on meanwhile."""
    count, payload = 400, b"y" * 900
    packet = b"\x30" + bytes([0x80 | (3 + len(payload)) & 127, (3 + len(payload)) >> 7]) + b"\x00\x01f" + payload
    other = Client("other", gateway.port)
    with socket.create_connection(("127.0.0.1", gateway.port), PATIENCE_S) as flood:
        flood.sendall(b"\x10\x11\x00\x04MQTT\x04\x02\x00\x00\x00\x05flood")
        assert flood.recv(4) == b"\x20\x02\x00\x00"
        sending = threading.Thread(target=lambda: flood.sendall(packet * count))
        sending.start()
        assert wait_until(lambda: gateway.found("message_rate_paused") >= 1, PATIENCE_S)
        assert other.publish("a", b"x", 1) in (0x00, 0x10)
        assert wait_until(lambda: gateway.value("waystation_publishes_stored_total") == count + 1, PATIENCE_S)
        sending.join()
    assert gateway.value('waystation_publishes_refused_total{reason="by_rule"}') == 0
    other.leave()
