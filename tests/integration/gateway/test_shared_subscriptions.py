"""Shared subscriptions through a gateway process on a real broker, with unmodified clients (R6; MQTT 5.0, 4.8.2)."""

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest

from harness.processes import Gateway
from jobs.stack.process import wait_until
from tests.conftest import LocalBroker
from tests.integration.gateway.test_gateway_process import PATIENCE_S, Client
from tests.paho_client import Paho

MESSAGES = 60

needs_mosquitto = pytest.mark.skipif(
    shutil.which("mosquitto_sub") is None, reason="mosquitto-clients are not installed"
)


@needs_mosquitto
@pytest.mark.drawn("versions of shared subscribers", 1)
@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
def test_mosquitto_clients_share(broker: LocalBroker, unique_prefix: str, tmp_path: Path, version: str) -> None:
    """R6: two mosquitto_sub get each message once among them, in turn, whichever version they speak."""
    broker.topics(unique_prefix)
    gateway = Gateway(tmp_path, broker.bootstrap, unique_prefix)
    gateway.start()
    try:
        program = ["mosquitto_sub", "-h", "127.0.0.1", "-p", str(gateway.port), "-V", version, "-q", "2", "-d"]
        subscribers = [
            subprocess.Popen(
                ["stdbuf", "-oL", *program, "-t", "$share/g/a/#", "-F", "got %p", "-C", str(MESSAGES // 2)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(2)
        ]
        for subscriber in subscribers:
            assert subscriber.stdout is not None
            assert any("SUBACK" in line for line in subscriber.stdout)
        sender = Client("sender").connect(gateway.port)
        for n in range(MESSAGES):
            sender.publish("a/b", b"%d" % n, n % 3)
        shares = []
        for subscriber in subscribers:
            output, _ = subscriber.communicate(timeout=PATIENCE_S)
            shares.append([int(line.split()[1]) for line in output.splitlines() if line.startswith("got ")])
        assert sorted(n for share in shares for n in share) == list(range(MESSAGES))
        for share in shares:
            for qos in range(3):  # mosquitto_sub shows what comes at QoS 2 when PUBREL has come
                numbers = [n for n in share if n % 3 == qos]
                assert numbers == sorted(numbers)
        sender.leave()
    finally:
        gateway.stop()


@pytest.mark.drawn("ends of a gateway with share groups", 1)
@pytest.mark.parametrize("end", [Gateway.kill, Gateway.stop])
def test_a_group_outlives_its_gateway(broker: LocalBroker, unique_prefix: str, tmp_path: Path, end: object) -> None:
    """R6, G8, G9: what waits for a group comes to its members from the next gateway, at QoS 2 once."""
    assert callable(end)
    broker.topics(unique_prefix)
    gateway = Gateway(tmp_path, broker.bootstrap, unique_prefix)
    gateway.start()
    try:
        sender = Client("sender").connect(gateway.port)
        members = [Client(f"member-{n}").connect(gateway.port) for n in range(2)]
        for member in members:
            member.subscribe("$share/g/a/#")
        for n in range(MESSAGES):
            sender.publish("a/b", b"online %d" % n, 2)
        assert wait_until(lambda: sum(len(m.got) for m in members) == MESSAGES, PATIENCE_S)
        assert [len(member.got) for member in members] == [MESSAGES // 2] * 2
        for member in members:
            member.leave()
        for n in range(MESSAGES):
            sender.publish("a/b", b"offline %d" % n, 2)
        sender.leave()
        end(gateway)
        gateway.start()
        for member in members:
            member.connect(gateway.port)
        assert wait_until(lambda: sum(len(m.got) for m in members) >= 2 * MESSAGES, PATIENCE_S)
        for member in members:
            member.leave()
        got = Counter(payload for member in members for payload in member.got)
        assert got == Counter(b"%s %d" % (when, n) for when in (b"online", b"offline") for n in range(MESSAGES))
    finally:
        gateway.stop()


def test_a_client_is_told_what_is_shared(broker: LocalBroker, unique_prefix: str, tmp_path: Path) -> None:
    """3.2.2.3.13, 3.8.3-4: shared subscriptions are available; No Local on one is a protocol error."""
    broker.topics(unique_prefix)
    gateway = Gateway(tmp_path, broker.bootstrap, unique_prefix)
    gateway.start()
    try:
        answers: list[object] = []
        client = Paho(mqtt.CallbackAPIVersion.VERSION2, "asker", protocol=mqtt.MQTTv5)
        client.on_connect = lambda _c, _d, _f, _code, properties: answers.append(properties)
        client.on_disconnect = lambda _c, _d, _f, code, _properties: answers.append(code.value)
        client.connect("127.0.0.1", gateway.port)
        client.loop_start()
        assert wait_until(lambda: len(answers) == 1, PATIENCE_S)
        assert getattr(answers[0], "SharedSubscriptionAvailable", 1) == 1
        client.subscribe("$share/g/a", options=mqtt.SubscribeOptions(1, noLocal=True))
        assert wait_until(lambda: 0x82 in answers, PATIENCE_S)
        client.disconnect()
        client.loop_stop()
    finally:
        gateway.stop()
