"""MQTT over QUIC: a gateway process on a real broker, and clients whose addresses change (G11)."""

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

from edge.mqtt_client import MqttClient
from edge.reconnect import FullJitter, StayConnected
from harness.keys import Authority
from harness.processes import Gateway
from mqtt.packets import Connect, Publish
from tests.conftest import LocalBroker
from tests.unit.gateway.host.quic_client import Nat, Trust, payloads, trust, until

PATIENCE_S = 60.0
MESSAGES = 200


async def _every_quality(trusted: Trust, port: int) -> None:
    got: list[Publish] = []
    client = trusted.client("qualities", port, on_message=got.append)
    await client.connect()
    await client.subscribe("qualities/#", qos=2)
    for qos in (0, 1, 2):
        await client.publish(f"qualities/{qos}", b"%d" % qos, qos)
    await until(lambda: len(got) == 3)
    assert {(message.topic, message.qos) for message in got} == {(f"qualities/{qos}", qos) for qos in (0, 1, 2)}
    await client.disconnect()


async def _exactly_once(trusted: Trust, port: int) -> None:
    """Both sides move while QoS 2 exchanges are in flight; the sender also loses its connection, and comes back from
    another address."""
    nats = [await Nat(port).open() for _ in range(2)]
    got: list[Publish] = []
    properties = {"session_expiry_interval": 600}

    def client(name: str, nat: Nat, **options: object) -> MqttClient:
        address = trusted.client(name, nat.port)._address
        return MqttClient(address, Connect(name, clean_start=False, properties=properties), **options)  # type: ignore[arg-type]

    receiver, sender = client("receiver", nats[0], on_message=got.append), client("sender", nats[1])
    async with StayConnected(receiver, FullJitter(0.01, 0.05)), StayConnected(sender, FullJitter(0.01, 0.05)):
        await receiver.subscribe("once", qos=2)
        await sender.wait_connected()
        waiting = []
        for number in range(MESSAGES):
            waiting.append(sender.publish("once", b"%d" % number, 2))
            if number % 20 == 0:
                await nats[0].rebind()
                await nats[1].rebind()
            if number % 30 == 0:
                await receiver.network_changed()
            if number % 70 == 69:
                sender.abort()
        await asyncio.gather(*waiting)
        await until(lambda: len(got) >= MESSAGES)
        assert payloads(got) == [b"%d" % number for number in range(MESSAGES)]
        assert receiver.connections == 1
        assert sender.connections > 1
        for one in (receiver, sender):
            await one.disconnect()
    for nat in nats:
        nat.close()


def _publish(port: int, trusts: Authority) -> tuple[int, list[str]]:
    """Exit status and lines on standard error of `waystation publish --quic`."""
    where = ("--address", f"127.0.0.1:{port}", "--quic", "--cafile", str(trusts.file))
    command = [sys.executable, "-m", "jobs.cli.main", "publish", "a", "hello", "--qos", "2", *where]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=PATIENCE_S)
    return done.returncode, done.stderr.splitlines()


def test_a_process_and_clients_that_move(broker: LocalBroker, unique_prefix: str, tmp_path: Path) -> None:
    """QoS 0 to 2, exactly once while addresses change, the access point, and `waystation publish --quic`."""
    trusted = trust(tmp_path)
    broker.topics(unique_prefix)
    files = {f"WAYSTATION_GATEWAY__TLS__{name.upper()}": str(trusted.settings[name]) for name in ("certificate", "key")}
    more = {"WAYSTATION_GATEWAY__TLS__QUIC_PORT": "0", "WAYSTATION_ROUTER__ROUTE_LEAD_S": "3600.0"}  # no router runs
    gateway = Gateway(tmp_path, broker.bootstrap, unique_prefix, **files, **more)
    gateway.start()
    try:
        port = gateway.port_of("quic")
        asyncio.run(asyncio.wait_for(_every_quality(trusted, port), PATIENCE_S))
        asyncio.run(asyncio.wait_for(_exactly_once(trusted, port), PATIENCE_S))
        url = f"http://127.0.0.1:{gateway.http_port}/v1/connect?bearer=quic"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            assert json.load(answer)["connect_points"][0]["port"] == port
        assert _publish(port, trusted.authority) == (0, [])
        status, said = _publish(port, Authority(tmp_path, "other"))
        assert (status, len(said)) == (1, 1)
        assert "unable to get local issuer certificate" in said[0]
    finally:
        gateway.stop()
    assert "aioquic" not in gateway.log()
    assert "Traceback" not in gateway.log()
