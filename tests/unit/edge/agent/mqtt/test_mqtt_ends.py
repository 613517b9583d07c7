"""How connections of the agent's MQTT listener end: whatever the reason, the session is left, and the will is due."""

from pathlib import Path

import pytest

from edge.agent.mqtt.store import MqttStore
from mqtt.packets import Connack, Connect, Disconnect, Publish, Subscribe, Subscription, Will
from tests.unit.edge.agent.mqtt.mqtt_harness import LASTS, Broker, Wire, broker, complete


async def expired(agent: Broker, one: Wire) -> list[tuple[str, int]]:
    """The sessions that end when those without a connection are too old; before, nothing is sent to `one`."""
    await one.none(agent)
    agent.clock.now_s += LASTS["session_expiry_interval"] + 1
    return await agent.changes.make(MqttStore.expire)


def test_an_answer_that_is_too_large_for_its_client_ends_all(tmp_path: Path) -> None:
    """3.1.2.11.4: SUBACK has a byte for each filter. The client's limit is smaller, so the connection ends."""

    async def run() -> None:
        async with broker(tmp_path) as agent:
            watcher = await agent.client("watcher")
            await watcher.subscribe("local/will", qos=0)
            small = {**LASTS, "maximum_packet_size": 40}
            one = await agent.client("one", will=Will("local/will", b"gone", 1), properties=small)
            one.send(Subscribe(1, [Subscription(f"local/{number}", 1) for number in range(60)]))
            await one.closed()
            assert (await watcher.next(Publish)).payload == b"gone"
            one.lose()
            assert agent.hub.connected == 1
            assert await expired(agent, watcher) == [("one", 0)]

    complete(run())


@pytest.mark.parametrize("version", [4, 5])
def test_a_client_that_sends_all_at_once(tmp_path: Path, version: int) -> None:
    """3.1.4.5: it need not wait for CONNACK. Its session ends with the connection, and takes no place."""

    async def run() -> None:
        async with broker(tmp_path, sessions=1) as agent:
            for number in range(3):
                one = agent.wire(version)
                hello = Publish("t", b"%d" % number, 1, packet_id=1)
                one.send(Connect(f"c{number}", version, True), hello, Disconnect())
                assert (await one.next(Connack)).reason_code == 0
                one.lose()
                while len(await agent.spool()) <= number:
                    pass
            assert agent.hub.connected == 0
            assert (await agent.changes.make(MqttStore.status))["sessions"] == 0

    complete(run())


def test_a_client_that_takes_no_connack(tmp_path: Path) -> None:
    """CONNACK is larger than its Maximum Packet Size: the session has no connection, and expires."""

    async def run() -> None:
        async with broker(tmp_path) as agent:
            one = agent.wire()
            one.send(Connect("one", 5, False, properties={**LASTS, "maximum_packet_size": 4}))
            await one.closed()
            one.lose()
            assert agent.hub.connected == 0
            assert await expired(agent, one) == [("one", 0)]

    complete(run())
