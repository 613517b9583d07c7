"""Clients as people use them: mosquitto's programs and paho, against the gateway on real sockets (G11)."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.paho_client import Paho
from tests.unit.gateway.host.socket_gateway import HOST, PATIENCE_S, SocketGateway
from tests.waiting import wait_for

needs_mosquitto = pytest.mark.skipif(shutil.which("mosquitto_rr") is None, reason="mosquitto-clients are not installed")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SocketGateway]:
    with SocketGateway(tmp_path_factory.mktemp("clients"), response_prefix="responses/") as gateway:
        yield gateway


def program(gateway: SocketGateway, name: str, *arguments: str) -> list[str]:
    return [name, "-h", HOST, "-p", str(gateway.mqtt_port), *arguments]


def subscribed(gateway: SocketGateway, client: str, filters: int = 1) -> None:
    def has_them() -> bool:
        session = gateway.harness.home.session(client)
        return session is not None and len(session.subscriptions) == filters

    wait_for(has_them, f"the subscriptions of {client}")


@needs_mosquitto
def test_mosquitto_rr_asks_and_a_responder_answers(gateway: SocketGateway) -> None:
    """MQTT 5.0, 4.10."""
    responder = subprocess.Popen(
        program(gateway, "mosquitto_sub", "-V", "5", "-i", "responder", "-t", "ask", "-C", "1", "-F", "%j", "-W", "20"),
        stdout=subprocess.PIPE,
        text=True,
    )
    subscribed(gateway, "responder")
    asker = subprocess.Popen(
        program(gateway, "mosquitto_rr", "-V", "5", "-t", "ask", "-e", "answer/1", "-m", "what", "-W", "20"),
        stdout=subprocess.PIPE,
        text=True,
    )
    asked = json.loads(responder.communicate(timeout=PATIENCE_S)[0])
    assert asked["payload"] == "what"
    answer_to = asked["properties"]["response-topic"]
    subprocess.run(program(gateway, "mosquitto_pub", "-t", answer_to, "-m", "this"), check=True, timeout=PATIENCE_S)
    assert asker.communicate(timeout=PATIENCE_S)[0] == "this\n"


@needs_mosquitto
def test_mosquitto_shows_every_property(gateway: SocketGateway) -> None:
    """MQTT 5.0, 3.3.2.3: as another implementation reads them."""
    command = ["-V", "5", "-i", "reader", "-t", "p/#", "-q", "1", "-C", "1", "-F", "%j", "-W", "20"]
    with subprocess.Popen(program(gateway, "mosquitto_sub", *command), stdout=subprocess.PIPE, text=True) as reader:
        subscribed(gateway, "reader")
        properties = [
            ["user-property", "b", "1"],
            ["user-property", "a", "2"],
            ["content-type", "text/plain"],
            ["response-topic", "r"],
            ["correlation-data", "c"],
            ["message-expiry-interval", "60"],
            ["payload-format-indicator", "1"],
        ]
        arguments = [word for named in properties for word in ("-D", "publish", *named)]
        publish = ["-V", "5", "-t", "p/1", "-m", "x", "-q", "1", *arguments]
        subprocess.run(program(gateway, "mosquitto_pub", *publish), check=True, timeout=PATIENCE_S)
        shown = json.loads(reader.communicate(timeout=PATIENCE_S)[0])["properties"]
    assert shown.pop("message-expiry-interval") in (59, 60)
    assert list(shown.pop("user-properties").items()) == [("b", "1"), ("a", "2")]
    assert shown == {
        "content-type": "text/plain",
        "response-topic": "r",
        "correlation-data": "c",
        "payload-format-indicator": 1,
    }


@needs_mosquitto
@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
def test_the_will_of_a_mosquitto_that_is_killed(gateway: SocketGateway, version: str) -> None:
    """G9: as a retained message; and mosquitto clears it."""
    topic = f"will/{version}"
    will = ["--will-topic", topic, "--will-payload", "gone", "--will-qos", "2", "--will-retain"]
    victim = subprocess.Popen(program(gateway, "mosquitto_sub", "-V", version, "-i", version, "-t", "x", *will))
    subscribed(gateway, version)
    victim.kill()
    victim.wait(PATIENCE_S)
    listen = program(gateway, "mosquitto_sub", "-V", version, "-t", topic, "-C", "1", "-v", "-W", "20")
    assert subprocess.run(listen, stdout=subprocess.PIPE, text=True, check=True).stdout == f"{topic} gone\n"
    subprocess.run(program(gateway, "mosquitto_pub", "-t", topic, "-n", "-r", "-q", "1"), check=True)
    assert gateway.call(lambda: len(gateway.harness.node.retained)) == 0


@needs_mosquitto
def test_mosquitto_in_mqtt_3_1_is_told_which_versions_there_are(gateway: SocketGateway) -> None:
    command = program(gateway, "mosquitto_pub", "-V", "mqttv31", "-t", "a", "-m", "x", "-i", "old")
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode != 0
    assert "unacceptable protocol version" in done.stderr.lower()


def test_paho_is_told_everything(gateway: SocketGateway) -> None:
    """MQTT 5.0, as paho's callbacks show it: CONNACK's properties, codes of SUBACK and UNSUBACK, 0x8E at takeover."""
    said: dict[str, Any] = {}
    client = paho("paho")
    client.on_connect = lambda _c, _d, _f, reason, properties: said.update(connect=(reason, properties))
    client.on_subscribe = lambda _c, _d, _mid, reasons, _p: said.update(subscribe=[r.value for r in reasons])
    client.on_unsubscribe = lambda _c, _d, _mid, reasons, _p: said.update(unsubscribe=[r.value for r in reasons])
    client.on_disconnect = lambda _c, _d, _f, reason, _p: said.update(disconnect=reason.value)
    asked = Properties(PacketTypes.CONNECT)
    asked.RequestResponseInformation = 1
    client.connect(HOST, gateway.mqtt_port, properties=asked)
    client.loop_start()
    wait_for(lambda: "connect" in said, "CONNACK")
    reason, properties = said["connect"]
    limits = gateway.server.limits
    assert reason.value == 0
    assert properties.ResponseInformation == "responses/paho/"
    assert properties.ReceiveMaximum == limits.receive_maximum
    assert properties.MaximumPacketSize == limits.packet_bytes
    assert properties.TopicAliasMaximum == limits.topic_alias_maximum
    client.subscribe([("a", mqtt.SubscribeOptions(qos=1)), ("@else", mqtt.SubscribeOptions(qos=2))])
    wait_for(lambda: "subscribe" in said, "SUBACK")
    assert said["subscribe"] == [1, 0x87]
    client.unsubscribe(["a", "none"])
    wait_for(lambda: "unsubscribe" in said, "UNSUBACK")
    assert said["unsubscribe"] == [0, 0x11]
    heir = paho("paho")
    heir.connect(HOST, gateway.mqtt_port)
    heir.loop_start()
    wait_for(lambda: "disconnect" in said, "DISCONNECT")
    assert said["disconnect"] == 0x8E
    for each in (client, heir):
        each.disconnect()
        each.loop_stop()


def paho(name: str) -> Paho:
    version2 = mqtt.CallbackAPIVersion.VERSION2
    return Paho(version2, name, protocol=mqtt.MQTTv5, reconnect_on_failure=False)
