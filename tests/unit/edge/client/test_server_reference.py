"""Clients of the library go where a gateway sends them, and are relayed if that does not work (G10, G14)."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.client.client import Client
from edge.client.connect_points import ConnectPoint
from edge.client.connecting import HOPS_MAX
from edge.client.server_reference import sent_to
from mqtt.client_events import Closed, EndedBy
from mqtt.codes import ReasonCode
from tests.unit.edge.client.client_harness import QUICKLY, client, complete, url_of
from tests.unit.gateway.host.members_harness import Member, make_certificates, member
from tests.unit.gateway.host.socket_gateway import HOST
from tests.waiting import wait_for

AT = ConnectPoint("mqtts", "gw1.test", 8883)


def closed(reference: str, reason: ReasonCode = ReasonCode.USE_ANOTHER_SERVER) -> Closed:
    return Closed(reason, "", EndedBy.REFUSED, {"server_reference": reference})


@pytest.mark.parametrize(
    ("reference", "host", "port"),
    [
        ("gw2.test:1884", "gw2.test", 1884),
        ("gw2.test", "gw2.test", 8883),
        ("[2001:db8::1]:1884", "2001:db8::1", 1884),
        ("[2001:db8::1]", "2001:db8::1", 8883),
        ("gw1.test:8883 gw2.test:1", "gw2.test", 1),
        ("mqtt://gw9.test:1 gw2.test:0 gw2.test:70000 gw2.test:2", "gw2.test", 2),
    ],
)
def test_a_reference_names_a_gateway_of_the_same_bearer(reference: str, host: str, port: int) -> None:
    """Never one without TLS."""
    for reason in (ReasonCode.USE_ANOTHER_SERVER, ReasonCode.SERVER_MOVED):
        assert sent_to(closed(reference, reason), AT) == ConnectPoint("mqtts", host, port)
    web = ConnectPoint("wss", "gw0.test", 443, "/mqtt")
    found = sent_to(closed("gw2.test:1884"), web)
    assert found == ConnectPoint("wss", "gw2.test", 1884, "/mqtt")


@pytest.mark.parametrize("reference", ["", " ", "gw1.test:8883", "a/b:1", "::1:1", "x" * 60_000, "a! " * 1_000 + "b:1"])
def test_what_names_no_other_gateway(reference: str) -> None:
    assert sent_to(closed(reference), AT) is None
    assert sent_to(closed("gw2.test:1", ReasonCode.SERVER_BUSY), AT) is None
    assert sent_to(Closed(ReasonCode.SERVER_MOVED, "", EndedBy.SERVER), AT) is None


@given(st.text(max_size=300))
def test_any_text_is_a_point_or_none(text: str) -> None:
    found = sent_to(closed(text), AT)
    assert found is None or (found.protocol == "mqtts" and 1 <= found.port <= 65_535)


# -- with gateways -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("members"))


async def exchange(van: Client) -> None:
    """It subscribes, publishes, and gets its message."""
    await van.subscribe("t")
    await van.publish("t", b"x")
    async for message in van.messages():
        assert message.payload == b"x"
        break


def test_the_client_goes_where_it_is_sent(tmp_path: Path, certificates: Path) -> None:
    with (
        member(tmp_path / "door", "door", certificates, redirects=True) as door,
        member(tmp_path / "home", "home", certificates) as home,
    ):
        door.homes.owners = [home.as_home()]
        door.homes.references = {"mqtt": f"{HOST}:{home.gateway.mqtt_port}"}

        async def scenario() -> None:
            async with client(url_of(door.gateway)) as van:
                await exchange(van)

        complete(scenario())
        assert door.gateway.count("redirects") == 1
        assert door.gateway.count("relays_opened") == 0
        assert home.gateway.call(home.gateway.harness.presence, "van-7")


def test_a_home_that_cannot_be_reached_makes_it_a_relayed_client(tmp_path: Path, certificates: Path) -> None:
    """Its address is for other networks only."""
    with (
        member(tmp_path / "door", "door", certificates, redirects=True) as door,
        member(tmp_path / "home", "home", certificates) as home,
    ):
        door.homes.owners, door.homes.references = [home.as_home()], {"mqtt": f"{HOST}:1"}

        async def scenario() -> None:
            async with client(url_of(door.gateway)) as van:
                await exchange(van)

        complete(scenario())
        assert (door.gateway.count("redirects"), door.gateway.count("relays_opened")) == (1, 1)


def test_who_is_sent_on_and_on_is_relayed(tmp_path: Path, certificates: Path) -> None:
    """Two gateways that are behind one address, or disagree."""
    with (
        member(tmp_path / "door", "door", certificates, redirects=True) as door,
        member(tmp_path / "door2", "door", certificates, redirects=True) as other,
        member(tmp_path / "home", "home", certificates) as home,
    ):
        for one, another in ((door, other), (other, door)):
            one.homes.owners = [home.as_home()]
            one.homes.references = {"mqtt": f"{HOST}:{another.gateway.mqtt_port}"}

        async def scenario() -> None:
            async with client(url_of(door.gateway)) as van:
                await exchange(van)

        complete(scenario())
        counts = [one.gateway.count("redirects") for one in (door, other)]
        assert sum(counts) == HOPS_MAX + 1
        assert door.gateway.count("relays_opened") + other.gateway.count("relays_opened") == 1


def test_a_client_whose_shard_moves_goes_along(tmp_path: Path, certificates: Path) -> None:
    """0x9D: what it publishes meanwhile is sent to the new home."""
    with (
        member(tmp_path / "door", "door", certificates, redirects=True) as door,
        member(tmp_path / "home", "home", certificates) as home,
    ):
        door.homes.references = {"mqtt": f"{HOST}:{home.gateway.mqtt_port}"}

        async def scenario() -> None:
            async with client(url_of(door.gateway)) as van:
                await van.connected()
                await asyncio.to_thread(move, door, home)
                await exchange(van)

        complete(scenario())
        assert home.gateway.call(home.gateway.harness.presence, "van-7")
        assert door.gateway.count("relays_opened") == 0


def move(door: Member, home: Member) -> None:
    homes = door.gateway.harness.home
    [number] = [number for number, one in homes.shards.items() if "van-7" in one.sessions]
    door.homes.owners = [home.as_home()]
    door.gateway.run(homes.hand_over(number))


def test_a_client_of_mqtt_3_1_1_is_relayed(tmp_path: Path, certificates: Path) -> None:
    with (
        member(tmp_path / "door", "door", certificates, redirects=True) as door,
        member(tmp_path / "home", "home", certificates) as home,
    ):
        door.homes.owners = [home.as_home()]
        door.homes.references = {"mqtt": f"{HOST}:{home.gateway.mqtt_port}"}

        async def scenario() -> None:
            async with Client(
                client_id="van-7", connect_points=[url_of(door.gateway)], backoff=QUICKLY, mqtt_version="3.1.1"
            ) as van:
                await exchange(van)

        complete(scenario())
        assert door.gateway.count("redirects") == 0
        wait_for(lambda: door.gateway.count("closed_relayed") == 2, "the end of both connections")
