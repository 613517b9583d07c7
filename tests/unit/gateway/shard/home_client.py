"""An MQTT client for tests of a whole home: it keeps to the protocol, over any number of connections and crashes."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gateway.shard.arrivals import Arrival
from gateway.shard.messages import Delivery, Message
from gateway.shard.rules import EVERYTHING, ClientRules
from gateway.shard.shard_home import Attached
from mqtt.codes import PacketType, ReasonCode
from mqtt.packets import Publish, Subscribe, Subscription, Unsubscribe
from mqtt.properties import decode_properties
from mqtt.wire import Reader
from schemas.identity import inbox_of
from schemas.session_log import WillRecord

if TYPE_CHECKING:
    from tests.unit.gateway.shard.home_harness import HomeHarness


class Got(NamedTuple):
    """What a client's application was given."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    dup: bool
    identifiers: tuple[int, ...]
    restarted: bool = False
    """Its conversation was another member's of the share group before."""


class ClientLink:
    """One connection of a client; what the home says reaches the client a turn later."""

    def __init__(self, client: "Client") -> None:
        self._client = client
        self.writable = True

    def deliver(self, message: Message, delivery: Delivery) -> bool:
        # Values now: the home may change the delivery afterwards.
        section = message.properties
        properties = decode_properties(Reader(section, 0, len(section)), PacketType.PUBLISH) or {}
        self._client.properties.append(properties)
        restarted = ("conversation-restarted", "true") in properties.get("user_property", ())
        dup, identifiers = delivery.dup, delivery.subscription_ids
        got = Got(message.topic, message.payload, delivery.qos, delivery.retain, dup, identifiers, restarted)
        self._soon(self._client.take, got, delivery.packet_id)
        return True

    def release(self, packet_id: int, reason: ReasonCode = ReasonCode.SUCCESS) -> None:
        self._soon(self._client.take_release, packet_id)

    def answer(self, qos: int, packet_id: int, reason: ReasonCode) -> None:
        self._soon(self._client.take_answer, qos, packet_id, reason)

    def complete(self, packet_id: int, reason: ReasonCode) -> None:
        self._soon(self._client.take_complete, packet_id)

    def disconnect(self, reason: ReasonCode) -> None:
        if self._client.link is self:
            self._client.link = None
            self._client.closed_by = reason

    def _soon(self, action: Callable[..., None], *arguments: Any) -> None:
        def arrive() -> None:
            if self._client.link is self:
                action(*arguments)

        asyncio.get_running_loop().call_soon(arrive)


class Client:
    """An MQTT client that keeps to the protocol and keeps its own state over connections and over crashes of the home.

    `got` is what its application was given: QoS 2 once a packet id, as the protocol says; `acknowledged` the payloads
    it was promised. While `mute` it answers nothing. `properties` are those of each PUBLISH, repetitions included.
    """

    def __init__(
        self,
        harness: "HomeHarness",
        name: str,
        *,
        expiry_s: int = 3600,
        clean_start: bool = False,
        will: WillRecord | None = None,
        receive_maximum: int = 65_535,
        mute: bool = False,
        rules: ClientRules = EVERYTHING,
    ) -> None:
        self._harness = harness
        self.name = name
        self.expiry_s, self.clean_start, self.will = expiry_s, clean_start, will
        self.receive_maximum = receive_maximum
        self.mute = mute
        self.rules = rules
        self.link: ClientLink | None = None
        self.attached: Attached
        self.closed_by: ReasonCode | None = None
        self.present = False
        self.got: list[Got] = []
        self.properties: list[dict[str, Any]] = []
        self.acknowledged: set[bytes] = set()
        self.refused: list[ReasonCode] = []
        self.most_in_flight = 0
        self._unanswered: list[tuple[str, int]] = []
        self._incoming: set[int] = set()
        self._outgoing: dict[int, Publish] = {}
        self._released: set[int] = set()

    @property
    def payloads(self) -> list[bytes]:
        return [got.payload for got in self.got]

    @property
    def inbox(self) -> str:
        return inbox_of(self.name)

    async def connect(self, *, clean_start: bool | None = None) -> "Client":
        clean = self.clean_start if clean_start is None else clean_start
        link = ClientLink(self)
        arrival = Arrival(self.name, clean, self.expiry_s, self.will, self.receive_maximum, "peer", "mqtt5", self.rules)
        home = self._harness.home
        attached = await home.attach(arrival, link)
        if not self._harness.is_up or home is not self._harness.home:
            return self  # it was killed meanwhile
        self.attached, self.link, self.present = attached, link, attached.present
        self._unanswered.clear()
        if not attached.present:
            self._incoming.clear()
            self._outgoing.clear()
            self._released.clear()
        attached.home.resume(attached.session, link)
        for packet_id, packet in list(self._outgoing.items()):
            if packet_id in self._released:
                attached.home.release(attached.session, link, packet_id)
            else:
                attached.publisher.publish(msgspec.structs.replace(packet, dup=True))
        home.flush()
        return self

    def lose(self, reason: str = "connection_lost") -> None:
        """The connection breaks."""
        link, self.link = self.link, None
        if link is not None:
            self.attached.home.detach(self.attached.session, link, send_will=True, reason=reason)

    def disconnect(self, expiry_s: int | None = None) -> None:
        """An orderly DISCONNECT."""
        link, self.link = self.link, None
        if link is not None:
            self.attached.home.detach(
                self.attached.session, link, send_will=False, reason="normal_disconnection", expiry_s=expiry_s
            )

    async def subscribe(self, *filters: str | Subscription, identifier: int | None = None) -> list[ReasonCode]:
        wanted = [Subscription(f, 2) if isinstance(f, str) else f for f in filters]
        answers: list[list[ReasonCode]] = []
        properties = None if identifier is None else {"subscription_identifier": [identifier]}
        await self.attached.home.subscribe(self.attached.session, Subscribe(1, wanted, properties), answers.append)
        assert len(answers) == 1
        return answers[0]

    async def unsubscribe(self, *filters: str) -> list[ReasonCode]:
        return await self.attached.home.unsubscribe(self.attached.session, Unsubscribe(1, list(filters)))

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 1,
        *,
        retain: bool = False,
        properties: dict[str, Any] | None = None,
    ) -> int:
        """Returns the packet id, 0 at QoS 0."""
        packet_id = next(n for n in range(1, 65_536) if n not in self._outgoing) if qos else 0
        packet = Publish(topic, payload, qos, retain, False, packet_id, properties)
        if qos:
            self._outgoing[packet_id] = packet
        if self.link is not None:
            self.attached.publisher.publish(packet)
        return packet_id

    def forget(self, packet_id: int) -> None:
        """A message that it has published is no concern of its application any more."""
        del self._outgoing[packet_id]

    def answer_all(self) -> None:
        """Says what it was too mute to say."""
        unanswered, self._unanswered = self._unanswered, []
        for word, packet_id in unanswered:
            self._say(word, packet_id)

    def take(self, got: Got, packet_id: int) -> None:
        if got.qos < 2:
            self.got.append(got)
        elif packet_id not in self._incoming:
            self._incoming.add(packet_id)
            self.got.append(got)
        if got.qos:
            self._answer(["puback", "pubrec"][got.qos - 1], packet_id)

    def take_release(self, packet_id: int) -> None:
        self._incoming.discard(packet_id)
        self._answer("pubcomp", packet_id)

    def take_answer(self, qos: int, packet_id: int, reason: ReasonCode) -> None:
        packet = self._outgoing.get(packet_id) if qos else None
        if packet is None:
            return
        if reason >= ReasonCode.UNSPECIFIED_ERROR:
            self.refused.append(reason)
            del self._outgoing[packet_id]
            return
        self.acknowledged.add(packet.payload)
        if qos == 1:
            del self._outgoing[packet_id]
        else:
            self._released.add(packet_id)
            link = self.link
            assert link is not None
            self.attached.home.release(self.attached.session, link, packet_id)

    def take_complete(self, packet_id: int) -> None:
        self._outgoing.pop(packet_id, None)
        self._released.discard(packet_id)

    def _answer(self, word: str, packet_id: int) -> None:
        self._unanswered.append((word, packet_id))
        self.most_in_flight = max(self.most_in_flight, len(self._unanswered))
        if not self.mute:
            self._unanswered.pop()
            self._say(word, packet_id)

    def _say(self, word: str, packet_id: int) -> None:
        home, session = self.attached.home, self.attached.session
        if self.link is None:
            return
        match word:
            case "puback":
                home.acknowledged(session, packet_id)
            case "pubrec":
                home.received(session, packet_id, ReasonCode.SUCCESS)
            case "pubcomp":
                home.completed(session, packet_id)
        home.flush()
