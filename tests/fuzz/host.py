"""Fuzz target: a client's connection over a home in memory, gateway.host.host_connection (G11, R12).

A program (see programs.py) is played by one client, on a new connection whenever the last one has ended. What its
ACCEPT, REFUSE and DISCONNECT steps do here: let things happen, make Kafka hold back its acknowledgements or give them,
and make the transport take nothing or take on. What must hold:

* nothing is raised, and nothing is fatal to the gateway;
* the client gets MQTT of its version, CONNACK first;
* the connection ends for a reason that is listed, and leaves nothing in the server;
* its session is bounded as the limits say;
* another client, that behaves, is served afterwards.
"""

import asyncio
import shutil
import tempfile
from pathlib import Path

from gateway.host.close_reasons import CLOSE_REASONS
from gateway.host.host_connection import HostConnection
from gateway.host.host_server import HostServer
from mqtt.codes import VERSION_5
from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.packets import Connack, Connect, Packet, Puback, Publish
from mqtt.server_connection import ServerConnection
from tests.fuzz.programs import Kind, Step, parse
from tests.unit.gateway.shard.home_harness import HomeHarness, turn
from tests.unit.gateway.shard.virtual_time import VirtualLoop

LIMITS = {
    "packet_bytes": 4_096,
    "receive_maximum": 3,
    "client_receive_maximum": 5,
    "topic_alias_maximum": 3,
    "subscriptions": 4,
    "queue_messages": 20,
    "queue_bytes": 10_000,
    "retained_messages": 5,
    "retained_bytes": 5_000,
    "client_id_bytes": 64,
    "will_bytes": 500,
    "filter_levels": 4,
    "session_expiry_s": 3_600,
}
_SECONDS = (0.0, 0.1, 0.6, 2.0, 11.0)


class _Wire:
    """A transport in memory; what the client is sent is kept as bytes."""

    bearer = "mqtt"
    certificate: str | None = None
    peer = "memory"

    def __init__(self, server: HostServer) -> None:
        self.sent = b""
        self.is_closed = False
        self.is_paused = False
        self.connection = HostConnection(server, self)

    @property
    def core(self) -> ServerConnection:
        return self.connection._core

    def write(self, data: bytes) -> None:
        assert not self.is_closed, "bytes after the end"
        self.sent += data

    def close(self) -> None:
        self.is_closed = True

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def received(self) -> list[Packet]:
        if not self.sent:
            return []
        decoder = Decoder(1 << 20, self.core.version or VERSION_5)
        packets = decoder.feed(self.sent)
        assert decoder.error is None, decoder.error
        assert isinstance(packets[0], Connack), "the first answer is not CONNACK"
        return packets


class _Stage:
    """A home and its connections on a loop of virtual time, for one input: a finding needs no other."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="fuzz"))
        self._loop = VirtualLoop()
        self._raised: list[object] = []
        self._loop.set_exception_handler(lambda _loop, context: self._raised.append(context))
        self.harness, self.server = self._loop.run_until_complete(self._build())

    async def _build(self) -> tuple[HomeHarness, HostServer]:
        harness = await HomeHarness(self._directory, **LIMITS).start()
        gateway = harness.settings().gateway
        return harness, HostServer(
            gateway, harness.home, harness.clock, lambda: harness.bus.in_flight, harness.fatal.append
        )

    def play(self, steps: list[Step]) -> None:
        self._loop.run_until_complete(asyncio.wait_for(self._play(steps), 100_000))
        assert not self._raised, self._raised
        assert not self.harness.fatal, self.harness.fatal

    async def _play(self, steps: list[Step]) -> None:
        harness, server = self.harness, self.server
        wires = [_Wire(server)]
        for step in steps:
            if wires[-1].is_closed:
                wires.append(_Wire(server))
            await self._step(wires[-1], step)
            self._check_sizes(wires[-1])
        harness.bus.held_acks = set()
        harness.bus.release()
        for wire in wires:
            wire.connection.transport_lost()
        await turn()
        for wire in wires:
            wire.received()
        assert server.connections == set(), "the server still has the connection"
        ends = {name.removeprefix("closed_"): n for name, n in server.counts.items() if name.startswith("closed_")}
        assert sum(ends.values()) == len(wires), ends
        assert ends.keys() <= CLOSE_REASONS, ends
        await self._serve()

    async def _step(self, wire: _Wire, step: Step) -> None:
        bus, topics, connection = self.harness.bus, self.harness.topics, wire.connection
        match step.kind:
            case Kind.FEED:
                if not wire.is_paused:
                    connection.data_received(step.argument)
            case Kind.ACCEPT | Kind.SEND:
                await turn(0.001 * (step.number % 60))
            case Kind.TICK:
                await turn(_SECONDS[step.number % len(_SECONDS)])
            case Kind.REFUSE:
                bus.held_acks = {topics.ingress, topics.sessions} if step.number & 1 else set()
                bus.release()
            case Kind.DISCONNECT:
                if step.number & 1:
                    connection.writing_paused()
                else:
                    connection.writing_resumed()
            case Kind.EOF:
                connection.transport_lost()

    def _check_sizes(self, wire: _Wire) -> None:
        limits = self.server.limits
        attached = wire.connection._attached
        if attached is None:
            return
        session = attached.session
        assert len(session.client.encode()) <= limits.client_id_bytes
        assert len(session.subscriptions) <= limits.subscriptions
        assert len(session.in_flight) <= limits.client_receive_maximum
        # What was in flight may be put back into a full queue by a connection whose window is smaller.
        waiting = session.queued + len(session.in_flight)
        assert waiting <= limits.queue_messages + limits.client_receive_maximum
        assert all(f.count("/") < limits.filter_levels for f in session.subscriptions)
        assert len(self.harness.node.retained) <= limits.retained_messages + attached.publisher.in_flight + 5

    async def _serve(self) -> None:
        """A client that behaves gets its answers."""
        wire = _Wire(self.server)
        wire.connection.data_received(encode(Connect("probe", 5), 5) + encode(Publish("p", b"x", 1, packet_id=1), 5))
        await turn()
        assert [type(packet) for packet in wire.received()] == [Connack, Puback], wire.received()
        wire.connection.transport_lost()
        await turn()

    def close(self) -> None:
        self.harness.crash()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.1))
        self._loop.close()
        shutil.rmtree(self._directory, ignore_errors=True)


def run(data: bytes) -> None:
    """One execution."""
    _options, steps = parse(data)
    stage = _Stage()
    try:
        stage.play(steps)
    finally:
        stage.close()
