"""What becomes of a client whose home is not known, starts, changes, or can be named to it (G6, G10, G12, G14, R9)."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.link import Address, QuicTls
from edge.mqtt_client import MqttClient
from gateway.errors import NotAdmitted
from gateway.host.homes import HomeElsewhere
from mqtt.codes import ConnectReturnCode, ReasonCode
from mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Will,
)
from tests.unit.gateway.host.members_harness import Member, make_certificates, member
from tests.unit.gateway.host.quic_client import run, trust
from tests.unit.gateway.host.raw_client import RawClient, WebClient
from tests.unit.gateway.host.socket_gateway import HOST
from tests.waiting import wait_for

FOLLOWS: Properties = {"user_property": [("server-reference", "follow")]}


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


def waits(at: Member) -> asyncio.Event:
    """From now on nobody serves a shard, as far as the gateway knows, until the event is set."""

    def wait() -> asyncio.Event:
        at.homes.serves, at.homes.held = False, asyncio.Event()
        return at.homes.held

    return at.gateway.call(wait)


def asks(at: Member) -> None:
    wait_for(lambda: at.homes.asked > 0, "a client that waits for its home")


# -- waiting -----------------------------------------------------------------------------------------------------------


def test_a_client_waits_until_the_home_here_has_started(door: Member) -> None:
    held = waits(door)
    with RawClient(door.gateway.mqtt_port) as client:
        client.send(Connect("c"), Pingreq())
        asks(door)
        door.homes.serves = True
        door.gateway.call(held.set)
        assert client.take(Connack).reason_code is ReasonCode.SUCCESS
        client.take(Pingresp)


def test_a_client_waits_for_the_next_owner(door: Member, home: Member) -> None:
    """Also what it sends meanwhile gets there, once."""
    held = waits(door)
    door.homes.owners = [None, home.as_home()]
    with RawClient(door.gateway.mqtt_port) as client:
        client.send(Connect("c"), Subscribe(1, [Subscription("t", 1)]))
        asks(door)
        client.publish("t", b"x", qos=1, packet_id=2)
        door.gateway.call(held.set)
        assert client.take(Connack).reason_code is ReasonCode.SUCCESS
        assert {type(client.take_any()).__name__ for _ in range(3)} == {"Suback", "Puback", "Publish"}
    assert home.gateway.call(home.gateway.harness.presence, "c")


@pytest.mark.parametrize(
    ("version", "reason"), [(4, ConnectReturnCode.SERVER_UNAVAILABLE), (5, ReasonCode.SERVER_UNAVAILABLE)]
)
def test_no_session_is_opened_for_a_shard_that_nobody_serves(door: Member, version: int, reason: int) -> None:
    door.homes.serves = False
    with RawClient(door.gateway.mqtt_port, version) as client:
        assert client.connect("c").reason_code is reason
        assert client.ended() == []
    assert not door.gateway.call(door.gateway.harness.presence, "c")
    assert door.gateway.count("relays_refused") == 1
    assert door.gateway.count("closed_server_unavailable") == 1
    assert door.gateway.count("not_admitted") == 0


def test_waiting_ends_with_the_time_for_connecting(tmp_path: Path, certificates: Path) -> None:
    with member(tmp_path / "brief", "door", certificates, limits={"connect_timeout_s": 0.2}) as brief:
        waits(brief)
        with RawClient(brief.gateway.mqtt_port) as client:
            assert client.connect("c").reason_code is ReasonCode.SERVER_UNAVAILABLE


def test_a_connection_that_ends_while_it_waits_leaves_no_relay(door: Member, home: Member) -> None:
    held = waits(door)
    door.homes.owners = [None, home.as_home()]
    with RawClient(door.gateway.mqtt_port) as client:
        client.send(Connect("c"))
        asks(door)
        [connection] = door.gateway.server.connections
        door.gateway.call(connection.disconnect, ReasonCode.ADMINISTRATIVE_ACTION)
        assert [type(packet) for packet in client.ended()] == [Connack]
    relays = door.gateway.server.relays
    assert relays is not None
    door.gateway.call(held.set)
    wait_for(lambda: door.gateway.count("relays_opened") == 1, "the home's answer")
    wait_for(lambda: not len(relays) and not home.gateway.server.connections, "the end of the relay")
    assert not door.gateway.server.connections


def test_a_gateway_that_stops_ends_who_waits(door: Member) -> None:
    waits(door)
    with RawClient(door.gateway.mqtt_port) as client:
        client.send(Connect("c"))
        asks(door)
        door.gateway.begin_to_stop()
        assert [type(packet) for packet in client.ended()] == [Connack]
    door.gateway.stop()


# -- owners that change ------------------------------------------------------------------------------------------------


def test_the_next_owner_may_be_this_gateway(door: Member) -> None:
    """Of two gateways one is killed, and its clients come to the other one before that knows."""
    door.homes.owners = [HomeElsewhere("home", HOST, 1, 0, 1), None]
    with RawClient(door.gateway.mqtt_port) as client:
        client.send(Connect("c"), Subscribe(1, [Subscription("t", 1)]))
        assert client.take(Connack).reason_code is ReasonCode.SUCCESS
        client.take(Suback)
    assert door.gateway.count("relays_failed") == 1
    assert door.gateway.call(door.gateway.harness.presence, "c")


def test_a_stopped_owner_is_not_waited_for_once_there_is_another(door: Member, home: Member) -> None:
    """G6: its sockets take connections, and nobody answers."""
    with socket.create_server((HOST, 0)) as stopped, RawClient(door.gateway.mqtt_port) as client:
        door.homes.owners = [HomeElsewhere("home", HOST, stopped.getsockname()[1], 3, 1), home.as_home(epoch=2)]
        client.send(Connect("c"))
        silent, _ = stopped.accept()
        door.homes.changed.add(1)
        assert door.gateway.server.relays is not None
        door.gateway.call(door.gateway.server.relays.owner_changed, 3)
        door.gateway.call(door.gateway.server.relays.owner_changed, 3)
        assert client.take(Connack).reason_code is ReasonCode.SUCCESS
        silent.close()
    assert home.gateway.call(home.gateway.harness.presence, "c")


def test_a_home_that_takes_no_relayed_clients(door: Member) -> None:
    door.homes.owners = [HomeElsewhere("home", "", 0, 0, 1)]
    with RawClient(door.gateway.mqtt_port) as client:
        assert client.connect("c").reason_code is ReasonCode.SERVER_UNAVAILABLE
    assert door.gateway.count("relays_failed") == 0


@pytest.mark.parametrize("address", ["x" * 300, "a..b", "\u2603" * 80])
def test_an_address_that_is_none_ends_nothing_but_the_try(door: Member, address: str) -> None:
    """Whoever may write to `members` may write anything."""
    door.homes.owners = [HomeElsewhere("home", address, 1, 0, 1)]
    with RawClient(door.gateway.mqtt_port) as client:
        assert client.connect("c").reason_code is ReasonCode.SERVER_UNAVAILABLE


def test_the_shard_leaves_between_the_look_and_the_session(door: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    """3.1.1 clients get 3, and it is not counted as a refusal by authentication."""

    async def moved(*_: object) -> None:
        raise NotAdmitted(ReasonCode.USE_ANOTHER_SERVER, "another gateway has the client's shard")

    monkeypatch.setattr(door.gateway.server.home, "attach", moved)
    for version, reason in ((4, ConnectReturnCode.SERVER_UNAVAILABLE), (5, ReasonCode.SERVER_UNAVAILABLE)):
        with RawClient(door.gateway.mqtt_port, version) as client:
            assert client.connect("c").reason_code is reason
    assert door.gateway.count("not_admitted") == 0


def test_the_shard_leaves_while_a_client_subscribes(door: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway goes on."""
    with RawClient(door.gateway.mqtt_port) as client:
        client.connect("c")
        [home] = [one for one in door.gateway.harness.home.shards.values() if "c" in one.sessions]

        async def moved(*_: object) -> None:
            raise NotAdmitted(ReasonCode.USE_ANOTHER_SERVER, "the client's shard moves to another gateway")

        monkeypatch.setattr(home, "subscribe", moved)
        client.send(Subscribe(1, [Subscription("t", 1)]))
        assert [type(packet) for packet in client.ended()] == [Disconnect]


# -- redirects ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def sending(tmp_path: Path, certificates: Path, home: Member) -> Iterator[Member]:
    """A gateway that sends clients to their home, if they follow that."""
    with member(tmp_path / "sending", "door", certificates, redirects=True) as found:
        found.homes.owners = [home.as_home()]
        found.homes.references = {"mqtt": "home.test:1883", "ws": "home.test:80"}
        yield found


def test_a_client_that_follows_is_sent_to_its_home(sending: Member, home: Member) -> None:
    """G12: by the bearer that it uses."""
    with RawClient(sending.gateway.mqtt_port) as client:
        answer = client.connect("c", properties=FOLLOWS)
        assert answer.reason_code is ReasonCode.USE_ANOTHER_SERVER
        assert answer.properties == {"server_reference": "home.test:1883"}
        assert client.ended() == []
    with WebClient(sending.gateway.websocket_port) as web:
        assert web.connect("c", properties=FOLLOWS).properties == {"server_reference": "home.test:80"}
    assert sending.gateway.count("redirects") == 2
    assert not home.gateway.call(home.gateway.harness.presence, "c")


def test_who_does_not_say_that_it_follows_is_relayed(sending: Member) -> None:
    for version in (4, 5):
        with RawClient(sending.gateway.mqtt_port, version) as client:
            assert client.connect("c").reason_code == 0
    assert sending.gateway.count("relays_opened") == 2


def test_a_home_without_an_address_for_the_bearer_is_relayed_to(sending: Member) -> None:
    sending.homes.references = {"mqtts": "home.test:8883"}
    with RawClient(sending.gateway.mqtt_port) as client:
        assert client.connect("c", properties=FOLLOWS).reason_code is ReasonCode.SUCCESS


def test_nobody_is_sent_away_unless_the_gateway_is_set_to(door: Member, home: Member) -> None:
    door.homes.owners, door.homes.references = [home.as_home()], {"mqtt": "home.test:1883"}
    with RawClient(door.gateway.mqtt_port) as client:
        assert client.connect("c", properties=FOLLOWS).reason_code is ReasonCode.SUCCESS


def test_a_relayed_client_is_not_sent_anywhere(tmp_path: Path, certificates: Path, door: Member) -> None:
    """The gateway that relays it asks for the newer home itself."""
    with member(tmp_path / "former", "home", certificates, redirects=True) as former:
        former.homes.owners = [HomeElsewhere("door", HOST, 1, 0, 9)]
        former.homes.references = {"mqtt": "door.test:1883"}
        door.homes.owners = [former.as_home(), None]
        with RawClient(door.gateway.mqtt_port) as client:
            assert client.connect("c", properties=FOLLOWS).reason_code is ReasonCode.SUCCESS
        assert former.gateway.count("redirects") == 0


@pytest.mark.parametrize(
    ("follows", "answer"), [(FOLLOWS, {"server_reference": "home.test:1883"}), (None, None)], ids=["follows", "not"]
)
def test_a_shard_that_moves_says_where_to(
    sending: Member, follows: Properties | None, answer: Properties | None
) -> None:
    """A planned move: 0x9D, with the next home for those who follow."""
    sending.homes.owners = [None]
    with RawClient(sending.gateway.mqtt_port) as client:
        client.connect("c", properties=follows)
        homes = sending.gateway.harness.home
        [number] = [number for number, one in homes.shards.items() if "c" in one.sessions]
        sending.gateway.run(homes.hand_over(number))
        [packet] = client.ended()
        assert isinstance(packet, Disconnect)
        assert (packet.reason_code, packet.properties) == (ReasonCode.SERVER_MOVED, answer)


def test_a_gateway_that_stops_sends_those_who_follow_away(sending: Member) -> None:
    sending.homes.owners = [None]
    with RawClient(sending.gateway.mqtt_port) as one, RawClient(sending.gateway.mqtt_port) as two:
        one.connect("one", properties=FOLLOWS)
        two.connect("two")
        sending.gateway.begin_to_stop()
        [moved], [stopped] = one.ended(), two.ended()
        assert isinstance(moved, Disconnect)
        assert isinstance(stopped, Disconnect)
        assert (moved.reason_code, moved.properties) == (
            ReasonCode.SERVER_MOVED,
            {"server_reference": "home.test:1883"},
        )
        assert stopped.reason_code is ReasonCode.SERVER_SHUTTING_DOWN
    sending.gateway.stop()


# -- what is relayed ---------------------------------------------------------------------------------------------------


def test_a_large_connect_and_large_messages(door: Member, home: Member) -> None:
    """A CONNECT that comes in many reads, and packets larger than any buffer on the way, in both directions."""
    door.homes.owners = [home.as_home()]
    payload = bytes(range(256)) * 3_000
    with RawClient(door.gateway.mqtt_port) as client:
        client.connect("c", will=Will("w", payload[:65_000], 1, False))
        client.send(Subscribe(1, [Subscription("t", 1)]))
        client.take(Suback)
        for number in range(1, 6):
            client.publish("t", payload, qos=1, packet_id=number)
        got = [packet for packet in (client.take_any() for _ in range(10)) if isinstance(packet, Publish)]
        assert [packet.payload for packet in got] == [payload] * 5


def test_the_end_of_the_home_ends_the_clients_connection(door: Member, home: Member) -> None:
    door.homes.owners = [home.as_home()]
    with RawClient(door.gateway.mqtt_port) as client:
        client.connect("c")
        home.gateway.begin_to_stop()
        [packet] = client.ended()
        assert isinstance(packet, Disconnect), "it is told by its home"
    home.gateway.stop()
    wait_for(lambda: door.gateway.count("closed_relayed") == 1, "the end of the relay")


def test_the_limits_of_the_home_are_those_of_the_client(tmp_path: Path, certificates: Path, door: Member) -> None:
    """R9: relayed connections count."""
    with member(tmp_path / "small", "home", certificates, limits={"connections": 1}) as small:
        door.homes.owners = [small.as_home()]
        with RawClient(door.gateway.mqtt_port) as one, RawClient(door.gateway.mqtt_port) as two:
            assert one.connect("one").reason_code is ReasonCode.SUCCESS
            assert two.connect("two").reason_code is ReasonCode.QUOTA_EXCEEDED


def test_sessions_are_limited_where_they_are(tmp_path: Path, certificates: Path, home: Member) -> None:
    """R9: a relayed client has none at the gateway that relays it. But its connection counts there."""
    limits = {"sessions": 1, "connections": 2}
    with (
        member(tmp_path / "door", "door", certificates, limits=limits) as door,
        RawClient(door.gateway.mqtt_port) as one,
        RawClient(door.gateway.mqtt_port) as two,
    ):
        assert one.connect("one").reason_code is ReasonCode.SUCCESS
        door.homes.owners = [home.as_home()]
        assert two.connect("two").reason_code is ReasonCode.SUCCESS
        with RawClient(door.gateway.mqtt_port) as three:
            assert three.connect("three").reason_code is ReasonCode.QUOTA_EXCEEDED


def test_a_client_over_quic_is_relayed(tmp_path: Path, certificates: Path, home: Member) -> None:
    """G11."""
    trusted = trust(tmp_path)
    with member(tmp_path / "door", "door", certificates, tls=trusted.settings) as door:
        door.homes.owners = [home.as_home()]

        async def scenario() -> None:
            address = Address(HOST, door.gateway.quic_port, quic=QuicTls(str(trusted.authority.file)))
            client = MqttClient(address, Connect("c", clean_start=True))
            await client.connect()
            await client.subscribe("t", qos=1)
            await client.publish("t", b"x" * 300_000, qos=1)
            async for message in client.messages():
                assert message.payload == b"x" * 300_000
                break
            await client.disconnect()

        run(scenario())
    connected, disconnected = home.gateway.call(home.gateway.harness.presence, "c")
    assert (connected.protocol, disconnected.event) == ("mqtt5+quic", "disconnected")
