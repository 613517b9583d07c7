"""A client core and a server core wired in memory, with an application that is killed and a network that breaks."""

from typing import Any

import msgspec

from mqtt.client_connection import ClientConnection
from mqtt.client_events import Closed, EndedBy, Event, Published, SessionLost
from mqtt.client_limits import ClientLimits
from mqtt.client_session import ClientSession, SessionState
from mqtt.client_state import State
from mqtt.codes import ReasonCode
from mqtt.limits import ConnectionLimits
from mqtt.packets import Connect, Properties, Publish
from tests.unit.mqtt.server_session import ServerSession

EXCHANGES_MAX = 1_000


class Disk(msgspec.Struct):
    """What the application finds when it starts again: written before bytes are sent."""

    session: bytes
    published: list[tuple[bytes, int]]
    acknowledged: list[bytes]
    accepted: list[tuple[bytes, int]]


class ConnectionPair:
    """`published` (payload, QoS) is what the application asked for, `acknowledged` what the server has confirmed,
    `given` what came and is not accepted yet, `accepted` (payload, QoS) what is, in order.

    `to_server` and `to_client` are bytes on their way; `now` passes by the test's hand alone.
    """

    def __init__(
        self,
        version: int = 5,
        *,
        clean_start: bool = False,
        properties: Properties | None = None,
        keep_alive: int = 60,
        limits: ConnectionLimits | None = None,
        client_limits: ClientLimits | None = None,
        connack: Properties | None = None,
        client_id: str = "c",
        republish: bool = True,
        **more: Any,
    ) -> None:
        asked = {"session_expiry_interval": 3600, **(properties or {})} if version == 5 else None
        self.packet = Connect(client_id, version, clean_start, keep_alive, properties=asked, **more)
        self.server = ServerSession(limits or ConnectionLimits(), connack)
        self.client_limits = client_limits or ClientLimits()
        self.now = 0.0
        self.to_server = self.to_client = b""
        self.session = ClientSession(republish=republish)
        self.client: ClientConnection | None = None
        self.events: list[Event] = []
        self.published: list[tuple[bytes, int]] = []
        self.acknowledged: list[bytes] = []
        self.given: list[Publish] = []
        self.accepted: list[tuple[bytes, int]] = []
        self.payloads: dict[int, bytes] = {}
        self._write_disk()

    # -- the network ---------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self.client is not None and self.client.closed is None

    @property
    def connection(self) -> ClientConnection:
        assert self.client is not None
        return self.client

    def connect(self) -> "ConnectionPair":
        """A new network connection; CONNECT is on its way."""
        assert not self.is_open
        self.server.eof()
        self.to_server = self.to_client = b""
        self.server.begin(self.now)
        self.client = ClientConnection(self.session, self.packet, self.client_limits, self.now)
        self.flush()
        return self

    def flush(self) -> None:
        """The application writes its state down, then the bytes go out."""
        self._write_disk()
        self.to_server += self.connection.outgoing()

    def carry_to_server(self, n_bytes: int) -> None:
        data, self.to_server = self.to_server[:n_bytes], self.to_server[n_bytes:]
        self.server.receive(data, self.now)
        self._from_server()

    def carry_to_client(self, n_bytes: int) -> None:
        data, self.to_client = self.to_client[:n_bytes], self.to_client[n_bytes:]
        self.take(self.connection.receive(data, self.now))

    def lose(self) -> None:
        """The connection breaks; what is on its way never arrives."""
        self.to_server = self.to_client = b""
        self.server.eof()
        if self.is_open:
            self.take(self.connection.eof())

    def kill_client(self) -> None:
        """The application is killed and starts again from its disk."""
        self.to_server = self.to_client = b""
        self.server.eof()
        self.client = None
        disk = self._disk
        self.session = ClientSession.restore(
            msgspec.msgpack.decode(disk.session, type=SessionState), republish=self.session.republish
        )
        self.published, self.acknowledged = list(disk.published), list(disk.acknowledged)
        self.accepted, self.given = list(disk.accepted), []
        self.payloads = {packet.packet_id: packet.payload for packet in self.session.unacknowledged}

    def exchange(self) -> "ConnectionPair":
        """Carries everything there and back, until nothing moves."""
        for _ in range(EXCHANGES_MAX):
            if self.is_open:
                self.flush()
            if not self.to_server and not self.to_client:
                return self
            self.carry_to_server(len(self.to_server))
            self.carry_to_client(len(self.to_client))
        raise AssertionError("they never stop talking")

    def connected(self) -> "ConnectionPair":
        self.connect().exchange()
        assert self.connection.state is State.CONNECTED, self.connection.closed
        return self

    # -- the application -----------------------------------------------------------------------------------------------

    def publish(self, payload: bytes, qos: int, topic: str = "t") -> int:
        if self.client is None:
            packet_id = self.session.publish(topic, payload, qos)
        else:
            packet_id = self.client.publish(topic, payload, qos)
        self.published.append((payload, qos))
        if packet_id:
            assert packet_id not in self.payloads, "a packet id that is in use [MQTT-2.2.1-3]"
            self.payloads[packet_id] = payload
        return packet_id

    def accept(self, number: int = 0) -> None:
        """The application accepts one of the messages that it was given."""
        message = self.given.pop(number)
        self.accepted.append((message.payload, message.qos))
        if self.client is not None:
            self.client.acknowledge(message)
        else:
            self.session.inbound.acknowledge(message, ReasonCode.SUCCESS)

    def take(self, events: list[Event]) -> None:
        self.events += events
        for event in events:
            match event:
                case Publish():
                    self.given.append(event)
                case Published():
                    payload = self.payloads.pop(event.packet_id)
                    if event.reason_code < 0x80:
                        self.acknowledged.append(payload)
                case SessionLost():
                    self.given = [m for m in self.given if not any(m is lost for lost in event.unacknowledged)]
                    for packet in event.dropped:
                        del self.payloads[packet.packet_id]
                case Closed():
                    assert event.by is not EndedBy.FAULT, event

    # -- inside --------------------------------------------------------------------------------------------------------

    def _from_server(self) -> None:
        assert self.server.connection is not None
        self.to_client += self.server.connection.outgoing()

    def pull(self) -> None:
        """What the server wants to send goes on its way."""
        if self.server.connection is not None:
            self._from_server()

    def _write_disk(self) -> None:
        self._disk = Disk(
            msgspec.msgpack.encode(self.session.export()),
            list(self.published),
            list(self.acknowledged),
            list(self.accepted),
        )
