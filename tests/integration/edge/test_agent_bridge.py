"""A mosquitto broker that bridges to the agent's listener, at its defaults: it comes, stays, and takes messages both
ways (M16)."""

from pathlib import Path

import pytest

from edge.agent.agent import Agent
from edge.link import Address
from edge.mqtt_client import MqttClient
from mqtt.packets import Connect, Publish
from tests.faithful_client import eventually
from tests.mosquitto import HOST, PROGRAM, Mosquitto
from tests.unit.edge.agent.mqtt.mqtt_harness import complete
from tests.unit.edge.agent.mqtt.test_mqtt_agent import Program, with_listener

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="the broker mosquitto is not installed")

STATE = "$SYS/broker/connection/bridge/state"


@pytest.mark.parametrize("options", [(), ("bridge_protocol_version mqttv50",)], ids=["defaults", "5.0"])
def test_a_bridge_of_mosquitto_stays_and_takes_messages_both_ways(tmp_path: Path, options: tuple[str, ...]) -> None:
    """At its defaults it asks with level 0x84 first. Its state, which it tells by PUBLISH and by its will, is shown to
    clients here; there is no route for it."""

    async def run() -> None:
        async with Agent(with_listener(tmp_path / "a", routes={"out/#": "local", "in/#": "local"})) as agent:
            lines = ("connection town", f"address {HOST}:{agent.mqtt_port}", "remote_clientid bridge")
            topics = ("restart_timeout 1", "topic out/# out 1", "topic in/# in 1")
            with Mosquitto(tmp_path, "allow_anonymous true", *lines, *topics, *options) as site:
                there: list[Publish] = []
                client = MqttClient(Address(HOST, site.port), Connect("there", 5), on_message=there.append)
                await client.connect()
                await client.subscribe("in/#", qos=1)
                async with Program(agent.mqtt_port, "here") as here:
                    await here.client.subscribe("out/#", "$SYS/#", qos=1)
                    await eventually(lambda: STATE in {one.topic for one in here.got}, "the bridge is connected", 60)
                    for number in range(20):
                        await client.publish(f"out/{number}", b"out", 1)
                        await here.client.publish(f"in/{number}", b"in", 1)
                    await eventually(lambda: len(there) == 20, "all reaches the site", 60)
                    await eventually(lambda: len(here.got) == 21, "all reaches the agent", 60)
                    assert [one.topic for one in there] == [f"in/{number}" for number in range(20)]
                    assert [one.topic for one in here.got if one.topic != STATE] == [f"out/{n}" for n in range(20)]
                    assert [one.payload for one in here.got if one.topic == STATE] == [b"1"]
                await client.disconnect()

    complete(run())
