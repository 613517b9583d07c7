"""Back-pressure over WebSocket, both ways: what cannot be taken waits where it is bounded (G11)."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.frames import Frame, Opcode

from mqtt.packets import Puback, Publish, Suback, Subscribe, Subscription
from mqtt.server_connection import ServerConnection
from mqtt.server_events import Event
from tests.unit.gateway.host.raw_client import WebClient, upgraded
from tests.unit.gateway.host.socket_gateway import SocketGateway
from tests.waiting import wait_for

MESSAGE_BYTES = 60_000
MESSAGES = 300  # 18 MB: more than the buffers of the system
IN_FLIGHT = 10


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SocketGateway]:
    monkeypatch.setattr("gateway.host.websocket._CLOSE_TIMEOUT_S", 0.1)
    limits = {"write_buffer_bytes": 10_000, "client_in_flight_messages": IN_FLIGHT}
    with SocketGateway(tmp_path, limits=limits) as gateway:
        yield gateway


@pytest.fixture
def slow(gateway: SocketGateway) -> Iterator[WebClient]:
    """A client that reads nothing unless it is told to, to whom more was sent than the system holds for it."""
    with WebClient(gateway.websocket_port, max_queue=1, max_size=None, close_timeout=0.1) as slow:
        slow.connect("slow")
        slow.send(Subscribe(1, [Subscription("t", 1)]))
        slow.take(Suback)
        with WebClient(gateway.websocket_port) as quick:
            quick.connect("quick")
            quick.send(Subscribe(1, [Subscription("t", 0)]))
            quick.take(Suback)
            for number in range(MESSAGES):
                quick.publish("t", number.to_bytes(2, "big") + bytes(MESSAGE_BYTES), 1, number + 1)
                came = {type(quick.take_any()), type(quick.take_any())}
                assert came == {Puback, Publish}, "nobody waits for the slow one"
        yield slow


def test_what_a_client_does_not_read_waits_in_its_queue(gateway: SocketGateway, slow: WebClient) -> None:
    """It comes, all of it and in order, once the client reads."""
    session = gateway.harness.home.session("slow")
    assert session is not None
    assert session.queued > 0
    for number in range(MESSAGES):
        message = slow.take(Publish)
        assert message.payload[:2] == number.to_bytes(2, "big")
        slow.send(Puback(message.packet_id))
    assert session.queued == 0


def test_a_client_that_does_not_read_is_not_waited_for_in_the_end(gateway: SocketGateway, slow: WebClient) -> None:
    """It may have gone long ago, and is in the way of nobody who takes its place."""
    sockets = gateway.listeners.websockets[0].all_connections
    with WebClient(gateway.websocket_port) as heir:
        heir.connect("slow")
        wait_for(lambda: len(sockets) == 1, "the end of the connection")


def test_a_client_that_pings_and_does_not_listen(gateway: SocketGateway) -> None:
    """Answers do not pile up for it."""
    pings = Frame(Opcode.PING, b"x" * 125).serialize(mask=True) * 1000
    with upgraded(gateway.websocket_port, receive_buffer=4096) as client, pytest.raises(ConnectionError):
        client.send_bytes(pings * 1000)


def test_while_kafka_is_slow_the_gateway_does_not_read(gateway: SocketGateway) -> None:
    """MQTT 3.1.1 has no receive maximum: the client is slowed down instead."""
    ingress = gateway.harness.topics.ingress
    gateway.call(gateway.harness.bus.held_acks.add, ingress)

    def publish_all() -> None:
        for number in range(1, MESSAGES + 1):
            client.publish("t", bytes(MESSAGE_BYTES), 1, number)

    with WebClient(gateway.websocket_port, version=4) as client:
        client.connect("eager")
        thread = threading.Thread(target=publish_all)
        thread.start()
        (connection,) = gateway.server.connections
        wait_for(lambda: connection._reading_paused, "the pause")
        in_flight, is_sending = gateway.call(lambda: gateway.harness.bus.in_flight), thread.is_alive()
        gateway.call(gateway.harness.bus.held_acks.remove, ingress)
        gateway.call(gateway.harness.bus.release)
        assert [client.take(Puback).packet_id for _ in range(MESSAGES)] == list(range(1, MESSAGES + 1))
        thread.join()
        assert (in_flight, is_sending) == (IN_FLIGHT, True)


def test_a_large_frame_is_taken_in_parts(gateway: SocketGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame of very many packets keeps nobody waiting; all of them take effect, in order."""
    with WebClient(gateway.websocket_port) as one, WebClient(gateway.websocket_port) as other:
        one.connect("one")
        other.connect("other")
        one.send(Subscribe(1, [Subscription("many/#", 1)]))
        one.take(Suback)
        reads, receive = list[int](), ServerConnection.receive

        def counted(core: ServerConnection, data: bytes | memoryview, now: float) -> list[Event]:
            reads.append(len(data))
            return receive(core, data, now)

        monkeypatch.setattr(ServerConnection, "receive", counted)
        other.send(*(Publish(f"many/{number}", bytes(100)) for number in range(2_000)))
        assert [one.take(Publish).topic for _ in range(2_000)] == [f"many/{number}" for number in range(2_000)]
        assert max(reads) <= 65_536
        assert sum(reads) > 200_000
