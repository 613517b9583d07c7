"""Clients of real gateways keep their connection through moves of all shards, and through a drain (R5)."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import paho.mqtt.client as paho
import pytest

from harness.gateway_site import NAMES, Site
from harness.processes import HOST, Broker
from jobs.stack.process import wait_until
from tests.draw import site_of_gateways
from tests.faithful_client import FaithfulClient, eventually
from tests.paho_client import Paho

A, B, C = NAMES
CLIENTS: Final = 120
ROUND: Final = 2
MESSAGES_A_TURN: Final = 3
TURN_S: Final = 0.2
AGAIN_S: Final = 5.0
SPREAD_S: Final = 30.0
"""Until each gateway has its shards: they move one by one."""

pytestmark = [site_of_gateways, pytest.mark.timeout(300)]


@pytest.fixture
def site(tmp_path: Path, own_broker: Broker, unique_prefix: str) -> Iterator[Site]:
    sockets = {"WAYSTATION_GATEWAY__CLUSTER__SOCKETS": str(tmp_path / "sockets")}
    with Site(tmp_path, own_broker.bootstrap, unique_prefix, settings=lambda name: sockets) as site:
        site.start()
        site.all_have_standbys()
        assert wait_until(site.are_balanced, SPREAD_S)
        yield site


class Traffic:
    """Clients, each at its home, which publish and get at all QoS while shards move."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.clients = [self._client(f"client-{number}", number) for number in range(CLIENTS)]
        self.sent: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        self._stopping = asyncio.Event()

    def _client(self, name: str, number: int) -> FaithfulClient:
        return FaithfulClient(lambda: self.site.owner_of(name).mqtt, name, version=4 + number % 2, receive_maximum=20)

    async def begin(self) -> None:
        await asyncio.gather(*(client.come() for client in self.clients))
        for number, client in enumerate(self.clients):
            await client.subscribe(f"q{number % 3}/#", number % 3)
        self._task = asyncio.get_running_loop().create_task(self._publish())

    async def _publish(self) -> None:
        number = 0
        while not self._stopping.is_set():
            for _ in range(MESSAGES_A_TURN):
                qos = number % 3
                payload = b"%d" % number
                self.clients[number % 7].publish(f"q{qos}/{number % 7}", payload, qos)
                self.sent[qos].append(payload)
                number += 1
            await asyncio.sleep(TURN_S)

    async def end(self) -> None:
        """All that was sent has come, once and in order, over the first connection of each client."""
        self._stopping.set()
        await self._task
        await asyncio.gather(*(client.published() for client in self.clients[:7]))
        for number, client in enumerate(self.clients):
            wanted = self.sent[number % 3] if number % 3 else []
            await eventually(lambda c=client, w=wanted: len(c.got) >= len(w), f"{client.name} has all")  # type: ignore[misc]
        for number, client in enumerate(self.clients):
            sent, got = self.sent[number % 3], client.payloads
            assert not client.faults, f"{client.name}: {client.faults}"
            assert client.connection == 1, f"{client.name} has had {client.connection} connections"
            for sender in range(7):
                own = [payload for payload in got if int(payload) % 7 == sender]
                assert own == sorted(own, key=int), f"{client.name} has got {own} of {sender}"
            if number % 3:
                assert sorted(got, key=int) == sent, client.name
                assert not any(one.dup for one in client.got), client.name
            else:
                assert len(set(got)) == len(got)
        for client in self.clients:
            await client.leave(goodbye=True)


def move(site: Site, shard: int, to: str) -> None:
    """A gateway whose machine is busy may lose sight of another one, and forget the move."""
    for _ in range(5):
        with contextlib.suppress(AssertionError):
            site.moved(shard, to, AGAIN_S)
            return
    site.moved(shard, to)


def test_clients_stay_connected_through_moves_and_a_drain(site: Site) -> None:
    """R5: over a hundred clients and a paho client, MQTT 5 and 3.1.1; QoS 0, 1 and 2 in both directions."""
    disconnected: list[object] = []
    client = Paho(paho.CallbackAPIVersion.VERSION2, "paho", clean_session=False)
    client.on_disconnect = lambda *about: disconnected.append(about)
    client.connect(HOST, site.owner_of("paho").mqtt)
    client.loop_start()

    async def live() -> None:
        traffic = Traffic(site)
        await traffic.begin()
        for _ in range(ROUND):
            for shard in range(site.shards):
                to = NAMES[(NAMES.index(site.owner(shard).gateway_name) + 1) % len(NAMES)]
                await asyncio.to_thread(move, site, shard, to)
        assert await asyncio.to_thread(site.gateways[A].leave) == 0
        await asyncio.to_thread(site.all_served)
        await traffic.end()

    asyncio.run(live())
    assert not disconnected
    assert client.publish("a/b", b"still here", 2).rc == paho.MQTT_ERR_SUCCESS
    assert client.is_connected()
    client.disconnect()
    client.loop_stop()
