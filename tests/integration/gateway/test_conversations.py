"""Conversations in a shared subscription through a gateway process on a real broker, with paho (R6)."""

from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from harness.processes import Gateway
from jobs.stack.process import wait_until
from tests.conftest import LocalBroker
from tests.integration.gateway.test_gateway_process import PATIENCE_S
from tests.paho_client import Paho

NAME = "$share/g/a/#"


class Client:
    """A paho client of MQTT 5.0 with a lasting session. `got` has payloads and user properties."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.got: list[tuple[bytes, dict[str, str]]] = []
        self.correlations: list[bytes | None] = []
        self.answers: list[int] = []
        self._subscribed = 0
        self._mqtt = Paho(mqtt.CallbackAPIVersion.VERSION2, name, protocol=mqtt.MQTTv5)
        self._mqtt.on_message = self._take
        self._mqtt.on_subscribe = self._mqtt.on_unsubscribe = lambda *_: setattr(
            self, "_subscribed", self._subscribed + 1
        )
        self._mqtt.on_publish = lambda _c, _d, _id, reason, _properties: self.answers.append(reason.value)

    @property
    def payloads(self) -> list[bytes]:
        return [payload for payload, _ in self.got]

    def connect(self, port: int) -> "Client":
        lasting = Properties(PacketTypes.CONNECT)
        lasting.SessionExpiryInterval = 3600
        self._mqtt.connect("127.0.0.1", port, clean_start=False, properties=lasting)
        self._mqtt.loop_start()
        assert wait_until(self._mqtt.is_connected, PATIENCE_S)
        return self

    def leave(self) -> None:
        self._mqtt.disconnect()
        self._mqtt.loop_stop()

    def subscribe(self, topic_filter: str) -> None:
        before = self._subscribed
        self._mqtt.subscribe(topic_filter, 2)
        assert wait_until(lambda: self._subscribed > before, PATIENCE_S)

    def unsubscribe(self, topic_filter: str) -> None:
        before = self._subscribed
        self._mqtt.unsubscribe(topic_filter)
        assert wait_until(lambda: self._subscribed > before, PATIENCE_S)

    def say(self, payload: bytes, qos: int, *conversations: str) -> int:
        """Returns the reason code of the answer, 0 at QoS 0."""
        properties: Any = Properties(PacketTypes.PUBLISH)
        properties.UserProperty = [("conversation", one) for one in conversations]
        properties.ResponseTopic, properties.CorrelationData = "answers", payload
        self._mqtt.publish("a/b", payload, qos, properties=properties).wait_for_publish(PATIENCE_S)
        return self.answers[-1]

    def _take(self, _client: object, _data: object, message: mqtt.MQTTMessage) -> None:
        self.correlations.append(getattr(message.properties, "CorrelationData", None))
        self.got.append((message.payload, dict(getattr(message.properties, "UserProperty", []))))


def test_a_conversation_outlives_its_gateway_and_its_receiver(
    broker: LocalBroker, unique_prefix: str, tmp_path: Path
) -> None:
    """R6, G7: one receiver for all of it, also from the next gateway; when that is gone, another one and the sender are
    told so. An id that is not valid is refused."""
    broker.topics(unique_prefix)
    gateway = Gateway(tmp_path, broker.bootstrap, unique_prefix)
    gateway.start()
    sent = [b"%d" % n for n in range(20)]
    try:
        sender = Client("sender").connect(gateway.port)
        members = [Client(f"member-{n}").connect(gateway.port) for n in range(3)]
        for member in members:
            member.subscribe(NAME)
        for n, payload in enumerate(sent[:10]):
            assert sender.say(payload, n % 3, "k") == 0
        assert wait_until(lambda: sum(len(member.got) for member in members) == 10, PATIENCE_S)
        [first] = [member for member in members if member.got]
        others = [member for member in members if member is not first]

        gateway.kill()
        for client in (sender, *members):
            client.leave()
        gateway.start()
        for client in (*others, sender):
            client.connect(gateway.port)
        for payload in sent[10:]:
            sender.say(payload, 2, "k")
        first.connect(gateway.port)
        assert wait_until(lambda: len(set(first.payloads)) == 20, PATIENCE_S)
        assert list(dict.fromkeys(first.payloads)) == sent
        assert not any(member.got for member in others)
        assert all(properties == {"conversation": "k"} for _, properties in first.got)

        sender.subscribe("answers")
        first.unsubscribe(NAME)
        sender.say(b"next", 1, "k")
        sender.say(b"last", 1, "k")
        assert wait_until(lambda: sum(len(member.got) for member in others) == 2, PATIENCE_S)
        [second] = [member for member in others if member.got]
        assert second.got == [
            (b"next", {"conversation": "k", "conversation-restarted": "true"}),
            (b"last", {"conversation": "k"}),
        ]
        assert wait_until(lambda: bool(sender.got), PATIENCE_S)
        assert sender.got == [(b"", {"conversation": "k", "conversation-receiver": "gone"})]
        assert sender.correlations == [b"next"]

        assert sender.say(b"no", 1, "") == sender.say(b"no", 1, "k", "l") == 0x99
        for client in (sender, *members):
            client.leave()
    finally:
        gateway.stop()
