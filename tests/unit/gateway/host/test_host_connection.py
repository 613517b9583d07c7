"""A client's connection from its bytes to the home and back: what ends while something is worked on (G11, R12)."""

import asyncio
from pathlib import Path

import pytest

from gateway.host.drain import ACKNOWLEDGE_S, ANSWER_S
from gateway.host.host_connection import HostConnection
from gateway.host.host_server import HostServer
from mqtt.codes import ReasonCode
from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.packets import Connack, Connect, Disconnect, Packet, Puback, Publish, Suback, Subscribe, Subscription, Will
from tests.unit.gateway.shard.home_harness import HomeHarness, turn
from tests.unit.gateway.shard.virtual_time import run


class Wire:
    """A transport in memory, and the client's end of it."""

    bearer = "mqtt"
    uses_tls = False
    certificate: str | None = None
    peer = "memory"

    def __init__(self, server: HostServer, version: int = 5) -> None:
        self._version = version
        self._decoder = Decoder(1 << 20, version)
        self.is_closed = False
        self.is_paused = False
        self.received: list[Packet] = []
        self.connection = HostConnection(server, self)

    def write(self, data: bytes) -> None:
        assert not self.is_closed
        self.received += self._decoder.feed(data)

    def close(self) -> None:
        self.is_closed = True

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def send(self, *packets: Packet) -> "Wire":
        self.connection.data_received(b"".join(encode(packet, self._version) for packet in packets))
        return self

    def lose(self) -> None:
        self.connection.transport_lost()


def connect(client: str, expiry_s: int = 100, will: Will | None = None, keep_alive: int = 0) -> Connect:
    return Connect(client, 5, False, keep_alive, will=will, properties={"session_expiry_interval": expiry_s})


async def hosted(tmp_path: Path, **limits: int) -> tuple[HomeHarness, HostServer]:
    harness = await HomeHarness(tmp_path, **limits).start()
    return harness, server_of(harness)


def server_of(harness: HomeHarness) -> HostServer:
    gateway = harness.settings().gateway
    return HostServer(gateway, harness.home, harness.clock, lambda: harness.bus.in_flight, harness.fatal.append)


def kinds(wire: Wire) -> list[type]:
    return [type(packet) for packet in wire.received]


def test_a_message_from_one_connection_to_another(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness, server = await hosted(tmp_path)
        one, two = Wire(server), Wire(server)
        one.send(connect("one"), Subscribe(1, [Subscription("a/#", 1)]))
        two.send(connect("two"))
        await turn()
        two.send(Publish("a/b", b"hello", 1, packet_id=9, properties={"message_expiry_interval": 60}))
        await turn()
        assert kinds(one) == [Connack, Suback, Publish]
        assert kinds(two) == [Connack, Puback]
        delivered = one.received[-1]
        assert isinstance(delivered, Publish)
        assert (delivered.topic, delivered.payload) == ("a/b", b"hello")
        assert (delivered.properties or {})["message_expiry_interval"] in (59, 60)
        assert not harness.fatal
        await server.stop()

    run(scenario())


def test_a_connection_lost_while_connect_is_worked_on(tmp_path: Path) -> None:
    """R12: the session is left without a link, no will, and the next connection finds it."""

    async def scenario() -> None:
        harness, server = await hosted(tmp_path)
        harness.bus.held_acks = {harness.topics.sessions}
        wire = Wire(server).send(connect("c", will=Will("w", b"gone")))
        await turn()
        wire.lose()
        harness.bus.held_acks = set()
        harness.bus.release()
        await turn()
        session = harness.home.session("c")
        assert session is not None
        assert session.link is None
        assert server.connections == set()
        assert harness.published() == {}
        assert [e.event for e in harness.presence("c")] == ["connected", "lost"]
        again = Wire(server).send(connect("c"))
        await turn()
        assert isinstance(again.received[0], Connack)
        assert again.received[0].session_present
        assert not harness.fatal
        await server.stop()

    run(scenario())


def test_a_connection_too_many_is_refused_even_if_it_has_gone(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness, server = await hosted(tmp_path, connections=1)
        first = Wire(server).send(connect("one"))
        await turn()
        second, third = Wire(server).send(connect("two")), Wire(server).send(connect("three"))
        third.lose()
        await turn()
        assert second.is_closed
        refusal = second.received[0]
        assert isinstance(refusal, Connack)
        assert refusal.reason_code == ReasonCode.QUOTA_EXCEEDED
        assert third.is_closed
        assert not first.is_closed
        assert not harness.fatal
        await server.stop()

    run(scenario())


def test_what_a_client_sent_before_it_left_takes_effect(tmp_path: Path) -> None:
    """Packets take effect in their order, though the connection ended while the first was worked on."""

    async def scenario() -> None:
        harness, server = await hosted(tmp_path)
        wire = Wire(server).send(connect("c", will=Will("w", b"gone")))
        await turn()
        wire.send(
            Subscribe(1, [Subscription("a", 1)]),
            Publish("b", b"last words", 0),
            Disconnect(properties={"session_expiry_interval": 0}),
        )
        wire.lose()
        await turn()
        assert harness.ids_of(b"last words")
        assert not harness.ids_of(b"gone")
        assert harness.home.session("c") is None, "DISCONNECT ended the session"
        assert [e.event for e in harness.presence("c")] == ["connected", "disconnected"]
        assert server.connections == set()
        assert not harness.fatal
        await server.stop()

    run(scenario())


def test_taking_over_and_stopping_say_why(tmp_path: Path) -> None:
    """MQTT 5.0, 3.14.2.1: 0x8E, 0x8B; a will is due when the gateway stops (G9)."""

    async def scenario() -> None:
        harness, server = await hosted(tmp_path)
        first = Wire(server).send(connect("c"))
        await turn()
        second = Wire(server).send(connect("c", will=Will("w", b"gone")))
        await turn()
        assert first.is_closed
        assert first.received[-1] == Disconnect(ReasonCode.SESSION_TAKEN_OVER)
        first.lose()
        first.connection.tick()
        await turn()
        assert not second.is_closed
        await server.stop()
        assert second.received[-1] == Disconnect(ReasonCode.SERVER_SHUTTING_DOWN)
        await asyncio.wait_for(harness.home.stop(), 10)
        assert harness.ids_of(b"gone")
        assert not harness.fatal

    run(scenario())


def test_a_client_that_is_not_listened_to_is_not_silent(tmp_path: Path) -> None:
    """[MQTT-3.1.2-22]: while the gateway itself does not read, for Kafka is slow, keep alive waits too."""

    async def scenario() -> None:
        harness, server = await hosted(tmp_path, client_in_flight_messages=2)
        wire = Wire(server).send(connect("c", keep_alive=2))
        await turn()
        harness.bus.held_acks = {harness.topics.ingress}
        wire.send(Publish("a", b"", 1, packet_id=1), Publish("a", b"", 1, packet_id=2))
        assert wire.is_paused
        await turn(60)
        assert not wire.is_closed
        harness.bus.held_acks = set()
        harness.bus.release()
        await turn(0.01)
        assert not wire.is_paused
        await turn(60)
        assert wire.received[-1].reason_code == ReasonCode.KEEP_ALIVE_TIMEOUT  # type: ignore[union-attr]
        await server.stop()

    run(scenario())


def test_an_orderly_stop_answers_what_it_took_and_lets_clients_acknowledge(tmp_path: Path) -> None:
    """G8, Q1: PUBACK, then 0x8B; what a client acknowledges before does not come again; nothing new is sent."""

    async def scenario() -> None:
        harness, server = await hosted(tmp_path)
        receiver = Wire(server).send(connect("receiver"), Subscribe(1, [Subscription("a", 1)]))
        sender = Wire(server).send(connect("sender"))
        await turn()
        sender.send(Publish("a", b"sent", 1, packet_id=1))
        await turn()
        assert kinds(receiver) == [Connack, Suback, Publish]
        harness.bus.held_stores = {harness.topics.ingress}
        sender.send(Publish("a", b"under way", 1, packet_id=2))
        await turn()
        stopping = asyncio.ensure_future(server.stop())
        await turn(0.1)
        receiver.send(Puback(receiver.received[-1].packet_id))  # type: ignore[union-attr]
        await turn(0.1)
        assert sender.is_paused
        sender_got = kinds(sender)
        harness.bus.held_stores = set()
        harness.bus.release()
        await stopping
        assert sender_got == [Connack, Puback]
        assert kinds(sender) == [Connack, Puback, Puback, Disconnect]
        assert isinstance(sender.received[-1], Disconnect)
        assert sender.received[-1].reason_code == ReasonCode.SERVER_SHUTTING_DOWN
        assert kinds(receiver) == [Connack, Suback, Publish, Disconnect]
        await harness.stop()
        await harness.start()
        again = Wire(server_of(harness)).send(connect("receiver"))
        await turn()
        assert [p.payload for p in again.received if isinstance(p, Publish)] == [b"under way"]
        assert not harness.fatal

    run(scenario())


@pytest.mark.parametrize("silent", ["kafka", "client"])
def test_an_orderly_stop_waits_for_nobody_for_ever(tmp_path: Path, silent: str) -> None:
    """G8: neither for a client that acknowledges nothing nor for Kafka."""

    async def scenario() -> None:
        harness, server = await hosted(tmp_path)
        wire = Wire(server).send(connect("c"), Subscribe(1, [Subscription("a", 1)]))
        await turn()
        if silent == "kafka":
            harness.bus.held_stores = {harness.topics.ingress}
        wire.send(Publish("a", b"", 1, packet_id=1))
        await turn()
        await asyncio.wait_for(server.stop(), ACKNOWLEDGE_S + ANSWER_S + 1)
        assert isinstance(wire.received[-1], Disconnect)
        assert wire.is_closed
        assert server.connections == set()

    run(scenario())


def test_reading_pauses_while_too_many_bytes_are_on_their_way_to_kafka(tmp_path: Path) -> None:
    """R9: of all connections together; it goes on as Kafka takes them."""

    async def scenario() -> None:
        harness, server = await hosted(tmp_path, in_flight_bytes=10_000)
        one, two = Wire(server).send(connect("one")), Wire(server).send(connect("two"))
        await turn()
        harness.bus.held_acks = {harness.topics.ingress}
        one.send(Publish("a", b"x" * 8_998, 0, packet_id=0))
        assert not one.is_paused
        two.send(Publish("a", b"x" * 998, 1, packet_id=1))
        assert two.is_paused
        assert harness.home.in_flight_bytes == 10_000, "with a byte each of topic and properties"
        harness.bus.held_acks = set()
        harness.bus.release()
        await turn()
        assert not two.is_paused
        assert harness.home.in_flight_bytes == 0
        await server.stop()

    run(scenario())
