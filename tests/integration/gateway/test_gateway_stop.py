"""SIGTERM under load, with real clients: nothing lost, nothing doubled, no needless repeats (Q1, G8)."""

import asyncio
import signal
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest

from harness.processes import Gateway
from jobs.stack.process import wait_until
from tests.conftest import LocalBroker
from tests.faithful_client import FaithfulClient, eventually
from tests.integration.gateway.test_gateway_process import PATIENCE_S
from tests.paho_client import Paho
from tests.waiting import wait_for

STOPS = 3
MESSAGES = 150
SOON_S = 10.0


async def _publish(sender: FaithfulClient, first: int) -> None:
    for number in range(first, first + MESSAGES):
        sender.publish("stop/x", b"%d" % number, 1 + number % 2)
        await asyncio.sleep(0.002)


async def _stop_under_load(gateway: Gateway) -> tuple[FaithfulClient, FaithfulClient]:
    sender = await FaithfulClient(lambda: gateway.port, "sender").come()
    receiver = await FaithfulClient(lambda: gateway.port, "receiver").come()
    await receiver.subscribe("stop/#", 2)
    for stop in range(STOPS):
        publishing = asyncio.create_task(_publish(sender, stop * MESSAGES))
        half = stop * MESSAGES + MESSAGES // 2
        await eventually(lambda half=half: len(receiver.got) > half, "half of the messages")  # type: ignore[misc]
        gateway.process.ask_to_stop()
        gateway.process.ask_to_stop()  # whoever is impatient changes nothing
        await asyncio.to_thread(gateway.stop)
        assert gateway.process.exit_code == 0
        await asyncio.to_thread(gateway.start)
        await publishing
    await sender.published()
    await eventually(lambda: len(set(receiver.payloads)) == STOPS * MESSAGES, "every message")
    for client in (sender, receiver):
        await client.leave(goodbye=True)
    return sender, receiver


@pytest.mark.timeout(180)
def test_stopped_under_load(broker: LocalBroker, unique_prefix: str, tmp_path: Path) -> None:
    """Q1, G8, R8: every PUBLISH that was taken is answered before the end, so that no client has to repeat it, and what
    clients have acknowledged does not come again."""
    broker.topics(unique_prefix)
    gateway = Gateway(tmp_path, broker.bootstrap, unique_prefix)
    gateway.start()
    try:
        sender, receiver = asyncio.run(_stop_under_load(gateway))
    finally:
        gateway.stop()
    assert not sender.faults + receiver.faults
    assert not receiver.lost_sessions
    twice = {payload for payload in receiver.payloads if receiver.payloads.count(payload) > 1}
    assert twice <= sender.repeated, "came again though acknowledged"
    assert not {payload for payload in twice if int(payload) % 2}, "twice at QoS 2"
    numbers = [int(payload) for payload in dict.fromkeys(receiver.payloads)]
    assert numbers == sorted(numbers)


@pytest.mark.drawn("transports at a stop", 1)
@pytest.mark.parametrize("transport", ["tcp", "websockets"])
def test_clients_are_told(broker: LocalBroker, unique_prefix: str, tmp_path: Path, transport: str) -> None:
    """G8: MQTT 5 clients get DISCONNECT 0x8B."""
    broker.topics(unique_prefix)
    gateway = Gateway(tmp_path, broker.bootstrap, unique_prefix)
    gateway.start()
    reasons: list[object] = []
    client = Paho(
        mqtt.CallbackAPIVersion.VERSION2, "c", protocol=mqtt.MQTTv5, transport=transport, reconnect_on_failure=False
    )
    client.on_disconnect = lambda _client, _data, _flags, reason, _properties: reasons.append(reason.value)
    connected: list[object] = []
    client.on_connect = lambda *_: connected.append(None)
    port = gateway.port if transport == "tcp" else gateway.port_of("websocket")
    try:
        client.connect("127.0.0.1", port)
        client.loop_start()
        asyncio.run(eventually(lambda: bool(connected), "CONNACK", PATIENCE_S))
        gateway.process.ask_to_stop()
        asyncio.run(eventually(lambda: bool(reasons), "the end of the connection", PATIENCE_S))
        assert reasons == [0x8B]
    finally:
        client.loop_stop()
        gateway.stop()
    assert gateway.process.exit_code == 0, signal.Signals(-(gateway.process.exit_code or 0))


@pytest.mark.parametrize("module", ["gateway", "gateway.dispatch"])
def test_stopped_before_kafka_answers(tmp_path: Path, module: str) -> None:
    """Nobody waits for the timeouts of Kafka's client, which are half a minute."""
    sockets = tmp_path / "sockets"
    away = {"WAYSTATION_GATEWAY__CLUSTER__ENABLED": "true", "WAYSTATION_GATEWAY__CLUSTER__SOCKETS": str(sockets)}
    ports = {"WAYSTATION_GATEWAY__DISPATCHER__PORT": "0", "WAYSTATION_GATEWAY__DISPATCHER__METRICS_PORT": "0"}
    process = Gateway(tmp_path, "127.0.0.1:1", "away.", **away, **ports)
    process.argv[-1] = module
    asks = sockets.exists if module == "gateway.dispatch" else lambda: "Connection refused" in process.log()
    process.launch()
    try:
        wait_for(lambda: asks() or process.ended(), "it asks Kafka")
        process.process.ask_to_stop()
        assert wait_until(process.ended, SOON_S), "it waits for Kafka"
        assert process.process.exit_code == 0
        assert "Traceback" not in process.log()
    finally:
        process.stop()
