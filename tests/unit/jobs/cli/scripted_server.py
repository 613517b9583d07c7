"""An MQTT server on a real socket that answers as a test says, and remembers what it was sent."""

import asyncio
import ssl
import threading
import time
from collections.abc import Callable
from types import TracebackType

from mqtt.codes import ALLOWED_REASONS, PacketType, ReasonCode
from mqtt.limits import ConnectionLimits
from mqtt.packets import (
    Connect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from mqtt.server_connection import ServerConnection
from mqtt.server_events import Closed

PATIENCE_S = 20.0

Script = Callable[["Peer", Packet], bool]
"""Given each packet; True if it has answered it, so that the server does not."""


class Peer:
    """One connection, as a script sees it; `number` counts them from 1."""

    def __init__(self, core: ServerConnection, number: int) -> None:
        self._core, self.number = core, number

    def send(self, *packets: Packet) -> None:
        for packet in packets:
            self._core.send(packet)

    def refuse(self, reason: ReasonCode, text: str = "") -> None:
        self._core.refuse(reason, {"reason_string": text} if text else None)

    def accept(self, *, session_present: bool = False) -> None:
        self._core.accept(time.monotonic(), session_present=session_present)

    def disconnect(self, reason: ReasonCode, text: str = "") -> None:
        self._core.disconnect(reason, {"reason_string": text} if text else None)


class ScriptedServer:
    """`with ScriptedServer(script) as server:`. `packets` are (number of the connection, packet), in order."""

    def __init__(self, script: Script = lambda peer, packet: False, tls: ssl.SSLContext | None = None) -> None:
        self._script, self._tls = script, tls
        self._ready, self._thread = threading.Event(), threading.Thread(target=lambda: asyncio.run(self._run()))
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event
        self._connections = 0
        self.port = 0
        self.packets: list[tuple[int, Packet]] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def of(self, kind: type[Packet]) -> list[Packet]:
        """The packets of that type, over all connections."""
        return [packet for _, packet in self.packets if type(packet) is kind]

    def wait_for(self, kind: type[Packet]) -> list[Packet]:
        """The packets of that type, once there is one."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := self.of(kind)):
            assert time.monotonic() < deadline, f"no {kind.__name__} has come"
            time.sleep(0.01)
        return found

    def __enter__(self) -> "ScriptedServer":
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(PATIENCE_S)

    async def _run(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stopping.wait()
        server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        core = ServerConnection(ConnectionLimits(), time.monotonic())
        peer = Peer(core, self._connections)
        while core.closed is None and (data := await reader.read(1 << 16)):
            events = core.receive(data, time.monotonic())
            while events:
                event = events.pop(0)
                if isinstance(event, Closed):
                    break
                self.packets.append((peer.number, event))
                if not self._script(peer, event):
                    events += self._answer(core, event)
            writer.write(core.outgoing())
            await writer.drain()
        writer.close()

    @staticmethod
    def _answer(core: ServerConnection, packet: Packet) -> list[Packet | Closed]:
        match packet:
            case Connect():
                return list(core.accept(time.monotonic()))
            case Publish(qos=1):
                core.send(Puback(packet.packet_id))
            case Publish(qos=2):
                core.send(Pubrec(packet.packet_id))
            case Pubrel():
                core.send(Pubcomp(packet.packet_id))
            case Subscribe():
                core.send(Suback(packet.packet_id, [ReasonCode(wanted.qos) for wanted in packet.filters]))
            case Unsubscribe():
                core.send(Unsuback(packet.packet_id, [ReasonCode.SUCCESS] * len(packet.filters)))
        return []


def failures(kind: PacketType) -> list[ReasonCode]:
    """The reason codes of failure that such a packet may carry."""
    return [reason for code, reason in sorted(ALLOWED_REASONS[kind].items()) if code >= ReasonCode.UNSPECIFIED_ERROR]
