"""Real clients at gateways that share their shards: paho and mosquitto, over each bearer, at any gateway, while owners
change and gateways end (G6, G10, G11, G14, R11). The leases are written by the test."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import uvloop
from paho.mqtt.enums import MQTTProtocolVersion

from gateway.cluster.lease_table import LeaseTable
from gateway.host.member_tls import open_member_tls
from gateway.host.members_listener import open_members_listener
from gateway.leases.owners import Owners
from gateway.members.table import MemberTable
from jobs.runtime.certificates import make
from schemas.identity import shard_of
from schemas.leases import Claim, Claimant, LeaseKey, Standbys
from schemas.members import GatewayAddress
from tests.integration.gateway.listener_harness import ListenerHarness, trusting
from tests.unit.gateway.members.heartbeat_records import heartbeat
from tests.unit.gateway.shard.home_harness import SHARDS

HOST = "127.0.0.1"
NAMES = ("a", "b", "c")
CLIENT = "van-7"
SHARD = shard_of(CLIENT, SHARDS)


def in_a_loop(scenario: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine, on the loop that gateways use."""

    @wraps(scenario)
    def test(**fixtures: Any) -> None:
        uvloop.run(scenario(**fixtures))

    return test


class Member(ListenerHarness):
    """A gateway of the site. It has all homes; the leases say which of them it serves."""

    def __init__(self, site: "Site", name: str, directory: Path) -> None:
        tls = site.certificates
        super().__init__(
            directory,
            f'name = "{name}"\n'
            "[gateway.cluster]\nenabled = true\n"
            f'members_certificate = "{tls}/{name}.crt"\nmembers_key = "{tls}/{name}.key"\nmembers_ca = "{tls}/ca.crt"\n'
            f'[gateway.tls]\ncertificate = "{tls}/server.crt"\nkey = "{tls}/server.key"\nclient_ca = "{tls}/ca.crt"\n'
            'client_certificates = "optional"\nmqtts_port = 0\nwss_port = 0\n'
            '[gateway.authentication]\nmethods = ["certificate", "anonymous"]\n',
        )
        self.name, self._site = name, site
        self.owners: Owners

    async def join(self) -> "Member":
        site, loop = self._site, asyncio.get_running_loop()
        await self.open()
        self.owners = Owners(site.leases, site.members, Claimant(self.name, 1), lambda _: True, loop.time)
        tls = open_member_tls(self.settings)
        self.server.relay_to(self.owners, tls)
        relay = await open_members_listener(self._listeners, self.settings, tls, site.members)
        assert relay is not None
        addresses = {"mqtt": GatewayAddress(HOST, self.port())}
        site.members.apply(self.name, heartbeat(self.name, relay=relay, addresses=addresses), loop.time())
        return self

    def presence(self, client: str = CLIENT) -> list[Any]:
        return self.harness.presence(client)


class Site:
    """Gateways, and what is on `leases` and `members`."""

    def __init__(self, directory: Path) -> None:
        self.certificates = directory / "tls"
        make(self.certificates, [HOST], ["alice"], 1, lambda _: None, gateways=NAMES)
        self.leases, self.members = LeaseTable(SHARDS), MemberTable(10, 2.0)
        self.gateways: list[Member] = []
        self._offset = 0

    def write(self, name: str, epoch: int, *, serves: bool = True) -> None:
        """It claims the client's shard; and serves it, as far as others can see."""
        me = Claimant(name, 1)
        self._append(LeaseKey("c", SHARD, epoch, me), Claim())
        if serves:
            self._append(LeaseKey("s", SHARD, epoch, me), Standbys(names=[]))

    def _append(self, key: LeaseKey, value: Claim | Standbys) -> None:
        self.leases.apply(self._offset, key, value)
        self._offset += 1
        for gateway in self.gateways:
            gateway.owners.lease_changed(SHARD)
            assert gateway.server.relays is not None
            gateway.server.relays.owner_changed(SHARD)


@asynccontextmanager
async def site(directory: Path) -> AsyncIterator[Site]:
    """Three gateways; `b` has the client's shard."""
    found = Site(directory)
    try:
        for name in NAMES:
            (directory / name).mkdir()
            found.gateways.append(await Member(found, name, directory / name).join())
        found.write("b", 1)
        yield found
    finally:
        for gateway in found.gateways:
            await gateway.close()


@pytest.mark.parametrize("version", [MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5], ids=["3.1.1", "5"])
@pytest.mark.parametrize("listener", ["mqtt", "websocket", "mqtts", "wss"])
@in_a_loop
async def test_a_client_is_served_at_any_gateway(tmp_path: Path, version: MQTTProtocolVersion, listener: str) -> None:
    """G10, G11, R11: by its home, which knows its bearer and what its certificate has proven."""
    async with site(tmp_path) as here:
        a, b, _ = here.gateways
        files = [here.certificates / name for name in ("ca.crt", "alice.crt", "alice.key")]
        tls = trusting(*files) if listener in ("mqtts", "wss") else None
        paho = a.client(CLIENT, version=version, websocket=listener in ("websocket", "wss"), tls=tls)
        assert await paho.connect(a, listener) == "Success"
        await paho.subscribe(a, "t")
        large = "x" * 600_000
        for payload in ("1", large, "3"):
            paho.publish("t", payload)
        await a.until(lambda: len(paho.got) == 3, "the messages")
        assert [payload for _, payload in paho.got] == [b"1", large.encode(), b"3"]
        [event] = b.presence()
        assert event.user == ("alice" if tls is not None else "")
        assert event.protocol == ("mqtt5" if version is MQTTProtocolVersion.MQTTv5 else "mqtt3.1.1") + (
            "+ws" if listener in ("websocket", "wss") else ""
        )
        assert not a.presence()


@in_a_loop
async def test_mosquitto_at_any_gateway(tmp_path: Path) -> None:
    """MQTT 3.1.1 and 5; also without a client id, which goes to a gateway that has a shard."""
    async with site(tmp_path) as here:
        a = here.gateways[0]
        for arguments in (("-V", "5", "-i", CLIENT), ("-V", "mqttv311", "-i", CLIENT), ("-V", "5"), ("-V", "311")):
            ended = await a.pub("-t", "t", "-m", "x", *arguments)
            assert ended.status == 0, ended
        assert a.server.counts["relays_opened"] == 4


@in_a_loop
async def test_another_owner_takes_the_clients(tmp_path: Path) -> None:
    """G6: relays to the former owner end, and clients that come back while nobody serves the shard wait."""
    async with site(tmp_path) as here:
        a, _, c = here.gateways
        first = a.client(CLIENT)
        await first.connect(a)
        here.write("c", 2, serves=False)
        await a.until(lambda: first.is_gone, "the end of the relay")
        again = a.client(CLIENT)
        coming = asyncio.create_task(again.connect(a))
        await a.until(lambda: a.owners.waiting == 1, "a client that waits")
        here.write("c", 2)
        assert await coming == "Success"
        await a.until(c.presence, "the session there")
        assert [event.event for event in c.presence()] == ["connected"]
        here.write("a", 3)
        await a.until(lambda: again.is_gone, "the end of the second relay")
        third = a.client(CLIENT)
        assert await third.connect(a) == "Success"
        await a.until(a.presence, "the session here")
        assert [event.event for event in a.presence()] == ["connected"]
        assert a.server.counts["relays_opened"] == 2


@in_a_loop
async def test_a_home_that_has_ended(tmp_path: Path) -> None:
    """G6: the gateway that relays does not know yet, and takes the shard itself meanwhile."""
    async with site(tmp_path) as here:
        a, b, _ = here.gateways
        first = a.client(CLIENT)
        await first.connect(a)
        here.gateways.remove(b)
        await b.close()
        await a.until(lambda: first.is_gone, "the end of the relay")
        again = a.client(CLIENT)
        coming = asyncio.create_task(again.connect(a))
        await a.until(lambda: a.owners.waiting == 1, "a client that waits")
        here.write("a", 2)
        assert await coming == "Success"
        assert a.server.counts["relays_failed"] == 1
        await a.until(a.presence, "the session here")
        assert [event.event for event in a.presence()] == ["connected"]


@in_a_loop
async def test_a_gateway_that_knows_less_than_the_home(tmp_path: Path) -> None:
    """G14: the former owner names the epoch, and the gateway waits until it has read so far."""
    async with site(tmp_path) as here:
        a, b, c = here.gateways
        behind = LeaseTable(SHARDS)
        me = Claimant("b", 1)
        behind.apply(0, LeaseKey("c", SHARD, 1, me), Claim())
        behind.apply(1, LeaseKey("s", SHARD, 1, me), Standbys(names=[]))
        a.owners._table = behind
        here.write("c", 2)
        paho = a.client(CLIENT)
        coming = asyncio.create_task(paho.connect(a))
        await a.until(lambda: a.owners.waiting == 1, "a client that waits")
        a.owners._table = here.leases
        a.owners.lease_changed(SHARD)
        assert await coming == "Success"
        await a.until(c.presence, "the session there")
        assert not b.presence()


@in_a_loop
async def test_nobody_has_the_shard(tmp_path: Path) -> None:
    """G14: the client is refused, with a code that means to come again, and no session is opened."""
    async with site(tmp_path) as here:
        a = here.gateways[0]
        a.owners._wait_s = 0.2
        here.write("lost", 2)
        assert await a.client(CLIENT).connect(a) == "Server unavailable"
        old = a.client(CLIENT, version=MQTTProtocolVersion.MQTTv311)
        assert await old.connect(a) == "Server unavailable"
        assert not any(gateway.presence() for gateway in here.gateways)
