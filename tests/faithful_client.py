"""An MQTT 5 client that keeps to the protocol over any number of lost connections, and holds the server to it (G8).

It keeps its own half of every QoS 1 and 2 exchange, as the specification asks (MQTT 5.0, 4.1), and notes what a server
may not do in `faults`. Everything runs on one event loop.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from mqtt.codes import ReasonCode
from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)

AGAIN_S = 0.1
PATIENCE_S = 60.0


class Got(NamedTuple):
    """One PUBLISH that the application was given; `connection` counts the client's connections."""

    payload: bytes
    qos: int
    dup: bool
    connection: int


class FaithfulClient:
    """`got` is what its application was given: at QoS 2 once an exchange; `acknowledged` the payloads it was promised;
    `repeated` those it had to send more than once, so that the server may have them twice at QoS 1.

    `will` gives the will of the n-th connection; `slow_s` is how long it takes to acknowledge. `accepted` are the
    connections that got a CONNACK; `lost_sessions` those of them that should have found a session and did not.
    """

    def __init__(
        self,
        port: Callable[[], int],
        name: str,
        *,
        expiry_s: int = 3600,
        receive_maximum: int = 1000,
        will: Callable[[int], Will] | None = None,
        slow_s: float = 0.0,
    ) -> None:
        self._port, self.name = port, name
        self._properties = {"session_expiry_interval": expiry_s, "receive_maximum": receive_maximum}
        self._will, self._slow_s = will, slow_s
        self._writer: asyncio.StreamWriter | None = None
        self._staying: asyncio.Task[None] | None = None
        self._online = asyncio.Event()
        self._outgoing: dict[int, Publish] = {}
        self._released: set[int] = set()
        self._incoming: dict[int, bytes] = {}
        self._answers: dict[int, asyncio.Future[Packet]] = {}
        self._last_packet_id = 0
        self.connection = 0
        self.accepted: list[int] = []
        self.may_be_absent = True
        self.present = False
        self.lost_sessions: list[int] = []
        self.got: list[Got] = []
        self.acknowledged: set[bytes] = set()
        self.repeated: set[bytes] = set()
        self.faults: list[str] = []

    @property
    def payloads(self) -> list[bytes]:
        return [got.payload for got in self.got]

    @property
    def unacknowledged(self) -> int:
        return len(self._outgoing)

    # -- what its application asks for ---------------------------------------------------------------------------------

    async def come(self) -> "FaithfulClient":
        """Connects, and again whenever the connection is lost; returns once connected."""
        if self._staying is None:
            self._staying = asyncio.create_task(self._stay())
        await asyncio.wait_for(self._online.wait(), PATIENCE_S)
        return self

    async def leave(self, *, goodbye: bool = False) -> None:
        """Ends the connection, with DISCONNECT or without."""
        if goodbye and self._writer is not None:
            self._send(Disconnect())
            with contextlib.suppress(ConnectionError):
                await self._writer.drain()
        staying, self._staying = self._staying, None
        if staying is not None:
            staying.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await staying

    def drop(self) -> None:
        """Breaks the connection; the client comes back by itself."""
        if self._writer is not None:
            self._writer.transport.abort()

    def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool = False) -> None:
        packet_id = self._free_packet_id()
        packet = self._outgoing[packet_id] = Publish(topic, payload, qos, retain, False, packet_id)
        if self._online.is_set():
            self._send(packet)

    async def published(self) -> None:
        """Returns once everything is acknowledged."""
        await eventually(lambda: not self._outgoing, f"all of {self.name} is acknowledged")

    async def subscribe(self, topic_filter: str, qos: int, retain_handling: int = 0) -> None:
        wanted = Subscription(topic_filter, qos, retain_handling=retain_handling)
        answer = await self._ask(lambda packet_id: Subscribe(packet_id, [wanted]))
        assert isinstance(answer, Suback)
        assert answer.reason_codes == [ReasonCode(qos)], answer

    async def unsubscribe(self, topic_filter: str) -> None:
        assert isinstance(await self._ask(lambda packet_id: Unsubscribe(packet_id, [topic_filter])), Unsuback)

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _ask(self, packet: Callable[[int], Subscribe | Unsubscribe]) -> Packet:
        """Asks again on the next connection if there is no answer on this one."""
        while True:
            await asyncio.wait_for(self._online.wait(), PATIENCE_S)
            packet_id = self._free_packet_id()
            answer = self._answers[packet_id] = asyncio.get_running_loop().create_future()
            self._send(packet(packet_id))
            with contextlib.suppress(ConnectionError):
                return await asyncio.wait_for(answer, PATIENCE_S)

    async def _stay(self) -> None:
        while True:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._one_connection()
            await asyncio.sleep(AGAIN_S)

    async def _one_connection(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port())
        self.connection += 1
        decoder = Decoder(1 << 24, 5)
        self._writer = writer
        try:
            will = self._will(self.connection) if self._will is not None else None
            self._send(Connect(self.name, 5, False, 30, will=will, properties=self._properties))
            while data := await reader.read(1 << 16):
                for packet in decoder.feed(data):
                    if self._slow_s:
                        await asyncio.sleep(self._slow_s)
                    self._take(packet)
                await writer.drain()
        finally:
            self._online.clear()
            self._writer = None
            writer.transport.abort()
            answers, self._answers = self._answers, {}
            for answer in answers.values():
                if not answer.done():
                    answer.set_exception(ConnectionResetError())

    def _send(self, packet: Packet) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(encode(packet, 5))

    def _take(self, packet: Packet) -> None:
        match packet:
            case Connack():
                self._connected(packet)
            case Publish():
                self._receive(packet)
            case Pubrel():
                self._incoming.pop(packet.packet_id, None)
                self._send(Pubcomp(packet.packet_id))
            case Puback() | Pubrec():
                self._acknowledged(packet)
            case Pubcomp():
                if packet.packet_id not in self._released:
                    self.faults.append(f"PUBCOMP for {packet.packet_id}, which waits for none")
                self._outgoing.pop(packet.packet_id, None)
                self._released.discard(packet.packet_id)
            case Suback() | Unsuback():
                answer = self._answers.pop(packet.packet_id, None)
                if answer is not None:
                    answer.set_result(packet)
                else:
                    self.faults.append(f"{type(packet).__name__} for {packet.packet_id}, which waits for none")

    def _connected(self, packet: Connack) -> None:
        if packet.reason_code is not ReasonCode.SUCCESS:
            return  # the gateway is being stopped
        self.present = packet.session_present
        if not packet.session_present:
            if self.accepted and not self.may_be_absent:
                self.lost_sessions.append(self.connection)
            self._incoming.clear()
            self._released.clear()
        self.accepted.append(self.connection)
        self.may_be_absent = False
        for packet_id, publish in list(self._outgoing.items()):
            if packet_id in self._released:
                self._send(Pubrel(packet_id))
            else:
                self.repeated.add(publish.payload)
                self._send(msgspec.structs.replace(publish, dup=True))
        self._online.set()

    def _receive(self, packet: Publish) -> None:
        got = Got(packet.payload, packet.qos, packet.dup, self.connection)
        if packet.qos < 2:
            self.got.append(got)
            if packet.qos:
                self._send(Puback(packet.packet_id))
            return
        before = self._incoming.get(packet.packet_id)
        if before is None:
            self._incoming[packet.packet_id] = packet.payload
            self.got.append(got)
        elif before != packet.payload or not packet.dup:
            self.faults.append(f"packet id {packet.packet_id} used again: {before!r}, {packet.payload!r}")
        self._send(Pubrec(packet.packet_id))

    def _acknowledged(self, packet: Puback | Pubrec) -> None:
        publish = self._outgoing.get(packet.packet_id)
        if publish is None or publish.qos != (1 if isinstance(packet, Puback) else 2):
            self.faults.append(f"{type(packet).__name__} for {packet.packet_id}, which waits for none")
            return
        if packet.reason_code >= ReasonCode.UNSPECIFIED_ERROR:
            self.faults.append(f"{publish.payload!r} was refused: {packet.reason_code.name}")
        self.acknowledged.add(publish.payload)
        if isinstance(packet, Puback):
            del self._outgoing[packet.packet_id]
        else:
            self._released.add(packet.packet_id)
            self._send(Pubrel(packet.packet_id))

    def _free_packet_id(self) -> int:
        while True:
            self._last_packet_id = self._last_packet_id % 65_535 + 1
            if self._last_packet_id not in self._outgoing and self._last_packet_id not in self._answers:
                return self._last_packet_id


async def eventually(condition: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Returns once the condition holds; fails naming `what` if it does not in time."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"not in time: {what}"
        await asyncio.sleep(0.02)
