"""The client's store over power cuts: what was not synced is gone, what was accepted is there (M2).

The store is on a file system of its own, ext4 in a file. A cut is its shutdown without writing anything back
(`EXT4_IOC_SHUTDOWN` with EXT4_GOING_FLAGS_NOLOGFLUSH): what a disk has when the power fails.
"""

import asyncio
import fcntl
import os
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.link import Address
from edge.mqtt_client import MqttClient
from mqtt.packets import Connect, Publish
from tests import draw
from tests.faithful_client import eventually
from tests.integration.edge.publisher_process import cut_off_after
from tests.mosquitto import HOST, Mosquitto
from waystation import Client

SHUTDOWN = 0x8004587D
WITHOUT_LOG = 2
SIZE = 64 << 20

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or not Path("/dev/loop-control").exists(),
    reason="only root of Linux can mount a file system in a file, and containers often cannot",
)


class Disk:
    """A file system in a file, mounted on a directory."""

    def __init__(self, directory: Path) -> None:
        self._image = directory / "disk.ext4"
        self.directory = directory / "disk"
        self.directory.mkdir()
        with self._image.open("wb") as image:
            image.truncate(SIZE)
        subprocess.run(["mkfs.ext4", "-q", "-F", str(self._image)], check=True)
        self.mount()

    def mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", str(self._image), str(self.directory)], check=True)

    def unmount(self) -> None:
        subprocess.run(["umount", str(self.directory)], check=True)

    def cut(self) -> None:
        """The power fails: nothing more is written."""
        root = os.open(self.directory, os.O_RDONLY)
        try:
            fcntl.ioctl(root, SHUTDOWN, struct.pack("I", WITHOUT_LOG))
        finally:
            os.close(root)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path)
    yield disk
    disk.unmount()


@pytest.mark.parametrize("version", ["3.1.1", "5.0"])
def test_the_power_fails_again_and_again(disk: Disk, tmp_path: Path, version: str) -> None:
    """Nothing that was accepted is missing; at QoS 2 nothing comes twice."""
    got: list[Publish] = []
    choice = draw.generator("power cuts")

    async def run(port: int) -> None:
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

    with Mosquitto(tmp_path, "allow_anonymous true", "max_queued_messages 0") as broker:
        asyncio.run(asyncio.wait_for(run(broker.port), 120))
