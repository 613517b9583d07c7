"""The MQTT client of `edge`, held to its word over any number of lost connections, and holding the server to it (G8).

The client core keeps the protocol, and closes what breaks it; here stands what else a server may not do, in `faults`,
and what the application was given and promised. Everything runs on one event loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from edge.hooks import Hooks
from edge.link import Address
from edge.mqtt_client import MqttClient
from edge.reconnect import FullJitter, StayConnected
from mqtt.client_events import Closed, EndedBy
from mqtt.codes import ReasonCode
from mqtt.packets import (
    Connack,
    Connect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscription,
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

    `version` of MQTT: 5, or 4 for 3.1.1. With `clean` each connection begins a new session. `will` gives the will of
    the n-th connection; `slow_s` is how long it takes to acknowledge. `accepted` are the connections that got a
    CONNACK; `lost_sessions` those of them that should have found a session and did not.
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
        version: int = 5,
        clean: bool = False,
    ) -> None:
        self.name = name
        of_5 = {"session_expiry_interval": 0 if clean else expiry_s, "receive_maximum": receive_maximum}
        properties = of_5 if version == 5 else None
        self._client = MqttClient(
            lambda: Address("127.0.0.1", port()),
            lambda n: Connect(
                name, version, clean, 30, will=will(n) if will is not None else None, properties=properties
            ),
            on_message=self._give,
            manual=True,
            resubscribe=False,
            hooks=Hooks(self._observe, on_closed=self._closed),
        )
        self._staying: StayConnected | None = None
        self._slow_s = slow_s
        self._clean = clean
        self._unaccepted: deque[Publish] = deque()
        self._incoming: dict[int, bytes] = {}
        self._unconfirmed: dict[int, bytes] = {}
        self.accepted: list[int] = []
        self.may_be_absent = True
        self.present = False
        self.lost_sessions: list[int] = []
        self.got: list[Got] = []
        self.acknowledged: set[bytes] = set()
        self.repeated: set[bytes] = set()
        self.faults: list[str] = []

    @property
    def connection(self) -> int:
        return self._client.connections

    @property
    def is_connected(self) -> bool:
        return self._client.is_connected

    @property
    def payloads(self) -> list[bytes]:
        return [got.payload for got in self.got]

    @property
    def unacknowledged(self) -> int:
        return len(self._client.session.unacknowledged)

    # -- what its application asks for ---------------------------------------------------------------------------------

    async def come(self) -> "FaithfulClient":
        """Connects, and again whenever the connection is lost; returns once connected."""
        if self._staying is None:
            self._staying = StayConnected(self._client, FullJitter(AGAIN_S, AGAIN_S, lambda: 1.0), lambda error: False)
            self._staying.start()
        await asyncio.wait_for(self._client.wait_connected(), PATIENCE_S)
        return self

    async def leave(self, *, goodbye: bool = False) -> None:
        """Ends the connection, with DISCONNECT or without."""
        staying, self._staying = self._staying, None
        if goodbye:
            await self._client.disconnect()
        if staying is not None:
            await staying.stop()

    def drop(self) -> None:
        """Breaks the connection; the client comes back by itself."""
        self._client.abort()

    def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool = False) -> None:
        self._client.publish(topic, payload, qos, retain)

    async def published(self) -> None:
        """Returns once everything is acknowledged."""
        await eventually(lambda: not self.unacknowledged, f"all of {self.name} is acknowledged")

    async def subscribe(self, topic_filter: str, qos: int, retain_handling: int = 0) -> None:
        wanted = Subscription(topic_filter, qos, retain_handling=retain_handling)
        assert await asyncio.wait_for(self._client.subscribe(wanted), PATIENCE_S) == [ReasonCode(qos)]

    async def unsubscribe(self, topic_filter: str) -> None:
        await asyncio.wait_for(self._client.unsubscribe(topic_filter), PATIENCE_S)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _give(self, message: Publish) -> None:
        self.got.append(Got(message.payload, message.qos, message.dup, self.connection))
        if not self._slow_s:
            self._confirm(message)
            return
        self._unaccepted.append(message)
        if len(self._unaccepted) == 1:
            asyncio.get_running_loop().call_later(self._slow_s, self._accept)

    def _accept(self) -> None:
        self._confirm(self._unaccepted.popleft())
        if self._unaccepted:
            asyncio.get_running_loop().call_later(self._slow_s, self._accept)

    def _confirm(self, message: Publish) -> None:
        if message.qos == 1 and self._unconfirmed.get(message.packet_id) is message.payload:
            del self._unconfirmed[message.packet_id]
        self._client.acknowledge(message)

    def _closed(self, closed: Closed) -> None:
        if closed.by is EndedBy.FAULT:
            self.faults.append(closed.detail)

    def _observe(self, packet: Packet) -> None:
        """Each packet of the server, before the client acts on it."""
        outbound = self._client.session.outbound
        match packet:
            case Connack():
                self._connected(packet)
            case Publish() if packet.qos == 2:
                before = self._incoming.setdefault(packet.packet_id, packet.payload)
                if before != packet.payload or (before is not packet.payload and not packet.dup):
                    self.faults.append(f"packet id {packet.packet_id} used again: {before!r}, {packet.payload!r}")
            case Publish() if packet.qos == 1:  # emqx#16296: one PUBACK would acknowledge both
                before = self._unconfirmed.setdefault(packet.packet_id, packet.payload)
                if before is not packet.payload:
                    self.faults.append(f"packet id {packet.packet_id} given twice: {before!r}, {packet.payload!r}")
            case Pubrel():
                self._incoming.pop(packet.packet_id, None)
            case Puback() | Pubrec():
                publish = outbound.messages.get(packet.packet_id)
                if publish is None or publish.qos != (1 if isinstance(packet, Puback) else 2):
                    self.faults.append(f"{type(packet).__name__} for {packet.packet_id}, which waits for none")
                    return
                if packet.reason_code >= ReasonCode.UNSPECIFIED_ERROR:
                    self.faults.append(f"{publish.payload!r} was refused: {packet.reason_code.name}")
                self.acknowledged.add(publish.payload)
            case Pubcomp() if packet.packet_id not in outbound.released:
                self.faults.append(f"PUBCOMP for {packet.packet_id}, which waits for none")

    def _connected(self, packet: Connack) -> None:
        if packet.reason_code != ReasonCode.SUCCESS:
            return  # the gateway is being stopped
        self._unconfirmed.clear()
        self.present = packet.session_present
        if not packet.session_present:
            if self.accepted and not self.may_be_absent and not self._clean:
                self.lost_sessions.append(self.connection)
            self._incoming.clear()
        self.accepted.append(self.connection)
        self.may_be_absent = False
        session = self._client.session
        sent = (message for message in session.unacknowledged if message.packet_id not in session.outbound.released)
        self.repeated.update(message.payload for message in sent if message.dup)


async def eventually(condition: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Returns once the condition holds; fails naming `what` if it does not in time."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"not in time: {what}"
        await asyncio.sleep(0.02)
