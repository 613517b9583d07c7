"""Receipts through the whole platform: the sender learns what has become of its message (Q13)."""

import asyncio
import json
import urllib.error
import urllib.request
import uuid
from threading import Event, Lock
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

import waystation
from tests.acceptance.stack import Stack
from tests.paho_client import Paho
from tests.waiting import wait_for

WAIT_S = 60


class Client:
    """A paho client (MQTT 5) and what it gets."""

    def __init__(self, stack: Stack, name: str, *filters: str) -> None:
        self.name = name
        self.got: list[mqtt.MQTTMessage] = []
        self._lock = Lock()
        ready = Event()
        self.paho = Paho(mqtt.CallbackAPIVersion.VERSION2, client_id=name, protocol=mqtt.MQTTv5)
        self.paho.on_message = self._on_message
        self.paho.on_connect = lambda *_: ready.set()
        self.paho.on_subscribe = lambda *_: ready.set()
        self.paho.connect("127.0.0.1", stack.mqtt_port)
        self.paho.loop_start()
        assert ready.wait(WAIT_S), "no CONNACK"
        for topic_filter in filters:
            ready.clear()
            self.paho.subscribe(topic_filter, qos=1)
            assert ready.wait(WAIT_S), "no SUBACK"

    def _on_message(self, _client: object, _data: object, message: mqtt.MQTTMessage) -> None:
        with self._lock:
            self.got.append(message)

    def publish(self, topic: str, receipt: str, qos: int = 1) -> None:
        """Its correlation data is the topic and the receipt asked for."""
        properties = Properties(PacketTypes.PUBLISH)
        properties.UserProperty = ("receipt", receipt)
        properties.CorrelationData = f"{topic} {receipt}".encode()
        self.paho.publish(topic, b"hello", qos, properties=properties).wait_for_publish(WAIT_S)

    def receipts(self) -> dict[str, dict[str, Any]]:
        """By correlation data; each is there once."""
        with self._lock:
            found = [message for message in self.got if message.topic == f"@{self.name}"]
        told: dict[str, dict[str, Any]] = {}
        for message in found:
            assert message.properties is not None
            of, receipt = message.properties.CorrelationData.decode(), json.loads(message.payload)
            assert message.properties.UserProperty == [("waystation-receipt", receipt["receipt"])]
            assert message.properties.ContentType == "application/json"
            assert of not in told
            told[of] = receipt
        return told

    def leave(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()


def test_the_sender_learns_who_has_got_its_message(stack: Stack) -> None:
    """By PUBACK of two recipients, at QoS 0 and at QoS 2; or that nobody wants it, which routers say."""
    run = uuid.uuid4().hex[:8]
    here, nowhere = f"receipts/{run}", f"nowhere-{run}/x"
    sender = Client(stack, f"sender-{run}")
    receivers = [Client(stack, f"receiver-{number}-{run}", here) for number in range(2)]
    for qos, kind in ((1, "completed"), (2, "delivered"), (1, "failed")):
        sender.publish(here, kind, qos)
    for kind in ("completed", "delivered", "failed"):
        sender.publish(nowhere, kind)
    expected = {
        f"{here} completed",
        f"{here} delivered",
        *(f"{nowhere} {k}" for k in ("completed", "delivered", "failed")),
    }
    wait_for(lambda: sender.receipts().keys() >= expected, f"receipts, not only {list(sender.receipts())}", WAIT_S)
    sender.publish(f"@{receivers[0].name}", "completed", 0)
    direct = f"@{receivers[0].name} completed"
    wait_for(lambda: direct in sender.receipts(), "the receipt of a direct message", WAIT_S)
    told = sender.receipts()
    assert told.keys() == expected | {direct}
    assert told[f"{here} completed"]["outcomes"] == {"delivered": 2}
    assert told[f"{here} completed"]["complete"]
    assert told[f"{here} delivered"]["recipients"] in (1, 2)
    assert told[direct]["outcomes"] == {"sent": 1}
    assert all(told[f"{nowhere} {kind}"]["outcomes"] == {} for kind in ("completed", "delivered", "failed"))
    ids = {one["message_id"] for one in told.values()}
    assert len(ids) == len(told)
    for client in (sender, *receivers):
        client.leave()


def test_the_sender_learns_that_its_message_is_read(stack: Stack) -> None:
    """Not before the recipient says so, and not from somebody else."""
    run = uuid.uuid4().hex[:8]
    topic = f"read/{run}"
    sender, reader, stranger = (Client(stack, f"{name}-{run}", topic) for name in ("sender", "reader", "stranger"))
    sender.publish(f"@{reader.name}", "read")
    wait_for(lambda: len(reader.got) == 1, "the message", WAIT_S)
    assert reader.got[0].properties is not None
    (_, message_id) = reader.got[0].properties.UserProperty[-1]
    stranger.paho.publish(f"$read/{message_id}", b"", 1).wait_for_publish(WAIT_S)
    stranger.publish(topic, "completed")
    wait_for(lambda: bool(stranger.receipts()), "a later receipt", WAIT_S)
    assert not sender.receipts()
    reader.paho.publish(f"$read/{message_id}", b"", 1).wait_for_publish(WAIT_S)
    wait_for(lambda: bool(sender.receipts()), "the receipt", WAIT_S)
    [receipt] = sender.receipts().values()
    assert (receipt["message_id"], receipt["recipients"], receipt["read"]) == (message_id, 1, 1)
    for client in (sender, reader, stranger):
        client.leave()


def test_requests_end_as_soon_as_the_platform_knows_more(stack: Stack) -> None:
    """R6: with the last reply of all receivers, or when there is none."""
    run = uuid.uuid4().hex[:8]
    topic = f"questions/{run}"

    async def ask() -> None:
        def client(name: str) -> waystation.Client:
            return waystation.Client(
                client_id=f"{name}-{run}", connect_points=[f"mqtt://127.0.0.1:{stack.mqtt_port}"]
            )  # fmt: skip

        async def answer(receiver: waystation.Client) -> None:
            async for question in receiver.messages():
                await receiver.reply(question, question.payload.upper())

        async with client("asker") as asker, client("one") as one, client("two") as two:
            answering = []
            for receiver in (one, two):
                await receiver.subscribe(topic)
                answering.append(asyncio.create_task(answer(receiver)))
            replies = [reply.payload async for reply in asker.request_all(topic, "hello", timeout_s=600)]
            assert replies == [b"HELLO", b"HELLO"]
            with pytest.raises(waystation.NotReceived):
                await asker.request(f"nowhere-{run}", timeout_s=600)
            asked = await asyncio.to_thread(stack.waystation, "request", topic, "hello", "--all", "--timeout", "200")
            assert asked.stdout == "HELLO\nHELLO\n"
            for task in answering:
                task.cancel()

    asyncio.run(ask())
    in_vain = stack.waystation("request", f"nowhere-{run}", "hello", "--timeout", "200", check=False)
    assert (in_vain.returncode, in_vain.stdout) == (1, "")
    assert "nobody has got the request" in in_vain.stderr
    url = f"http://{stack.state.listeners['http']}/v1/requests/nowhere-{run}?timeout=300"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(url, b"hello", timeout=300)
    assert json.load(refused.value)["reason"] == "not_received"


def test_a_sender_that_was_away_finds_its_receipt(stack: Stack) -> None:
    """Its session keeps it, like any message to its inbox."""
    run = uuid.uuid4().hex[:8]
    topic, name = f"late-receipts/{run}", f"late-{run}"
    receiver = Client(stack, f"receiver-{run}", topic)
    connect = Properties(PacketTypes.CONNECT)
    connect.SessionExpiryInterval = 3600
    found: list[mqtt.MQTTMessage] = []
    sender = Paho(mqtt.CallbackAPIVersion.VERSION2, client_id=name, protocol=mqtt.MQTTv5)
    sender.on_message = lambda _client, _data, message: found.append(message)
    sender.connect("127.0.0.1", stack.mqtt_port, clean_start=True, properties=connect)
    sender.loop_start()
    properties = Properties(PacketTypes.PUBLISH)
    properties.UserProperty = ("receipt", "completed")
    sender.publish(topic, b"hello", 1, properties=properties).wait_for_publish(WAIT_S)
    sender.disconnect()
    sender.loop_stop()
    wait_for(lambda: bool(receiver.got), "the message", WAIT_S)
    witness = Client(stack, f"witness-{run}")
    witness.publish(topic, "completed")  # behind it, so its receipt comes no earlier
    wait_for(lambda: bool(witness.receipts()), "a later receipt", WAIT_S)
    sender.connect("127.0.0.1", stack.mqtt_port, clean_start=False, properties=connect)
    sender.loop_start()
    wait_for(lambda: len(found) == 1, "the receipt", WAIT_S)
    assert json.loads(found[0].payload)["recipients"] == 1
    sender.disconnect()
    sender.loop_stop()
    receiver.leave()
    witness.leave()
