"""The stand-in's listener in memory: connections of the server core without sockets, over a real file."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from edge.agent.mqtt.changes import Changes
from edge.agent.mqtt.connection import Connection
from edge.agent.mqtt.hub import ONWARD, Hub
from edge.agent.mqtt.sessions import SessionLimits
from edge.agent.mqtt.settings import ListenerSettings
from edge.agent.mqtt.store import MqttStore, Spooled, StoreLimits
from edge.agent.mqtt.topic_routes import TopicRoutes
from edge.client.store_clock import DOWN_MOST_S
from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.packets import Connack, Connect, Packet, Properties, Publish, Suback, Subscribe, Subscription, Will
from tests.unit.edge.agent.agent_harness import Clock

P = TypeVar("P")
ROUTES = {"local/#": "local", "far/#": "@far", "#": "platform"}
LASTS: Properties = {"session_expiry_interval": 600}


def complete(run: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(run, 30))


class Broker:
    """What the connections of a listener share, and its store. `spool()` is what goes on."""

    def __init__(self, path: Path, settings: ListenerSettings, clock: Clock, messages: int) -> None:
        self.settings, self.clock = settings, clock
        self.users: dict[str, str] = {}

        def open_store() -> MqttStore:
            return MqttStore(
                path,
                sessions=SessionLimits(
                    settings.sessions, settings.subscriptions, settings.queue_messages, settings.queue_bytes
                ),
                limits=StoreLimits(messages, 1 << 20, settings.retained_messages, settings.retained_bytes, 100),
                window=settings.inflight,
                log_entries=1_000,
                wall_s=clock.wall_s,
                running_s=clock.running_s,
                down_most_s=DOWN_MOST_S,
            )

        self.changes = Changes(open_store)
        self.hub = Hub(settings, TopicRoutes(ROUTES), self.changes)
        self.connections: list[Wire] = []

    async def spool(self) -> list[Spooled]:
        return await self.changes.make(lambda store: store.spooled(ONWARD, 0, 1_000))

    async def authenticate(self, packet: Connect) -> str:
        return packet.username or ""

    def wire(self, version: int = 5) -> "Wire":
        wire = Wire(self, version)
        self.connections.append(wire)
        return wire

    async def client(
        self,
        name: str,
        version: int = 5,
        *,
        clean: bool = False,
        will: Will | None = None,
        properties: Properties | None = None,
        username: str | None = None,
        present: bool = False,
    ) -> "Wire":
        """A connected client; by default with a session that lasts."""
        wire = self.wire(version)
        chosen = (LASTS if properties is None else properties) if version == 5 else None
        wire.send(Connect(name, version, clean, 60, username, None, will, chosen))
        assert (await wire.next(Connack)).session_present is present
        return wire


@asynccontextmanager
async def broker(
    path: Path, *, messages: int = 1_000, clock: Clock | None = None, **limits: Any
) -> AsyncIterator[Broker]:
    """Ending it is as if the agent was killed: clients are not told, but what is durable stays."""
    found = Broker(path / "mqtt", ListenerSettings(enabled=True, **limits), clock or Clock(), messages)
    await found.changes.open()
    try:
        yield found
    finally:
        found.changes.make = lambda change: asyncio.get_running_loop().create_future()  # type: ignore[method-assign,assignment]
        for wire in found.connections:
            wire.lose()
        await found.changes.close()


class Wire(asyncio.Transport):
    """One connection: packets in, packets out. `version` 0: whatever comes is not read."""

    def __init__(self, broker: Broker, version: int) -> None:
        super().__init__()
        self.version = version
        self._decoder = Decoder(1 << 28, version)
        self._received: deque[Packet] = deque()
        self._news = asyncio.Event()
        self.is_closed = self.is_lost = False
        self.ended = False
        self._connection = Connection(broker.settings, broker.hub, broker.authenticate, self._lost)
        self._connection.connection_made(self)

    def _lost(self, _: Connection) -> None:
        self.ended = True

    # -- the client's part ---------------------------------------------------------------------------------------------

    def send(self, *packets: Packet) -> None:
        self.feed(b"".join(encode(packet, self.version) for packet in packets))

    def feed(self, data: bytes) -> None:
        self._connection.data_received(data)

    def lose(self) -> None:
        """The network connection breaks."""
        if not self.is_lost:
            self.is_lost = self.is_closed = True
            self._connection.connection_lost(None)

    def reads(self, is_reading: bool) -> None:
        """Whether the client reads; while it does not, the network takes nothing more."""
        if is_reading:
            self._connection.resume_writing()
        else:
            self._connection.pause_writing()

    async def next(self, kind: type[P]) -> P:
        """The next packet of this type."""
        while True:
            for packet in self._received:
                if isinstance(packet, kind):
                    self._received.remove(packet)
                    return packet
            assert not self.is_closed, f"the connection has ended: {self._received}"
            self._news.clear()
            await self._news.wait()

    async def none(self, broker: Broker) -> None:
        """Nothing is sent, though all changes so far are made."""
        for _ in range(3):
            await broker.changes.make(lambda store: None)
        assert not self._received, self._received

    async def closed(self) -> None:
        while not self.is_closed:
            self._news.clear()
            await self._news.wait()

    async def subscribe(self, *filters: str | Subscription, qos: int = 2, properties: Properties | None = None) -> None:
        wanted = [Subscription(one, qos) if isinstance(one, str) else one for one in filters]
        self.send(Subscribe(99, wanted, properties))
        assert max((await self.next(Suback)).reason_codes) <= 2

    def publish(self, topic: str, payload: bytes, qos: int, packet_id: int = 1, **more: Any) -> None:
        self.send(Publish(topic, payload, qos, packet_id=packet_id if qos else 0, **more))

    # -- asyncio.Transport ---------------------------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        if self.version:
            self._received.extend(self._decoder.feed(data))
        self._news.set()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.is_closed = True
        self._news.set()

    def close(self) -> None:
        self.write_eof()

    def abort(self) -> None:
        self.write_eof()
        self.lose()

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
