"""How much memory the retained messages that a client asks for may take (M2)."""

from pathlib import Path

import pytest

from edge.agent.mqtt.store import MqttStore
from mqtt.packets import Puback, Publish, Suback, Subscribe, Subscription
from tests.unit.edge.agent.mqtt.mqtt_harness import broker, complete

MANY = 200


@pytest.mark.parametrize("is_one_packet", [True, False], ids=["filters", "packets"])
def test_a_client_that_asks_for_retained_messages_again_and_again(tmp_path: Path, is_one_packet: bool) -> None:
    """At QoS 0 they are in memory until they are written. A client may name a filter as often as a packet holds, and
    send many packets at once: it gets what fits, the others are counted, and each filter has its answer."""

    async def run() -> None:
        async with broker(tmp_path, retained_bytes=10_000) as agent:
            one = await agent.client("one")
            one.publish("local/a", bytes(5_000), 1, retain=True)
            await one.next(Puback)
            wanted = [Subscription("local/#", 0)] * MANY
            packets = [Subscribe(1, wanted)] if is_one_packet else [Subscribe(1, [each]) for each in wanted]
            one.send(*packets)
            for packet in packets:
                assert (await one.next(Suback)).reason_codes == [0] * len(packet.filters)
            await agent.changes.make(lambda store: None)
            got = [packet for packet in one._received if isinstance(packet, Publish)]
            assert 2 <= len(got) < 10
            status = await agent.changes.make(MqttStore.status)
            assert len(got) + status["dropped_at_qos_0"] == MANY
            one._received.clear()
            await one.subscribe("local/+", qos=0)
            assert (await one.next(Publish)).payload == bytes(5_000)

    complete(run())
