"""A subscriber that is sent a bundle's message as a retained one does not get a copy that comes later (M14)."""

import asyncio
from pathlib import Path

import pytest

from gateway.memory_bus import MemoryRecord
from gateway.shard import subscribing
from gateway.shard.rules import EVERYTHING
from mqtt.packets import Publish, Subscription
from mqtt.properties import NO_PROPERTIES
from schemas.envelope import BundleMark, Meta, ingress_headers
from schemas.identity import partition_of
from tests.unit.gateway.shard.home_harness import LEAD_S, PARTITIONS, HomeHarness, turn
from tests.unit.gateway.shard.test_home_bundles import ORIGINATOR, Nobody
from tests.unit.gateway.shard.virtual_time import run

LIFETIME_S = 300


def id_of(number: int) -> str:
    return f"{number:08x}-0000-8000-8000-000000000000"


def retain(harness: HomeHarness, number: int) -> None:
    """The gateway takes a bundle whose message is to be retained as `r/<number>`."""
    lifetime = {"message_expiry_interval": LIFETIME_S}
    packet = Publish(f"r/{number}", b"%d" % number, 1, retain=True, packet_id=1, properties=lifetime)
    publisher = harness.home.bundle_publisher(ORIGINATOR, Nobody(), EVERYTHING)
    publisher.publish(packet, id_of(number), BundleMark(7, number + 1, 1))


def copy(harness: HomeHarness, number: int) -> None:
    """Another gateway puts a copy of it on `ingress`."""
    expires = int((harness.clock() + LIFETIME_S) * 1000)
    meta = Meta(1, "", expires, int(harness.clock() * 1e6), None, None, BundleMark(7, number + 1, 1))
    place = harness.topics.ingress, partition_of(ORIGINATOR, PARTITIONS)
    headers = ingress_headers(id_of(number), ORIGINATOR, meta, NO_PROPERTIES)
    harness.broker.append(MemoryRecord(place, b"r/%d" % number, b"%d" % number, headers))


@pytest.mark.parametrize("ends", ["", "killed", "stopped"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_copy_comes_long_after_the_retained_message(tmp_path: Path, qos: int, ends: str) -> None:
    """Whatever becomes of the gateway in between; who was not sent the retained message gets the copy."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        retain(harness, 0)
        await turn(LEAD_S + 1)
        client = await harness.client("client", expiry_s=1_000_000)
        await client.subscribe(Subscription("r/+", qos))
        await turn(1)
        assert client.payloads == [b"0"]
        other = await harness.client("other", expiry_s=1_000_000)
        await other.subscribe(Subscription("r/+", 1, retain_handling=2))
        await asyncio.sleep(100)  # the session expects live copies of retained messages for 30 s
        if ends == "killed":
            await harness.restart()
        elif ends == "stopped":
            await harness.stop()
            await harness.start()
        if ends:
            await client.connect()
            await other.connect()
        copy(harness, 0)
        await turn(LEAD_S + 5)
        assert client.payloads == [b"0"]
        assert other.payloads == [b"0"]

    run(scenario())


def test_what_a_session_remembers_of_bundles_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound it forgets the first one; and all of them once no copies come any more."""
    monkeypatch.setattr(subscribing, "RETAINED_BUNDLES", 3)

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        for number in range(5):
            retain(harness, number)
        await turn(LEAD_S + 1)
        client = await harness.client("client", expiry_s=1_000_000)
        await client.subscribe(Subscription("r/+", 1))
        await turn(1)
        session = harness.home.session("client")
        assert session is not None
        sent = [id_of(int(payload)) for payload in client.payloads]
        assert list(session.retained_bundles) == sent[-3:]
        await asyncio.sleep(LIFETIME_S + 60)
        await client.subscribe(Subscription("other", 1))
        assert not session.retained_bundles

    run(scenario())
