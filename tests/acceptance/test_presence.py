"""Presence through the whole platform: who comes, goes and is lost is told; agents claim messages (R12, M9, M11)."""

import json
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from tests.acceptance.stack import Stack
from tests.paho_client import Paho
from tests.waiting import wait_for

WAIT_S = 60


class Watcher:
    """A paho client (MQTT 5) with a session that comes back by itself, and what it hears: (topic, whether it was a
    retained message, content)."""

    def __init__(self, stack: Stack, client_id: str, expiry_s: int = 0) -> None:
        self.heard: list[tuple[str, bool, dict[str, Any]]] = []
        self.answers: list[ReasonCode] = []
        self._lock = Lock()
        self._connected, self._subscribed = Event(), Event()
        self.paho = Paho(mqtt.CallbackAPIVersion.VERSION2, client_id=client_id, protocol=mqtt.MQTTv5)
        self.paho.reconnect_delay_set(1, 1)
        self.paho.on_connect = lambda *_: self._connected.set()
        self.paho.on_subscribe = lambda *_: self._subscribed.set()
        self.paho.on_publish = lambda _client, _data, _mid, reason, _properties: self.answers.append(reason)
        self.paho.on_message = self._on_message
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = expiry_s
        self.paho.connect("127.0.0.1", stack.mqtt_port, clean_start=expiry_s == 0, properties=properties)
        self.paho.loop_start()
        assert self._connected.wait(WAIT_S), "no CONNACK"

    def subscribe(self, topic_filter: str) -> "Watcher":
        self._subscribed.clear()
        self.paho.subscribe(topic_filter, qos=1)
        assert self._subscribed.wait(WAIT_S), "no SUBACK"
        return self

    def _on_message(self, _client: object, _data: object, message: mqtt.MQTTMessage) -> None:
        with self._lock:
            self.heard.append((message.topic, bool(message.retain), json.loads(message.payload)))

    def of(self, client: str, retained: bool = False) -> list[tuple[bool, str]]:
        """What it heard of a client: whether online, and why not."""
        with self._lock:
            found = [told for topic, is_old, told in self.heard if (topic, is_old) == (f"$presence/{client}", retained)]
        return [(told["online"], told["reason"]) for told in found]

    def expect(self, client: str, *told: tuple[bool, str]) -> None:
        wait_for(lambda: len(self.of(client)) >= len(told), f"{client} as {told}, not only {self.of(client)}", WAIT_S)
        assert self.of(client) == list(told)

    def leave(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()


def test_subscribers_see_who_comes_goes_and_is_lost(stack: Stack) -> None:
    """R12: through gateway, merge and router; who subscribes later finds those that are online; nobody else may say so,
    and a gateway that is killed takes its clients along."""
    run = uuid.uuid4().hex[:8]
    guest, stays = f"guest-{run}", f"stays-{run}"
    early = Watcher(stack, f"early-{run}", 3600).subscribe("$presence/#")
    first = Watcher(stack, guest)
    early.expect(guest, (True, ""))
    first.leave()
    early.expect(guest, (True, ""), (False, "normal_disconnection"))
    second = Watcher(stack, guest)
    early.expect(guest, (True, ""), (False, "normal_disconnection"), (True, ""))
    second.paho.break_off()
    gone = [(True, ""), (False, "normal_disconnection"), (True, ""), (False, "connection_lost")]
    early.expect(guest, *gone)

    resident = Watcher(stack, stays)
    early.expect(stays, (True, ""))
    late = Watcher(stack, f"late-{run}").subscribe("$presence/#")
    wait_for(lambda: late.of(stays, retained=True) == [(True, "")], "the retained message of who is online", WAIT_S)
    assert late.of(guest, retained=True) == [], "who is offline has none"

    resident.paho.publish(f"$presence/{stays}", json.dumps({"online": False, "reason": "forged"}), qos=1)
    wait_for(lambda: len(resident.answers) == 1, "an answer to the forgery", WAIT_S)
    assert resident.answers[0].is_failure

    resident.paho.loop_stop()  # it does not come back
    stack.kill("gateway")
    wait_for(lambda: len(early.of(stays)) == 2, "the loss with the gateway", WAIT_S)
    assert early.of(stays) == [(True, ""), (False, "gateway_lost")]
    assert early.of(guest) == gone
    resident.paho.break_off()
    for watcher in (early, late):
        watcher.leave()


def test_one_of_two_agents_may_deliver_and_delivered_wins(stack: Stack) -> None:
    """M9, M11, M12: over HTTP, judged by the ledger: at the same time one is granted; then nobody, for it is done."""
    message, agents = str(uuid.uuid4()), ("van-1", "van-2")
    address = f"http://{stack.state.listeners['http']}/v1/message-presence/{message}"
    at_us = int(time.time() * 1e6)

    def said(agent: str, event: str, **more: Any) -> Any:
        body = json.dumps({"event": event, "at_us": at_us, **more}).encode()
        headers = {"X-Client-Id": agent, "Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(address, body, headers), timeout=WAIT_S) as answer:
            return json.loads(answer.read() or b"null")

    with ThreadPoolExecutor(2) as pool:
        answers = dict(
            zip(agents, pool.map(lambda agent: claimed(lambda: said(agent, "claimed")), agents), strict=True)
        )
    granted = [agent for agent, answer in answers.items() if answer["granted"]]
    assert len(granted) == 1
    holder, (other,) = granted[0], set(agents) - set(granted)
    assert answers[other]["state"]["claim"]["agent"] == f"http:{holder}"
    assert claimed(lambda: said(holder, "claimed"))["granted"], "said again"
    assert said(other, "delivered", peer="depot") is None, "it had no claim; what is delivered is delivered"
    for agent in agents:
        answer = claimed(lambda agent=agent: said(agent, "claimed"))
        assert not answer["granted"]
        assert (answer["state"]["state"], answer["state"]["delivered_by"]) == ("delivered", f"http:{other}")
    with urllib.request.urlopen(address, timeout=WAIT_S) as answer:
        assert json.load(answer)["delivered_to"] == "depot"


def claimed(claim: Callable[[], Any]) -> Any:
    """The answer to a claim; asked again if the ledger was busy, which is safe."""
    answers: list[Any] = []

    def is_answered() -> bool:
        try:
            answers.append(claim())
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
            return False
        return True

    wait_for(is_answered, "a verdict on the claim", WAIT_S)
    return answers[0]
