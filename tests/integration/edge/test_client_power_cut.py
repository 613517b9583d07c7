"""The client's store over power cuts: what was not synced is gone, what was accepted is there (M2)."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from edge.link import Address
from edge.mqtt_client import MqttClient
from mqtt.packets import Connect, Publish
from tests import draw
from tests.disk import Disk, mounted, needs_disk
from tests.faithful_client import eventually
from tests.integration.edge.publisher_process import cut_off_after
from tests.mosquitto import HOST, Mosquitto
from waystation import Client


@needs_disk
@pytest.mark.parametrize("version", ["3.1.1", "5.0"])
def test_the_power_fails_again_and_again(tmp_path: Path, version: str) -> None:
    """Nothing that was accepted is missing; at QoS 2 nothing comes twice."""
    got: list[Publish] = []
    choice = draw.generator("power cuts")

    async def run(disk: Disk, port: int) -> None:
        point, store = f"mqtt://{HOST}:{port}", disk.directory / "outbox"
        reader = MqttClient(Address(HOST, port), Connect("reader", 5), on_message=got.append)
        await reader.connect()
        await reader.subscribe("n", qos=2)
        accepted: list[int] = []
        for _ in range(draw.times(4, 40)):
            accepted += await cut_off_after(choice.uniform(0.0, 0.4), disk.cut, point, version, str(store))
            disk.unmount()
            disk.mount()
        assert accepted
        async with Client(client_id="publisher", connect_points=[point], store=store, mqtt_version=version) as last:
            await last.drained()
            everything = range(1, last._outbox.last_sequence + 1)
        await eventually(lambda: {int(m.payload) for m in got} >= set(accepted), "everything arrives")
        await reader.disconnect()
        counts = Counter(int(message.payload) for message in got)
        assert set(counts) <= set(everything)
        repeated = [number for number in accepted if number % 2 and counts[number] != 1]
        assert not repeated, "twice at QoS 2"

    settings = "allow_anonymous true", "max_queued_messages 0"
    with mounted(tmp_path) as disk, Mosquitto(tmp_path, *settings) as broker:
        asyncio.run(asyncio.wait_for(run(disk, broker.port), 120))
