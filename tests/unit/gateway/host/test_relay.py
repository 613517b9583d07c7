"""Clients at a gateway that is not their home: their bytes go there, and nothing of it shows (G10, G14, R11)."""

import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gateway.host.homes import HomeElsewhere
from gateway.host.relays import TRIES
from mqtt.codes import ConnectReturnCode, ReasonCode
from mqtt.encode import encode
from mqtt.packets import Connack, Connect, Pingreq, Pingresp, Publish, Suback, Subscribe, Subscription
from tests.unit.gateway.host.members_harness import Member, make_certificates, member
from tests.unit.gateway.host.raw_client import RawClient, WebClient
from tests.unit.gateway.host.socket_gateway import HOST
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("members"))


@pytest.fixture
def door(tmp_path: Path, certificates: Path) -> Iterator[Member]:
    with member(tmp_path / "door", "door", certificates) as found:
        yield found


@pytest.fixture
def home(tmp_path: Path, certificates: Path) -> Iterator[Member]:
    with member(tmp_path / "home", "home", certificates) as found:
        yield found


@pytest.mark.parametrize("version", [4, 5])
def test_a_client_is_served_by_its_home(door: Member, home: Member, version: int) -> None:
    door.homes.owners = [home.as_home()]
    with RawClient(door.gateway.mqtt_port, version) as client:
        pipelined = Subscribe(1, [Subscription("a/b", 1)])
        client.send(Connect("c", version), pipelined, Pingreq())
        assert client.take(Connack).reason_code == 0
        kinds = {type(client.take_any()) for _ in range(2)}
        assert kinds == {Suback, Pingresp}
        client.publish("a/b", b"x", qos=1, packet_id=9)
        received = [client.take_any() for _ in range(2)]
        assert {type(packet).__name__ for packet in received} == {"Publish", "Puback"}
        address, port = client.socket.getsockname()
        [event] = home.gateway.call(home.gateway.harness.presence, "c")
        assert event.peer == f"{address}:{port}"
        assert not door.gateway.call(door.gateway.harness.presence, "c")
    wait_for(lambda: door.gateway.count("closed_relayed") == 1, "the end of the relay")
    wait_for(lambda: len(home.gateway.call(home.gateway.harness.presence, "c")) == 2, "the end of the session's link")


def test_a_connect_may_come_byte_by_byte(door: Member, home: Member) -> None:
    door.homes.owners = [home.as_home()]
    with RawClient(door.gateway.mqtt_port) as client:
        for byte in encode(Connect("c"), 5):
            client.send_bytes(bytes((byte,)))
        client.take(Connack)


def test_the_home_knows_the_bearer(door: Member, home: Member) -> None:
    door.homes.owners = [home.as_home()]
    with WebClient(door.gateway.websocket_port) as client:
        client.connect("c")
        [event] = home.gateway.call(home.gateway.harness.presence, "c")
        assert event.protocol == "mqtt5+ws"


def test_a_client_without_an_id_stays(door: Member) -> None:
    with RawClient(door.gateway.mqtt_port) as client:
        assert client.connect("").reason_code is ReasonCode.SUCCESS


def test_the_relay_asks_for_the_newer_home(door: Member, home: Member, tmp_path: Path, certificates: Path) -> None:
    """A home that has lost the shard names an epoch, and takes nothing from the client."""
    with member(tmp_path / "former", "home", certificates) as former:
        former.homes.owners = [home.as_home()]
        door.homes.owners = [former.as_home(), home.as_home(epoch=7)]
        with RawClient(door.gateway.mqtt_port) as client:
            assert client.connect("c").reason_code is ReasonCode.SUCCESS
            assert home.gateway.call(home.gateway.harness.presence, "c")
        assert not former.gateway.call(former.gateway.harness.presence, "c")
        assert not former.gateway.count("relays_opened"), "a relayed connection is never relayed again"


@pytest.mark.parametrize(
    ("version", "reason"), [(4, ConnectReturnCode.SERVER_UNAVAILABLE), (5, ReasonCode.SERVER_UNAVAILABLE)]
)
def test_nobody_takes_the_client(door: Member, home: Member, version: int, reason: int) -> None:
    home.homes.owners = [home.as_home()]
    door.homes.owners = [home.as_home()]
    with RawClient(door.gateway.mqtt_port, version) as client:
        assert client.connect("c").reason_code is reason
        assert client.ended() == []
    assert door.homes.asked == TRIES


def test_a_gateway_that_is_gone_is_no_home(door: Member, home: Member) -> None:
    door.homes.owners = [HomeElsewhere("home", HOST, 1, 0, 1), home.as_home(epoch=2)]
    with RawClient(door.gateway.mqtt_port) as client:
        assert client.connect("c").reason_code is ReasonCode.SUCCESS
    assert door.gateway.count("relays_failed") == 1


def test_a_gateway_of_another_name_is_no_home(door: Member, home: Member) -> None:
    door.homes.owners = [home.as_home()._replace(gateway="other")]
    with RawClient(door.gateway.mqtt_port) as client:
        assert client.connect("c").reason_code is ReasonCode.SERVER_UNAVAILABLE
    assert not home.gateway.call(home.gateway.harness.presence, "c")


def test_relays_end_when_the_owner_changes(door: Member, home: Member) -> None:
    door.homes.owners = [home.as_home(shard=3)]
    with RawClient(door.gateway.mqtt_port) as client:
        client.connect("c")
        relays = door.gateway.server.relays
        assert relays is not None
        door.gateway.call(relays.owner_changed, 3)
        door.homes.changed.add(1)
        door.gateway.call(relays.owner_changed, 2)
        client.send(Pingreq())
        client.take(Pingresp)
        door.gateway.call(relays.owner_changed, 3)
        assert client.ended() == []
        assert len(relays) == 0


def test_only_members_may_relay(home: Member, certificates: Path) -> None:
    """Neither plain TCP, nor TLS without a certificate of the authority."""
    with RawClient(home.port) as client:
        client.send(Connect("c"))
        client.ended()
    context = ssl.create_default_context(cafile=certificates / "ca.crt")
    context.check_hostname = False
    with RawClient(home.port) as client, context.wrap_socket(client.socket) as secure, suppress(OSError):
        secure.sendall(encode(Connect("c"), 5))
        assert not secure.recv(10)
    assert not home.gateway.call(home.gateway.harness.presence, "c")


def test_each_side_is_read_no_faster_than_the_other_takes_it(door: Member, home: Member) -> None:
    """A subscriber that does not read holds back its own deliveries, and loses none of them."""
    door.homes.owners = [home.as_home()]
    count, payload = 600, bytes(4_000)
    with RawClient(door.gateway.mqtt_port, receive_buffer=4_096) as slow, RawClient(home.gateway.mqtt_port) as fast:
        slow.connect("slow", properties={"receive_maximum": 65_535})
        slow.send(Subscribe(1, [Subscription("t", 1)]))
        slow.take(Suback)
        fast.connect("fast")
        for number in range(count):
            fast.publish("t", payload, qos=1, packet_id=number % 60_000 + 1)
        got = 0
        while got < count:
            packet = slow.take(Publish)
            got += 1
            slow.send_bytes(b"\x40\x02" + (packet.packet_id or 0).to_bytes(2, "big"))
