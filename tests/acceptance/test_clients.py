"""Unmodified clients through the whole platform: mosquitto's, paho over TCP and WebSocket, 3.1.1 and 5."""

import shutil
import subprocess
import uuid

import paho.mqtt.client as mqtt
import pytest

from tests import draw
from tests.acceptance.stack import LEDGER_S, Client, Load, Stack
from tests.waiting import wait_for

needs_mosquitto = pytest.mark.skipif(
    shutil.which("mosquitto_pub") is None, reason="mosquitto-clients are not installed"
)

FRESH_TOPICS = draw.times(300, 1000)
SUBSCRIPTIONS_A_SESSION = 150


def mosquitto(stack: Stack, program: str, *arguments: str) -> list[str]:
    return [program, "-h", "127.0.0.1", "-p", str(stack.mqtt_port), *arguments]


@needs_mosquitto
@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
def test_mosquitto_clients(stack: Stack, version: str) -> None:
    """G11: mosquitto_sub gets what mosquitto_pub sends, at each QoS; a persistent session gets what it missed."""
    run = uuid.uuid4().hex[:8]
    session = ["-i", f"mosquitto-{run}", "-t", f"m/{run}/#", "-q", "2", "-V", version, "-v"]
    session += ["-c", "-x", "600"] if version == "mqttv5" else ["-c"]
    subprocess.run([*mosquitto(stack, "mosquitto_sub"), *session, "-E"], check=True, timeout=30)
    for qos in "012":
        publish = ["-t", f"m/{run}/{qos}", "-m", f"at {qos}", "-q", qos, "-V", version]
        subprocess.run([*mosquitto(stack, "mosquitto_pub"), *publish], check=True, timeout=30)
    got = subprocess.run(
        [*mosquitto(stack, "mosquitto_sub"), *session, "-C", "2", "-W", "30"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert sorted(got.stdout.splitlines()) == [f"m/{run}/1 at 1", f"m/{run}/2 at 2"], (
        "QoS 0 is not kept for an absent client"
    )


@pytest.mark.parametrize("version", [mqtt.MQTTv311, mqtt.MQTTv5], ids=["3.1.1", "5"])
def test_websocket_and_tcp_meet(stack: Stack, version: int) -> None:
    """G11: a client over WebSocket and one over TCP talk to each other; `@client` reaches one client directly (R6)."""
    run = uuid.uuid4().hex[:8]
    web = Client(stack, f"web-{run}", version, "websockets").connect()
    tcp = Client(stack, f"tcp-{run}", version).connect()
    web.subscribe(f"w/{run}", 1)
    tcp.publish(f"w/{run}", 1)
    web.publish(f"@tcp-{run}", 2)
    wait_for(lambda: len(web.received) == 1 and len(tcp.received) == 1, "both messages")
    web.disconnect()
    tcp.disconnect()


@pytest.mark.timeout(240)
def test_subscribe_then_publish_at_once(stack: Stack) -> None:
    """R6: whoever has a SUBACK misses nothing: fresh topics, each published to right after its SUBACK; each message
    arrives once."""
    run = uuid.uuid4().hex[:8]
    publisher = Client(stack, f"fresh-pub-{run}").connect()
    subscribers = [
        Client(stack, f"fresh-sub-{run}-{n}").connect() for n in range(FRESH_TOPICS // SUBSCRIPTIONS_A_SESSION)
    ]
    for number in range(FRESH_TOPICS):
        topic = f"{run}-{number}/fresh"
        subscribers[number % len(subscribers)].subscribe(topic, 1)
        publisher.publish(topic, 1)
    wait_for(lambda: sum(len(s.received) for s in subscribers) == FRESH_TOPICS, "every message", 60)
    assert all(count == 1 for s in subscribers for count in s.received.values())
    for client in (publisher, *subscribers):
        client.disconnect()


@pytest.mark.timeout(300)
@draw.long_test
def test_a_route_takes_effect_in_the_middle_of_a_stream(stack: Stack) -> None:
    """R6, R8: nothing is lost, doubled or overtaken when instructions take over from the home itself."""
    run = uuid.uuid4().hex[:8]
    source = f"mid-pub-{run}"
    publisher = Client(stack, source).connect()
    subscriber = Client(stack, f"mid-sub-{run}").connect()
    routed = (
        "SELECT count(*) FROM instructions i JOIN messages m ON m.id = i.message_id "
        f"WHERE m.source = '{source}' AND i.scope = 'routed'"
    )
    with Load(lambda n: publisher.publish(f"mid-{run}/{n % 5}/x", 1), 50):
        subscriber.subscribe(f"mid-{run}/#", 1)
        first = len(publisher.sent)
        wait_for(lambda: int(stack.query(routed)[0][0]) > 0, "instructions by the route, under way", 180)
    wait_for(lambda: publisher.is_acknowledged, "every PUBACK")
    after = publisher.sent[first:]
    wait_for(lambda: all(payload in subscriber.received for payload in after), "every message since SUBACK")
    assert max(subscriber.received.values()) == 1
    numbers = subscriber.order[source]
    assert numbers == sorted(numbers)
    publisher.disconnect()
    subscriber.disconnect()


@draw.long_test
def test_every_message_has_its_journey(stack: Stack) -> None:
    """R2, R4, R12: what happened to a message, and who came and went, can be asked for in SQL and on the shell."""
    run = uuid.uuid4().hex[:8]
    receiver = Client(stack, f"journey-{run}").connect()
    sender = Client(stack, f"sender-{run}").connect()
    sender.publish(f"@journey-{run}", 1)
    wait_for(lambda: len(receiver.received) == 1, "the message")
    steps = f"SELECT step FROM message_journey j JOIN messages m ON m.id = j.message_id WHERE m.source = 'sender-{run}'"
    expected = {"accepted", "appended", "routed", "delivered", "completed"}
    wait_for(lambda: {step for (step,) in stack.query(steps)} == expected, "the whole journey in the ledger", LEDGER_S)
    message_id = stack.query(f"SELECT id FROM messages WHERE source = 'sender-{run}'")[0][0]
    assert f"journey-{run}" in stack.waystation("journey", message_id).stdout
    receiver.disconnect()
    sender.disconnect()
    events = f"SELECT event FROM presence_history WHERE client = 'journey-{run}' ORDER BY seq"
    wait_for(
        lambda: [e for (e,) in stack.query(events)] == ["connected", "disconnected"], "presence in the ledger", LEDGER_S
    )


def test_a_broadcast_that_nobody_wants_completes(stack: Stack) -> None:
    """R7: it completes at once, without a delivery."""
    run = uuid.uuid4().hex[:8]
    sender = Client(stack, f"lonely-{run}").connect()
    sender.publish(f"nobody/{run}", 1)
    done = f"SELECT c.touches FROM completions c JOIN messages m ON m.id = c.message_id WHERE m.source = 'lonely-{run}'"
    wait_for(lambda: len(stack.query(done)) == 1, "its completion", LEDGER_S)
    sender.disconnect()
