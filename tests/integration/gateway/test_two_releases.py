"""Gateways of two releases in one site: shards move from the earlier to the later one and back, by moves and by kills,
while clients publish (R5, Q7, G8, G14; vernemq#2488)."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, TopicPartition

from harness.gateway_site import NAMES
from harness.processes import START_S
from jobs.stack.process import wait_until
from tests.draw import site_of_gateways
from tests.faithful_client import FaithfulClient, eventually
from tests.gateway_site import CuttableSite, SiteBroker
from tests.later_gateway import ARGV, LATER

A, B, C = NAMES
SHARDS: Final = 4
MOVED: Final = (0, 1)
READ_S: Final = 10.0

pytestmark = [site_of_gateways, pytest.mark.timeout(180)]


@pytest.fixture
def site(tmp_path: Path, of_site: SiteBroker, unique_prefix: str) -> Iterator[CuttableSite]:
    """The third gateway is of the later release."""
    with CuttableSite(tmp_path, of_site, unique_prefix, NAMES, shards=SHARDS) as site:
        site.gateways[C].argv = [*ARGV]
        site.start()
        site.all_have_standbys()
        yield site


def mqtt(site: CuttableSite, name: str) -> int:
    return site.gateways[name].mqtt


def test_shards_move_between_two_releases_and_nothing_is_lost_or_doubled(site: CuttableSite) -> None:
    async def live() -> None:
        receivers = [FaithfulClient(lambda: site.gateways[A].mqtt, f"receiver-{n}") for n in range(2 * SHARDS)]
        waiting = [FaithfulClient(lambda: site.gateways[B].mqtt, f"waiting-{n}") for n in range(SHARDS)]
        members = [FaithfulClient(partial(mqtt, site, name), f"member-{name}") for name in (A, B)]
        sender = FaithfulClient(lambda: site.gateways[B].mqtt, "sender")
        sent: list[bytes] = []

        def publish(count: int) -> None:
            for _ in range(count):
                sent.append(b"%d" % len(sent))
                sender.publish(f"t/{len(sent) % 3}", sent[-1], 2)

        async def move(to: str) -> None:
            publish(20)
            for shard in MOVED:
                if site.owner(shard).gateway_name != to:
                    await asyncio.to_thread(site.moved, shard, to)
            publish(20)
            await sender.published()

        try:
            for client in (sender, *receivers, *waiting, *members):
                await client.come()
            for client in (*receivers, *waiting):
                await client.subscribe("t/#", 2)
            for member in members:
                await member.subscribe("$share/group/t/#", 2)
            for client in waiting:  # what they get is spooled, and moves with its shard
                await client.leave(goodbye=True)
            for to in (C, B, C, A):
                await move(to)
            await move(C)
            site.gateways[C].strike()  # gateways of the earlier release take over
            publish(20)
            await asyncio.to_thread(site.all_served)
            await sender.published()
            for client in waiting:
                await client.come()
            publish(20)
            await sender.published()
            for client in (*receivers, *waiting):
                await eventually(lambda c=client: len(c.payloads) >= len(sent), f"{client.name} has all")  # type: ignore[misc]
            await eventually(lambda: sum(len(member.got) for member in members) >= len(sent), "the group has all")
            for client in (*receivers, *waiting):
                assert client.payloads == sent, f"{client.name}: lost, doubled or out of order"
            shared = Counter(payload for member in members for payload in member.payloads)
            assert shared == Counter(sent)
            for client in (sender, *receivers, *waiting, *members):
                assert not client.faults
                assert not client.lost_sessions
        finally:
            for client in (sender, *receivers, *waiting, *members):
                await client.leave()

    asyncio.run(live())
    for name in NAMES:
        log = site.gateways[name].log()
        for trouble in ("record quarantined", "shards cannot start here", "ended by themselves", "rror"):
            assert trouble not in log, f"{name}: {trouble}\n{log[-4_000:]}"
    assert "records between gateways are written in another version" in site.gateways[C].log()
    told = site.topics
    for topic in (told.members, told.leases, told.sessions, told.spool, told.ingress):
        assert LATER.encode() in read(site, topic), f"the later gateway has added nothing to {topic}"
    _two_releases_apart(site)


def _two_releases_apart(site: CuttableSite) -> None:
    """The gateway that comes last ends, and says why; the others serve on."""
    late = site.gateways[C]
    late.kill()
    late.argv += ["2"]
    late.launch()
    late.is_up = False
    assert wait_until(late.ended, START_S), "it runs beside gateways that it cannot share records with"
    assert "update a site by one release at a time" in late.log()
    site.all_served()


def read(site: CuttableSite, topic: str) -> bytes:
    """All values and headers on a topic."""
    consumer = Consumer({"bootstrap.servers": site.bootstrap, "group.id": "none", "enable.auto.commit": False})
    found: list[bytes] = []
    try:
        known = consumer.list_topics(topic, READ_S).topics[topic].partitions
        for partition in known:
            at = TopicPartition(topic, partition, 0)
            _, end = consumer.get_watermark_offsets(at, READ_S)
            consumer.assign([at])
            position = 0
            while position < end:
                record: Any = consumer.poll(READ_S)
                assert record is not None
                position = record.offset() + 1
                found += [record.value() or b"", *(value or b"" for _, value in record.headers() or ())]
    finally:
        consumer.close()
    return b"\n".join(found)
