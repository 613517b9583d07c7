"""How many retained messages there may be, how large, and for how long (R9; MQTT 5.0, 3.3.2.3.3)."""

from pathlib import Path

import pytest

from mqtt.codes import ReasonCode
from tests.unit.gateway.shard.home_harness import HomeHarness, turn
from tests.unit.gateway.shard.virtual_time import run


def test_retained_messages_are_limited(tmp_path: Path) -> None:
    """0x97 for one more topic; replacing and deleting go on."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path, retained_messages=1).start()
        sender = await harness.client("sender")
        sender.publish("a", b"1", 1, retain=True)
        await turn()
        sender.publish("b", b"2", 2, retain=True)
        sender.publish("a", b"3", 2, retain=True)
        await turn()
        assert sender.refused == [ReasonCode.QUOTA_EXCEEDED]
        assert sender.acknowledged == {b"1", b"3"}
        sender.publish("a", b"", 1, retain=True)
        await turn()
        sender.publish("b", b"4", 2, retain=True)
        await turn()
        assert b"4" in sender.acknowledged

    run(scenario())


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("replaces", [True, False])
def test_bytes_of_retained_messages_are_limited_with_their_properties(tmp_path: Path, replaces: bool, qos: int) -> None:
    """R9: no sender can have more kept than the limit says, in whatever part of its messages it is."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path, retained_bytes=20_000).start()
        sender = await harness.client("sender")
        for number in range(10):
            sender.publish(f"r/{number}", b"small", 1, retain=True)
        await turn()
        large = {"user_property": [("name", "x" * 5_000)]}
        for number in range(10):
            sender.publish(f"r/{number}" if replaces else f"s/{number}", b"large", qos, retain=True, properties=large)
        await turn()
        assert sender.refused == [ReasonCode.QUOTA_EXCEEDED] * 7
        assert harness.node.retained.size_bytes <= 20_000
        sender.publish("r/0", b"", qos, retain=True)
        await turn()
        assert b"" in sender.acknowledged

    run(scenario())


@pytest.mark.parametrize("restarts", [False, True])
def test_an_expired_message_is_retained_no_more(tmp_path: Path, restarts: bool) -> None:
    """MQTT 5.0, 3.3.2.3.3: it makes room for others, and `retained` has it no more, also if it expires while the
    gateway is away. One that replaced it stays."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path, retained_messages=4).start()
        senders = [await harness.client(f"sender-{number}") for number in range(4)]  # of both shards
        for number, sender in enumerate(senders):
            sender.publish(f"r/{number}", b"old", 1, retain=True, properties={"message_expiry_interval": 60})
        await turn(1)
        senders[0].publish("r/0", b"stays", 1, retain=True)
        senders[1].publish("r/1", b"longer", 1, retain=True, properties={"message_expiry_interval": 600})
        if restarts:
            await turn(1)
            harness.crash()
        await turn(70)
        if restarts:
            await harness.restart()
            await turn(5)
        assert sorted(m.payload for m in await harness.node.retained.listed("", "", 9)) == [b"longer", b"stays"]
        client = await harness.client("late")
        for number in range(2):
            client.publish(f"s/{number}", b"new", 1, retain=True)
        await turn(1)
        assert client.acknowledged == {b"new"}
        assert not client.refused
        harness.broker.compact(harness.topics.retained, 0)
        left = [r for r in harness.broker.partitions[harness.topics.retained, 0] if not r.is_removed]
        assert sorted(r.key() or b"" for r in left) == [b"r/0", b"r/1", b"s/0", b"s/1"]

    run(scenario())


def test_a_message_published_just_when_an_earlier_one_expires_stays(tmp_path: Path) -> None:
    """Whatever of the two Kafka stores first."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        for number in range(20):
            lifetime = {"message_expiry_interval": 10}
            sender.publish(f"r/{number}", b"old", 1, retain=True, properties=lifetime)
        await turn(9.5)
        harness.bus.held_stores = {harness.topics.retained}
        for number in range(20):
            sender.publish(f"r/{number}", b"new", 1, retain=True)
            await turn(0.1)
        harness.bus.held_stores = set()
        harness.bus.release()
        await turn(10)
        assert [m.payload for m in await harness.node.retained.listed("", "", 99)] == [b"new"] * 20

    run(scenario())
