"""A feed's copies on a real broker, a gateway process that is killed under load, and a plain MQTT subscriber (S3, S6,
Q1).

The subscription's route takes effect later, so that the gateway reads the copies on `ingress` itself. Of the second
half there are instructions too, as by a router that does not know the routes. Both adapters lose a part, each another
one; nothing that one of them had is missing, and nothing comes twice.
"""

import json
import random
import threading
from functools import partial
from pathlib import Path

import paho.mqtt.client as mqtt
from confluent_kafka import Message, Producer
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from feeds.ingress_copy import IngressCopy, ingress_copy
from feeds.message import Feed, FeedMessage, stream_id
from harness.processes import Gateway
from jobs.stack.process import wait_until
from schemas.envelope import EVERYONE, Instruction
from schemas.identity import shard_of
from schemas.topics import Topics
from tests import draw
from tests.conftest import LocalBroker
from tests.integration.gateway.test_gateway_process import PATIENCE_S, Client
from tests.paho_client import Paho

pytestmark = draw.over_processes

STREAM = stream_id("radar", 0)
MESSAGES = 2_000
PAUSE_EVERY = 20
PARTITIONS, SHARDS = 2, 4


class Subscriber:
    """A client of MQTT 5 with a persistent session: the numbers that it got, as the user properties say."""

    def __init__(self) -> None:
        self.got: list[int] = []
        self.late: list[int] = []
        self.is_subscribed = False
        self._mqtt = Paho(mqtt.CallbackAPIVersion.VERSION2, "subscriber", protocol=mqtt.MQTTv5)
        self._mqtt.on_message = self._take
        self._mqtt.on_subscribe = lambda *_: setattr(self, "is_subscribed", True)
        self._mqtt.reconnect_delay_set(1, 1)

    def connect(self, port: int, *, is_new: bool = False) -> None:
        kept = Properties(PacketTypes.CONNECT)
        kept.SessionExpiryInterval = 3600
        self._mqtt.connect("127.0.0.1", port, clean_start=is_new, properties=kept)
        self._mqtt.loop_start()
        assert wait_until(self._mqtt.is_connected, PATIENCE_S)
        if is_new:
            self._mqtt.subscribe("feeds/flight/#", 2)
            assert wait_until(lambda: self.is_subscribed, PATIENCE_S)

    def leave(self) -> None:
        self._mqtt.disconnect()
        self._mqtt.loop_stop()

    def _take(self, _client: mqtt.Client, _data: object, message: mqtt.MQTTMessage) -> None:
        stamps = dict(getattr(message.properties, "UserProperty", []))
        number = int(stamps["feed-sequence"])
        assert message.payload == b"%d" % number
        (self.late if "feed-late" in stamps else self.got).append(number)


class Adapters(threading.Thread):
    """Writes both copies to `ingress`; `had` are the numbers that at least one has."""

    def __init__(self, bootstrap: str, topics: Topics) -> None:
        super().__init__()
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1})
        self._topics = topics
        self._random = random.Random(7)
        self._pause = threading.Event()
        self.had: set[int] = set()

    def run(self) -> None:
        for number in range(MESSAGES):
            for slot in Feed:
                if self._random.random() > 0.05:
                    self.had.add(number)
                    message = FeedMessage(STREAM, number, 0, number, 0, slot.name.lower(), b"%d" % number)
                    copy = ingress_copy("flight", slot, message, 0, PARTITIONS)
                    place = {"partition": copy.partition, "headers": copy.headers}
                    done = partial(self._instruct, copy) if number >= MESSAGES // 2 else None
                    self._producer.produce(self._topics.ingress, copy.value, copy.key, on_delivery=done, **place)
            if number % PAUSE_EVERY == 0:
                self._producer.poll(0)
                self._pause.wait(0.02)
        while self._producer.flush():
            pass

    def _instruct(self, copy: IngressCopy, error: object, record: Message) -> None:
        """As a router does that sends what it cannot judge to everyone."""
        assert error is None
        appended = record.timestamp()[1]
        instruction = Instruction(record.partition(), record.offset(), 0, 1, appended, EVERYONE).encode()
        headers = [*copy.headers, ("instr", instruction), ("router", b"active")]
        shard = shard_of("subscriber", SHARDS)
        self._producer.produce(self._topics.egress, copy.value, copy.key, partition=shard, headers=headers)


def test_a_gateway_that_is_killed_under_load_goes_on_with_the_same_stream(
    broker: LocalBroker, unique_prefix: str, tmp_path: Path
) -> None:
    """S3, S6, Q1; and no client publishes there (S2)."""
    topics = broker.topics(unique_prefix)
    feeds = {"WAYSTATION_FEEDS__NAMES": json.dumps(["flight"])}
    gateway = Gateway(tmp_path, broker.bootstrap, unique_prefix, **feeds)
    gateway.start()
    try:
        subscriber = Subscriber()
        subscriber.connect(gateway.port, is_new=True)
        forger = Client("forger").connect(gateway.port)
        forger.publish("feeds/flight/radar@0", b"forged", 1)
        forger.leave()
        adapters = Adapters(broker.bootstrap, topics)
        adapters.start()
        assert wait_until(lambda: len(subscriber.got) > MESSAGES // 4, PATIENCE_S)
        subscriber.leave()
        gateway.kill()
        gateway.start()
        subscriber.connect(gateway.port)
        adapters.join()
        assert wait_until(lambda: len(subscriber.got) + len(subscriber.late) >= len(adapters.had), PATIENCE_S)
        subscriber.leave()
        assert subscriber.got == sorted(set(subscriber.got))
        assert sorted(subscriber.got + subscriber.late) == sorted(adapters.had)
    finally:
        gateway.stop()
