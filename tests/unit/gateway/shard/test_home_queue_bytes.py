"""What counts for `limits.queue_bytes` and `unspooled_bytes`: topics and properties as well as payloads (R9)."""

from pathlib import Path

import pytest

from tests.unit.gateway.shard.home_harness import HomeHarness, turn
from tests.unit.gateway.shard.test_home_full_queues import dropped, meeting
from tests.unit.gateway.shard.virtual_time import run

MOST_BYTES, COUNT = 10_000, 40
PROPERTIES = {"user_property": [("key", "x" * 1_000)]}


async def publish(harness: HomeHarness, qos: int, pause_s: float = 0.0) -> None:
    for number in range(COUNT):
        harness.clients[0].publish("a", b"%d" % number, qos, properties=PROPERTIES)
        await turn(pause_s)
    await turn()


@pytest.mark.parametrize("qos", [0, 1])
def test_a_slow_client_does_not_fill_the_memory(tmp_path: Path, qos: int) -> None:
    async def scenario() -> None:
        harness, _, receiver = await meeting(tmp_path, queue_bytes=MOST_BYTES)
        assert receiver.link is not None
        receiver.link.writable = False
        await publish(harness, qos)
        assert 0 < receiver.attached.session.queued < 10
        await turn(20)
        assert len(dropped(harness, "receiver")) > COUNT - 10

    run(scenario())


def test_an_absent_client_does_not_fill_the_disk(tmp_path: Path) -> None:
    """The spool keeps how much it has over a restart."""

    async def scenario() -> None:
        harness, _, receiver = await meeting(tmp_path, queue_bytes=MOST_BYTES)
        receiver.lose()
        await publish(harness, 1, pause_s=1.0)
        waiting = receiver.attached.session.queued
        assert 0 < waiting < 10
        await harness.restart()
        await harness.clients[0].connect()
        await publish(harness, 1)
        session = harness.home.session("receiver")
        assert session is not None
        assert session.queued == waiting
        await receiver.connect()
        await turn(5)
        assert len(receiver.payloads) == waiting
        assert (receiver.attached.session.queued, receiver.attached.session.queued_bytes) == (0, 0)

    run(scenario())


def test_a_full_disk_does_not_fill_the_memory(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness, _, receiver = await meeting(tmp_path, unspooled_bytes=MOST_BYTES)
        receiver.lose()
        harness.spool.fill_disk()
        for _ in range(4):
            await publish(harness, 1, pause_s=1.0)
        assert harness.is_spool_full
        assert not harness.fatal

    run(scenario())
