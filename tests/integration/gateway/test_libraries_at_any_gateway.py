"""Client libraries that know nothing of a site of gateways, and Waystation's own, through any gateway of it: wherever
their homes are, and whichever gateway is lost (G1, G8, G10, G11, G14)."""

import asyncio
import shutil
import subprocess
import threading
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Final

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from edge.reconnect import FullJitter
from harness.gateway_site import NAMES, SiteGateway
from harness.processes import HOST
from jobs.stack.process import wait_until
from tests.draw import site_of_gateways
from tests.gateway_site import CuttableSite, SiteBroker
from tests.mqttjs import check, mqttjs, needs_node
from tests.paho_client import Paho
from waystation import Client

__all__ = ["mqttjs"]

PATIENCE_S: Final = 60.0
NUMBER: Final = 60
SHARDS: Final = 6

pytestmark = [site_of_gateways, pytest.mark.timeout(240)]


@pytest.fixture
def site(tmp_path: Path, of_site: SiteBroker, unique_prefix: str) -> Iterator[CuttableSite]:
    with CuttableSite(tmp_path, of_site, unique_prefix, NAMES, shards=SHARDS) as site:
        site.start()
        site.all_have_standbys()
        assert wait_until(lambda: site.are_balanced() and site.are_served(NAMES), PATIENCE_S), "shards still move"
        yield site


def test_the_client_library_loses_its_gateways_and_nothing_else(site: CuttableSite, tmp_path: Path) -> None:
    """G1, G8, M2: it knows the access points. The homes of both clients are killed one after the other; at QoS 2 all
    comes once and in order, and the session is still there."""

    async def live() -> None:
        def client(name: str) -> Client:
            points = [f"http://{HOST}:{gateway.http}" for gateway in site.gateways.values()]
            store = tmp_path / f"{name}.outbox"
            return Client(client_id=name, access_points=points, store=store, backoff=FullJitter(0.05, 0.5))

        sent = [b"%d" % number for number in range(NUMBER)]
        async with asyncio.timeout(2 * PATIENCE_S), client("van-7") as van, client("base") as base:
            await base.subscribe("vans/#", qos=2)
            messages = []
            for number, payload in enumerate(sent):
                messages.append(await van.publish("vans/7", payload, qos=2))
                if number in (NUMBER // 3, 2 * NUMBER // 3):
                    home = site.owner_of("van-7" if number == NUMBER // 3 else "base")
                    await asyncio.to_thread(home.kill)
                    await asyncio.to_thread(site.all_served)
                    await asyncio.to_thread(site.start, home.gateway_name)
            for message in messages:
                await message.acknowledged
            got = [(await base.take_message()).payload for _ in sent]
        assert got == sent

    asyncio.run(live())


@needs_node
def test_mqttjs(site: CuttableSite, mqttjs: Path) -> None:
    """G11: over WebSocket; its clients have other names, and so other homes, at each."""
    for version, gateway in zip(("4", "5", "4"), site.gateways.values(), strict=True):
        port = gateway.environ["WAYSTATION_GATEWAY__WEBSOCKET_PORT"]
        check(mqttjs, f"ws://{HOST}:{port}/mqtt", version)


@pytest.mark.skipif(shutil.which("mosquitto_pub") is None, reason="mosquitto-clients are not installed")
@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
def test_mosquitto(site: CuttableSite, version: str) -> None:
    """G8, G11: it leaves its session at one gateway, another client publishes at a second, and it gets what it missed
    at the third."""

    def run(gateway: SiteGateway, program: str, *arguments: str) -> list[str]:
        command = [program, "-h", HOST, "-p", str(gateway.mqtt), "-V", version, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()

    keep = ["-c", "-x", "600"] if version == "mqttv5" else ["-c"]
    for number, (left, of_sender, later) in enumerate(permutations(site.gateways.values())):
        session = ["-i", f"mosquitto-{number}", "-t", f"m/{number}", "-q", "2", *keep]
        run(left, "mosquitto_sub", *session, "-E")
        for payload in ("one", "two"):
            run(of_sender, "mosquitto_pub", "-t", f"m/{number}", "-m", payload, "-q", "2")
        assert run(later, "mosquitto_sub", *session, "-C", "2", "-W", "30") == ["one", "two"]


@pytest.mark.parametrize("version", [MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5], ids=["3.1.1", "5"])
def test_paho(site: CuttableSite, version: MQTTProtocolVersion) -> None:
    """G10, G11: clients of all shards at each gateway get what one of them publishes."""
    clients = []
    try:
        for gateway in site.gateways.values():
            clients += [Subscriber(gateway, f"{gateway.gateway_name}-{n}", version) for n in range(SHARDS)]
        for client in clients:
            assert client.ready.wait(PATIENCE_S), client.name
        for number in range(10):
            clients[0].paho.publish("p", b"%d" % number, 2)
        for client in clients:
            assert client.has_all.wait(PATIENCE_S), f"{client.name}: {client.got}"
            assert client.got == [b"%d" % number for number in range(10)]
    finally:
        for client in clients:
            client.close()


class Subscriber:
    """paho with a subscription: `ready` once it has that, and `has_all` once it has got ten messages."""

    def __init__(self, gateway: SiteGateway, name: str, version: MQTTProtocolVersion) -> None:
        self.name, self.got = name, list[bytes]()
        self.ready, self.has_all = threading.Event(), threading.Event()
        self.paho = Paho(CallbackAPIVersion.VERSION2, name, protocol=version)
        self.paho.on_connect = lambda client, *_: client.subscribe("p", 2)
        self.paho.on_subscribe = lambda *_: self.ready.set()
        self.paho.on_message = self._take
        self.paho.connect(HOST, gateway.mqtt)
        self.paho.loop_start()

    def close(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()

    def _take(self, _client: mqtt.Client, _data: object, message: mqtt.MQTTMessage) -> None:
        self.got.append(bytes(message.payload))
        if len(self.got) == 10:
            self.has_all.set()
