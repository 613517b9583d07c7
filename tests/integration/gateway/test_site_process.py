"""What tests of several gateways stand on, with one: the ways that they cut, wrong clocks, and the router stand-in."""

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from harness.gateway_site import Site
from harness.lease_watch import LeaseWatch
from jobs.stack.process import wait_until
from jobs.stack.topics import admin_client, create_topics
from schemas.leases import Claim, Claimant, LeaseKey, LeaseValue, Standbys, encode_lease
from schemas.members import decode_heartbeat
from schemas.topics import DAY_MS, NO_GROUP, Topics
from tests.cuttable_proxy import Proxies
from tests.faithful_client import FaithfulClient, eventually
from tests.gateway_site import CuttableSite, SiteBroker, site_broker

NAME = "gateway-a"
QUIET_S = 1.0
AHEAD_S = 3600.0


@pytest.fixture(scope="module")
def of_site(tmp_path_factory: pytest.TempPathFactory, java_home: Path, jars: Path) -> Iterator[SiteBroker]:
    with site_broker(tmp_path_factory.mktemp("broker"), java_home) as broker:
        yield broker


@pytest.fixture
def site(tmp_path: Path, of_site: SiteBroker, unique_prefix: str) -> Iterator[CuttableSite]:
    with CuttableSite(tmp_path, of_site, unique_prefix, (NAME,), cluster=False, clocks={NAME: AHEAD_S}) as site:
        site.start()
        yield site


@pytest.mark.drawn("a site with one gateway", 1)
def test_what_is_published_while_kafka_is_out_of_reach_comes_once_it_is_back(site: CuttableSite) -> None:
    """Q1: nothing is acknowledged meanwhile; messages go through the router stand-in, to an inbox as well."""
    way = site.way_to_kafka(site.gateways[NAME])

    async def live() -> None:
        sender = await FaithfulClient(lambda: site.gateways[NAME].mqtt, "sender").come()
        receiver = await FaithfulClient(lambda: site.gateways[NAME].mqtt, "receiver").come()
        await receiver.subscribe("a/#", 2)
        sender.publish("a/1", b"before", 2)
        sender.publish("@receiver", b"to the inbox", 2)
        await eventually(lambda: set(receiver.payloads) == {b"before", b"to the inbox"}, "both")
        way.freeze()
        sender.publish("a/1", b"meanwhile", 2)
        await asyncio.sleep(QUIET_S)
        assert b"meanwhile" not in sender.acknowledged
        way.heal()
        await eventually(lambda: b"meanwhile" in receiver.payloads, "what was published meanwhile")
        await sender.published()
        assert sorted(receiver.payloads) == [b"before", b"meanwhile", b"to the inbox"]
        for client in (sender, receiver):
            assert not client.faults
            await client.leave(goodbye=True)

    asyncio.run(live())


@pytest.mark.drawn("a site with one gateway", 1)
def test_a_gateway_has_a_wrong_clock(site: CuttableSite) -> None:
    assert abs(_last_heartbeat_s(site) - time.time() - AHEAD_S) < AHEAD_S / 2


def _last_heartbeat_s(site: Site) -> float:
    """What the gateway's clock says, by its last heartbeat."""
    consumer = Consumer({"bootstrap.servers": site.bootstrap, "group.id": NO_GROUP, "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(site.topics.members, 0, 0)])
        record = consumer.poll(30)
        assert record is not None
        value = record.value()
        assert value is not None
        return decode_heartbeat(record.key(), value)[1].at_us / 1e6
    finally:
        consumer.close()


def test_ways_are_frozen_cut_and_healed_by_who_comes() -> None:
    """Frozen: nothing comes, and later all does. Cut: reset, and so is who comes anew. Others do not notice."""
    names: dict[int, str] = {}
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        free = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = free.getsockname()[1]
        free.close()
        proxies = stack.enter_context(Proxies())
        proxy = proxies.open(port, server.getsockname()[1], lambda peer: names.get(peer, ""))

        def come(name: str) -> socket.socket:
            client = stack.enter_context(socket.socket())
            client.bind(("127.0.0.1", 0))
            names[client.getsockname()[1]] = name
            client.connect(("127.0.0.1", port))
            client.settimeout(10)
            return client

        def meet(client: socket.socket, data: bytes) -> socket.socket:
            client.sendall(data)
            there = stack.enter_context(server.accept()[0])
            there.settimeout(10)
            assert there.recv(100) == data
            return there

        one, other = come("one"), come("other")
        one_there, other_there = meet(one, b"1"), meet(other, b"2")
        proxy.freeze("one")
        one.sendall(b"later")
        other.sendall(b"now")
        assert other_there.recv(100) == b"now"
        one_there.settimeout(0.2)
        with pytest.raises(TimeoutError):
            one_there.recv(100)
        one_there.settimeout(10)
        proxy.heal()
        assert one_there.recv(100) == b"later"
        proxy.cut("one")
        with pytest.raises(ConnectionResetError):
            one.recv(100)
        again = come("one")
        with pytest.raises(ConnectionResetError):
            again.recv(100)
        other_there.sendall(b"still")
        assert other.recv(100) == b"still"
        proxy.blip()
        with pytest.raises(ConnectionResetError):
            other.recv(100)
        proxy.heal()
        assert meet(come("one"), b"3")
        assert wait_until(lambda: proxy.connections == 1, 10)


def test_whoever_reads_the_leases_knows_the_owners(of_site: SiteBroker, unique_prefix: str) -> None:
    """G4: of two claims of an epoch the first counts; an owner serves once it has named its standbys."""
    topics, one, other = Topics(unique_prefix), Claimant("gateway-a", 1), Claimant("gateway-b", 2)
    create_topics(admin_client(of_site.bootstrap, {}), topics.declared(1, 2, DAY_MS))
    records: list[tuple[LeaseKey, LeaseValue]] = [
        (LeaseKey("c", 0, 1, one), Claim()),
        (LeaseKey("c", 0, 1, other), Claim()),
        (LeaseKey("s", 0, 1, one), Standbys(names=["gateway-b"])),
        (LeaseKey("c", 1, 4, other), Claim()),
    ]
    producer = Producer({"bootstrap.servers": of_site.bootstrap})
    producer.produce(topics.leases, b"anything", b"not a lease", 0)
    for key, value in records:
        producer.produce(topics.leases, encode_lease(value), key.encode(), 0)
    assert not producer.flush(30)
    with LeaseWatch(of_site.bootstrap, topics, 2) as watch:
        assert watch.wait(lambda leases: leases[1].owner == other, 30)
        assert watch.owners() == ["gateway-a", "gateway-b"]
        assert [(lease.is_fenced, lease.standbys) for lease in watch.leases()] == [(True, ("gateway-b",)), (False, ())]
        assert watch.owners_by_epoch() == {(0, 1): {one}, (1, 4): {other}}
        assert [change.epoch for change in watch.since(0)] == [1, 1, 1, 4]
