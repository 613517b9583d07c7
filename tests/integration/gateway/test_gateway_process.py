"""A gateway process on a real broker, without any router: instant subscriptions carry the messages (Q1, G9, G11)."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest

from harness.processes import Gateway
from jobs.stack.process import wait_until
from tests.conftest import LocalBroker
from tests.paho_client import Paho

PATIENCE_S = 40.0


class Client:
    """A paho client with a persistent session."""

    def __init__(self, name: str) -> None:
        self.got: list[bytes] = []
        self.is_subscribed = False
        self._mqtt = Paho(mqtt.CallbackAPIVersion.VERSION2, name, clean_session=False)
        self._mqtt.on_message = lambda _client, _data, message: self.got.append(message.payload)
        self._mqtt.on_subscribe = lambda *_: setattr(self, "is_subscribed", True)

    def connect(self, port: int) -> "Client":
        self._mqtt.connect("127.0.0.1", port)
        self._mqtt.loop_start()
        assert wait_until(self._mqtt.is_connected, PATIENCE_S)
        return self

    def leave(self) -> None:
        self._mqtt.disconnect()
        self._mqtt.loop_stop()

    def subscribe(self, topic_filter: str) -> None:
        self._mqtt.subscribe(topic_filter, 2)
        assert wait_until(lambda: self.is_subscribed, PATIENCE_S)

    def publish(self, topic: str, payload: bytes, qos: int) -> None:
        self._mqtt.publish(topic, payload, qos).wait_for_publish(PATIENCE_S)


@pytest.mark.drawn("ends of a gateway", 2)
@pytest.mark.parametrize("has_disk", [True, False], ids=["with its disk", "without its disk"])
@pytest.mark.parametrize("end", [Gateway.kill, Gateway.stop])
def test_what_was_acknowledged_is_delivered_by_the_next_gateway(
    broker: LocalBroker, unique_prefix: str, tmp_path: Path, end: Callable[[Gateway], None], has_disk: bool
) -> None:
    """Q1, G8, G9: offline and in the spool, or just acknowledged; after kill -9 and after an orderly stop."""
    broker.topics(unique_prefix)
    gateway = Gateway(tmp_path, broker.bootstrap, unique_prefix)
    gateway.start()
    try:
        sender, receiver = Client("sender").connect(gateway.port), Client("receiver").connect(gateway.port)
        receiver.subscribe("fresh/#")
        sender.publish("fresh/1", b"online", 2)
        assert wait_until(lambda: receiver.got == [b"online"], PATIENCE_S)
        receiver.leave()
        sent = [b"%d" % n for n in range(40)]
        for payload in sent[:20]:
            sender.publish("fresh/2", payload, 2)
        time.sleep(1.5)  # to the spool
        for payload in sent[20:]:
            sender.publish("fresh/2", payload, 2)
        sender.leave()
        end(gateway)
        if not has_disk:
            shutil.rmtree(tmp_path / "spool")
        gateway.start()
        receiver.connect(gateway.port)
        assert wait_until(lambda: len(receiver.got) >= 41, PATIENCE_S)
        time.sleep(0.5)
        assert receiver.got == [b"online", *sent]
        receiver.leave()
    finally:
        gateway.stop()
