"""Three gateways share the shards of a site: what others have suffered with clusters, one by one (G1, G2, G4, G8, G9,
G10, G14).

tests/acceptance/test_gateways_under_faults.py has the list, and what its faults show.
"""

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from edge.link import Address
from edge.mqtt_client import MqttClient
from harness.gateway_site import NAMES, SiteGateway
from harness.processes import HOST
from jobs.stack.process import wait_until
from mqtt.codes import ConnectReturnCode, ReasonCode
from mqtt.encode import encode
from mqtt.packets import Connect
from tests import draw
from tests.draw import site_of_gateways
from tests.faithful_client import FaithfulClient, eventually
from tests.gateway_site import CuttableSite, SiteBroker

A, B, C = NAMES
ROUNDS: Final = 10
QUEUE: Final = 300
HERD: Final = 300
LOOK_S: Final = 20.0
PATIENCE_S: Final = 20.0
AGAIN_S: Final = 0.1

pytestmark = [site_of_gateways, pytest.mark.timeout(180)]


@pytest.fixture
def site(tmp_path: Path, of_site: SiteBroker, unique_prefix: str) -> Iterator[CuttableSite]:
    with CuttableSite(tmp_path, of_site, unique_prefix, NAMES) as site:
        site.start()
        site.all_have_standbys()
        yield site


def client_at(gateway: SiteGateway, name: str, **options: Any) -> FaithfulClient:
    """A client that always connects to this gateway, wherever its home is."""
    return FaithfulClient(lambda: gateway.mqtt, name, **options)


@asynccontextmanager
async def connected(*clients: FaithfulClient) -> AsyncIterator[None]:
    try:
        for client in clients:
            await client.come()
        yield
        for client in clients:
            assert not client.faults, f"{client.name}: {client.faults}"
    finally:
        for client in clients:
            await client.leave()


def test_each_client_is_served_at_any_gateway(site: CuttableSite) -> None:
    """G14: clients of all shards, each at each gateway, MQTT 5 and 3.1.1; messages come across gateways, once and in
    order."""

    async def live() -> None:
        clients = [
            client_at(site.gateways[name], f"{name}-{number}", version=(4, 5)[number % 2])
            for name in NAMES
            for number in range(2 * site.shards)
        ]
        assert {site.shard_of(client.name) for client in clients} == set(range(site.shards))
        sender = client_at(site.gateways[A], "sender")
        async with connected(sender, *clients):
            for client in clients:
                await client.subscribe("a/#", 2)
            wanted = [b"%d" % number for number in range(20)]
            for payload in wanted:
                sender.publish("a/1", payload, 2)
            for client in clients:
                await eventually(lambda c=client: len(c.got) >= len(wanted), f"{client.name} has all")  # type: ignore[misc]
                assert client.payloads == wanted

    asyncio.run(live())


def test_retained_is_there_at_another_gateway_at_once(site: CuttableSite) -> None:
    """G9, vernemq#2251: whoever subscribes after PUBACK gets it, wherever both are."""

    async def live() -> None:
        rng = draw.generator("retained at another gateway")
        publisher = client_at(site.gateways[A], "publisher")
        readers = [client_at(site.gateways[name], f"reader-{name}-{n}") for name in NAMES for n in range(3)]
        async with connected(publisher, *readers):
            for number in range(ROUNDS):
                topic, reader = f"r/{number}", rng.choice(readers)
                publisher.publish(topic, b"%d" % number, rng.choice([1, 2]), retain=True)
                await publisher.published()
                await reader.subscribe(topic, 1)
                await reader.subscribe("none", 1)  # retained messages come before the SUBACK of a later SUBSCRIBE
                assert b"%d" % number in reader.payloads, f"{reader.name} did not get {topic}"

    asyncio.run(live())


def test_a_client_takes_over_its_session_at_another_gateway(site: CuttableSite) -> None:
    """G10, emqx#13124: it finds its session, and the connection at the other gateway is told so and ends."""

    async def live() -> None:
        gateways = [site.gateways[name] for name in NAMES]
        packet = Connect("same", 5, False, 30, properties={"session_expiry_interval": 600})
        connections = [MqttClient(Address(HOST, gateways[n % 3].mqtt), packet) for n in range(ROUNDS)]
        found = [(await connections[0].connect()).session_present]
        for earlier, later in pairwise(connections):
            found.append((await asyncio.wait_for(later.connect(), PATIENCE_S)).session_present)
            closed = await asyncio.wait_for(earlier.wait_closed(), PATIENCE_S)
            assert closed.reason is ReasonCode.SESSION_TAKEN_OVER
        assert found == [False] + [True] * (ROUNDS - 1)
        await connections[-1].disconnect()

    asyncio.run(live())


def test_a_queue_moves_while_its_client_comes_back_elsewhere(site: CuttableSite) -> None:
    """G8, vernemq#2488: what waited for it, and what is published meanwhile, comes once and in order."""

    async def live() -> None:
        away, sender = client_at(site.gateways[A], "away"), client_at(site.gateways[B], "sender")
        shard = site.shard_of("away")
        async with connected(sender):
            await away.come()
            await away.subscribe("q/#", 2)
            await away.leave()
            for number in range(QUEUE):
                sender.publish("q/1", b"%d" % number, 2)
            await sender.published()
            owner = site.owner(shard)
            others = [gateway for gateway in site.up if gateway is not owner]
            moving = asyncio.create_task(asyncio.to_thread(site.moved, shard, others[0].gateway_name))
            back = client_at(others[1], "away")
            await back.come()
            for number in range(QUEUE, 2 * QUEUE):
                sender.publish("q/1", b"%d" % number, 2)
            await moving
            await sender.published()
            await eventually(lambda: len(back.got) >= 2 * QUEUE, "the queue, and what came later")
            assert back.payloads == [b"%d" % number for number in range(2 * QUEUE)]
            assert not back.faults
            await back.leave()

    asyncio.run(live())


def test_the_access_point_names_no_dead_gateway(site: CuttableSite) -> None:
    """G1, G2, pulsar#23011: once its shards are others', nobody is sent to it."""
    dead = site.owner(0)
    dead.kill()
    site.all_served()
    rest = [gateway for gateway in site.up if gateway is not dead]
    for gateway in rest:
        assert wait_until(lambda of=gateway: dead.mqtt not in ports_named(of), LOOK_S), (  # type: ignore[misc]
            f"{gateway.gateway_name} still names {dead.gateway_name}"
        )
        assert set(ports_named(gateway)) == {other.mqtt for other in rest}


def ports_named(gateway: SiteGateway) -> list[int]:
    """Where the access point of a gateway sends clients of MQTT over TCP."""
    with urllib.request.urlopen(f"http://{HOST}:{gateway.http}/v1/connect?bearer=mqtt", timeout=PATIENCE_S) as answer:
        return [int(point["port"]) for point in json.loads(answer.read())["connect_points"]]


def test_a_herd_finds_its_homes(site: CuttableSite) -> None:
    """G14, freenet-core#3210: all clients of a killed gateway come back at the same moment; all are served, and the
    gateways that are left live on."""

    async def live() -> None:
        dead = site.owner(0)
        names = [f"herd-{number}" for number in range(HERD)]
        before = await asyncio.gather(*(come(dead, name) for name in names))
        dead.strike()
        rest = [gateway for gateway in site.up if gateway is not dead]
        doors = cycle(rest)
        async with asyncio.timeout(2 * PATIENCE_S):
            again = await asyncio.gather(*(come(next(doors), name) for name in names))
        await asyncio.to_thread(site.all_served)
        assert not any(gateway.ended() for gateway in rest)
        for writer in (*before, *again):
            writer.transport.abort()

    asyncio.run(live())


async def come(gateway: SiteGateway, name: str) -> asyncio.StreamWriter:
    """Connects at once, and again whenever it is refused or cut off, until the gateway accepts it."""
    while True:
        try:
            reader, writer = await asyncio.open_connection(HOST, gateway.mqtt)
        except OSError:
            await asyncio.sleep(AGAIN_S)
            continue
        writer.write(encode(Connect(name, 4, False, 60), 4))
        try:
            answer = await asyncio.wait_for(reader.readexactly(4), PATIENCE_S)
            if answer[3] == ConnectReturnCode.ACCEPTED:
                return writer
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass
        writer.transport.abort()
        await asyncio.sleep(AGAIN_S)
