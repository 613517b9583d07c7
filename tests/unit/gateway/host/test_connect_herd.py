"""freenet-core#3210: a gateway is lost, and all its clients come to the next one at the same moment (R9, G14).

Virtual time: thousands of clients, each with the back-off of our own library, come to one gateway that takes over.
"""

import asyncio
from collections import Counter
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edge.client.connect_points import ConnectPoint
from edge.client.connecting import Connecting, Try, Wait
from edge.reconnect import FullJitter
from gateway.cluster.connect_ramp import BURST_S, GROWTH, ConnectRamp
from gateway.host.host_server import HostServer
from gateway.host.relays import Refusal, Relays
from mqtt.codes import ConnectReturnCode, ReasonCode
from mqtt.packets import Connect
from tests.unit.gateway.host.members_harness import Member, StaticHomes, make_certificates, member
from tests.unit.gateway.host.raw_client import RawClient
from tests.unit.gateway.shard.virtual_time import run
from tests.waiting import wait_for

CLIENTS = 5_000
PER_S, LASTS_S, WAIT_S = 100.0, 10.0, 4.0
TAKEOVER_S = 0.4


class Takeover(StaticHomes):
    """Nobody serves the shard until `held`; then this gateway does."""

    def __init__(self) -> None:
        super().__init__()
        self.serves, self.held = False, asyncio.Event()

    def served(self) -> None:
        self.serves = True
        assert self.held is not None
        self.held.set()


def gateway_with(homes: StaticHomes, ramp: ConnectRamp | None) -> Relays:
    loop = asyncio.get_running_loop()
    limits = SimpleNamespace(connect_timeout_s=10.0, write_buffer_bytes=1_000)
    server = SimpleNamespace(now=loop.time, counts=Counter(), limits=limits)
    return Relays(cast(HostServer, server), homes, None, False, ramp)


def herd(ramp: ConnectRamp | None) -> list[float]:
    """When each client of a lost gateway was let in, seconds after the loss."""
    let_in: list[float] = []
    transport: Any = SimpleNamespace(refuse=None)

    async def client(name: str, relays: Relays, draw: Random) -> None:
        point = ConnectPoint("mqtt", "gateway.test", 1883)
        steps: Connecting[str] = Connecting([], [point], tries=2, backoff=FullJitter(0.5, 60.0, draw.random))
        while True:
            match steps.step:
                case Wait(seconds):
                    await asyncio.sleep(seconds)
                    steps.waited()
                case Try():
                    found = await relays.bring_home(transport, Connect(name), bytearray())
                    if found is None:
                        let_in.append(asyncio.get_running_loop().time())
                        return
                    assert isinstance(found, Refusal)
                    assert found.reason is ReasonCode.SERVER_BUSY
                    steps.failed(found.reason.name)

    async def loss() -> None:
        homes, draw = Takeover(), Random(3210)
        relays = gateway_with(homes, ramp)
        if ramp is not None:
            ramp.begin(0.0)
        asyncio.get_running_loop().call_later(TAKEOVER_S, homes.served)
        await asyncio.gather(*(client(f"c{number}", relays, draw) for number in range(CLIENTS)))

    run(loss())
    return let_in


def busiest(times: list[float], window_s: float = 1.0) -> int:
    return max(sum(1 for one in times if at <= one < at + window_s) for at in times[::10])


def test_a_herd_is_spread_and_all_of_it_is_served() -> None:
    let_in = herd(ConnectRamp(PER_S, LASTS_S, WAIT_S))
    assert len(let_in) == CLIENTS
    during = [at for at in let_in if at < LASTS_S]
    assert busiest(during) <= GROWTH * PER_S + PER_S * BURST_S + 1
    assert busiest([at for at in let_in if at < 2.0]) <= 2 * PER_S
    assert max(let_in) < 120, "nobody is refused for ever"


def test_without_the_ramp_the_same_herd_comes_within_a_moment() -> None:
    """What the ramp is for: the test above would notice if it did nothing."""
    let_in = herd(None)
    assert sum(1 for at in let_in if at <= TAKEOVER_S) > CLIENTS / 2


# -- on sockets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "reason"), [(4, ConnectReturnCode.SERVER_UNAVAILABLE), (5, ReasonCode.SERVER_BUSY)]
)
def test_who_would_wait_for_too_long_is_told_that_the_gateway_is_busy(
    tmp_path: Path, version: int, reason: int
) -> None:
    with member(tmp_path / "door", "door", make_certificates(tmp_path)) as door:
        ramp_of(door, ConnectRamp(0.001, 1_000.0, 0.001))
        with RawClient(door.gateway.mqtt_port, version) as client:
            assert client.connect("first").reason_code == 0
        with RawClient(door.gateway.mqtt_port, version) as client:
            assert client.connect("second").reason_code is reason
            assert client.ended() == []
        assert door.gateway.count("connects_refused_busy") == 1
        assert door.gateway.count("closed_server_busy") == 1


def test_a_relayed_client_waits_at_its_home_and_is_let_in(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    with (
        member(tmp_path / "door", "door", certificates) as door,
        member(tmp_path / "home", "home", certificates) as home,
    ):
        ramp_of(home, ConnectRamp(20.0, 1_000.0, 60.0), taken=6)
        door.homes.owners = [home.as_home()]
        with RawClient(door.gateway.mqtt_port) as client:
            assert client.connect("c").reason_code is ReasonCode.SUCCESS
        wait_for(lambda: home.gateway.count("connects_delayed") == 1, "a client that has waited")


def ramp_of(at: Member, ramp: ConnectRamp, taken: int = 0) -> None:
    """A member was just lost, and `taken` connections have come."""

    def lose() -> None:
        now = asyncio.get_running_loop().time()
        ramp.begin(now)
        for _ in range(taken):
            ramp.delay(now)
        relays = at.gateway.server.relays
        assert relays is not None
        relays.ramp = ramp

    at.gateway.call(lose)
