"""Heartbeats written and followed, over a bus in memory and in virtual time (G2, G14)."""

import asyncio
from collections import Counter

import msgspec
import pytest
from confluent_kafka import KafkaError
from msgspec import UNSET

from gateway.broker_clock import BrokerClock
from gateway.members.follower import MembersFollower
from gateway.members.heartbeats import HeartbeatWriter
from gateway.members.table import MemberTable
from gateway.memory_bus import MemoryBroker, MemoryBus, MemoryRecord
from schemas.events import Event, decode, encode
from schemas.members import (
    BEARERS,
    CONSOLE,
    MOST_STARTING,
    MOST_WARM,
    GatewayAddress,
    GatewayLoad,
    Heartbeat,
    decode_heartbeat,
)
from schemas.settings import process_settings
from tests.unit.gateway.members.heartbeat_records import heartbeat
from tests.unit.gateway.shard.virtual_time import EPOCH, run

CLUSTER = process_settings({"WAYSTATION_GATEWAY__CLUSTER__ZONE": "z"}).gateway.cluster
ADDRESSES = {"mqtt": GatewayAddress("a.test", 1883)}
TOPIC = "members"


class Site:
    """A broker, and gateways that only write heartbeats and follow those of all."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.broker = MemoryBroker(lambda: EPOCH + self.loop.time())

    def bus(self) -> MemoryBus:
        return MemoryBus(self.broker, self.loop)

    async def follow(self, bus: MemoryBus, limit: int = 10) -> tuple[MemberTable, Counter[str]]:
        table, counts = MemberTable(limit, CLUSTER.timeout_s), Counter[str]()
        await MembersFollower(bus, TOPIC, table, self.loop.time, counts, BrokerClock(lambda: 0.0)).start()
        return table, counts

    def writer(self, bus: MemoryBus, name: str, boot: int = 1) -> HeartbeatWriter:
        self.counts = Counter[str]()
        return HeartbeatWriter(
            bus,
            TOPIC,
            name,
            boot,
            CLUSTER,
            lambda: GatewayLoad(connections=4),
            lambda: EPOCH + self.loop.time(),
            self.counts,
        )

    def written(self) -> list[tuple[str, Heartbeat]]:
        records = self.broker.partitions[TOPIC, 0]
        return [decode_heartbeat(record.key(), record.value() or b"") for record in records]

    def append(self, key: bytes, value: bytes | None) -> None:
        self.broker.append(MemoryRecord((TOPIC, 0), key, value, None))

    def operational(self, table: MemberTable) -> list[str]:
        return [member.name for member in table.operational(self.loop.time())]


def test_a_gateway_says_what_it_does_and_is_listed_while_it_serves() -> None:
    async def scenario() -> None:
        site = Site()
        bus = site.bus()
        table, _ = await site.follow(bus)
        writer = site.writer(bus, "a")
        await asyncio.sleep(1)
        assert site.written() == [], "silent before it joins"
        writer.join()
        await asyncio.sleep(0.05)
        assert site.operational(table) == []
        writer.serve(ADDRESSES)
        await asyncio.sleep(0.05)
        assert site.operational(table) == ["a"], "at once, not with the next heartbeat"
        before = len(site.written())
        await asyncio.sleep(2)
        assert len(site.written()) - before == 10
        name, last = site.written()[-1]
        assert (name, last.boot, last.state, last.zone, last.reads) == ("a", 1, "up", "z", 1)
        assert (last.addresses, last.load) == (ADDRESSES, GatewayLoad(connections=4))
        writer.drain()
        await asyncio.sleep(0.05)
        assert site.operational(table) == []
        writer.leave()
        await asyncio.sleep(5)
        states = [record.state for _, record in site.written()]
        assert list(dict.fromkeys(states)) == ["joining", "up", "draining", "gone"]
        assert states.count("gone") == 1
        numbers = [record.seq for _, record in site.written()]
        assert numbers == list(range(len(numbers)))

    run(scenario())


def test_a_killed_gateway_is_off_the_list_in_time_and_its_successor_on_it() -> None:
    """G14: nothing of it has to be told to anybody."""

    async def scenario() -> None:
        site = Site()
        bus, other = site.bus(), site.bus()
        table, _ = await site.follow(bus)
        for name, of in (("a", bus), ("b", other)):
            writer = site.writer(of, name)
            writer.join()
            writer.serve(ADDRESSES)
        await asyncio.sleep(1)
        assert site.operational(table) == ["a", "b"]
        other.crash()
        await asyncio.sleep(CLUSTER.timeout_s - CLUSTER.heartbeat_s - 0.01)
        assert site.operational(table) == ["a", "b"]
        await asyncio.sleep(CLUSTER.heartbeat_s + 0.02)
        assert site.operational(table) == ["a"]
        successor = site.writer(site.bus(), "b", boot=2)
        successor.join()
        successor.serve(ADDRESSES)
        await asyncio.sleep(0.05)
        assert site.operational(table) == ["a", "b"]

    run(scenario())


def test_a_reader_that_starts_lists_who_lives_not_who_lived() -> None:
    """Also after compaction, and whatever the clocks of other machines show."""

    async def scenario() -> None:
        site = Site()
        site.append(b"dead", encode(heartbeat(at_us=4_000_000_000_000_000)))
        site.append(b"ended", encode(heartbeat(state="gone")))
        bus = site.bus()
        writer = site.writer(bus, "a")
        writer.join()
        writer.serve(ADDRESSES)
        await asyncio.sleep(1)
        site.broker.compact(TOPIC, 0)
        table, counts = await site.follow(site.bus())
        assert {member.name for member in table} == {"a", "dead", "ended"}
        assert site.operational(table) == []
        await asyncio.sleep(CLUSTER.heartbeat_s + 0.01)
        assert site.operational(table) == ["a"]
        assert counts["member_records_skipped"] == 0

    run(scenario())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b"{}"),
        (b"\xff", b"{}"),
        (b"x" * 256, encode(heartbeat())),
        (b"a", b""),
        (b"a", b"\xff\xfe"),
        (b"a", b"[" * 5_000),
        (b"a", b'{"v":1}'),
        (b"a", encode(heartbeat()).replace(b'"v":1', b'"v":2')),
        (b"a", encode(heartbeat()).replace(b'"up"', b'"gone mad"')),
        (b"a", encode(heartbeat()).replace(b'"port":1000', b'"port":70000')),
        (b"a", encode(heartbeat()).replace(b'"cpu":0.5', b'"cpu":1e999')),
        (b"a", encode(heartbeat()).replace(b'"connections":3', b'"connections":-3')),
        (b"a", encode(heartbeat()).replace(b'"boot":1', b'"boot":1e3000')),
        (b"a", encode(heartbeat(zone="z" * 9_000))),
        (b"a", encode(heartbeat(warm=[-1]))),
        (b"a", encode(heartbeat(warm=list(range(MOST_WARM + 1))))),
        (b"a", encode(heartbeat()).replace(b'"links":null', b'"links":{"address":"","port":1}')),
    ],
)
def test_a_record_that_is_not_valid_is_counted_and_skipped(key: bytes, value: bytes) -> None:
    async def scenario() -> None:
        site = Site()
        bus = site.bus()
        site.append(key, value)
        table, counts = await site.follow(bus)
        site.append(key, value)
        writer = site.writer(bus, "b")
        writer.join()
        writer.serve(ADDRESSES)
        await asyncio.sleep(0.05)
        assert site.operational(table) == ["b"]
        assert counts["member_records_skipped"] == 2

    run(scenario())


def test_a_later_version_may_say_more() -> None:
    async def scenario() -> None:
        site = Site()
        more = encode(heartbeat()).replace(b'"zone":', b'"shards":[1,2],"zone":').replace(b'"ws"', b'"quic"')
        table, counts = await site.follow(site.bus())
        site.append(b"a", more)
        site.append(b"b", encode(heartbeat()))
        site.append(b"b", None)
        await asyncio.sleep(0.05)
        assert (site.operational(table), counts["member_records_skipped"]) == (["a"], 0)

    run(scenario())


def test_of_more_warm_shards_than_a_heartbeat_names_each_is_named_in_turn() -> None:
    """Q9: a shard moves only to who has said that it is warm; also while some begin and cease to be."""

    async def scenario() -> None:
        site, warm = Site(), list(range(2 * MOST_WARM + 10))
        writer = HeartbeatWriter(
            site.bus(), TOPIC, "a", 1, CLUSTER, GatewayLoad, lambda: EPOCH, Counter[str](), lambda: warm
        )
        writer.join()
        await asyncio.sleep(3 * CLUSTER.heartbeat_s)
        named = [record.warm for _, record in site.written()]
        assert {shard for some in named[:3] for shard in some} == set(warm)
        del warm[:20]
        before = len(site.written())
        await asyncio.sleep(3 * CLUSTER.heartbeat_s)
        named = [record.warm for _, record in site.written()[before:]]
        assert {shard for some in named[:3] for shard in some} == set(warm)
        assert all(len(set(some)) == MOST_WARM for some in named)

    run(scenario())


def test_a_standby_says_what_is_warm_and_where_links_are_made() -> None:
    """Q7, Q9: no longer a list than readers accept; who does not know these fields reads the rest."""

    async def scenario() -> None:
        site, warm = Site(), [3, 5]
        writer = HeartbeatWriter(
            site.bus(), TOPIC, "a", 1, CLUSTER, GatewayLoad, lambda: EPOCH, Counter[str](), lambda: warm
        )
        writer.join(GatewayAddress("a.test", 7000))
        await asyncio.sleep(0.05)
        warm[:] = range(10_000, 10_000 + 2 * MOST_WARM)
        writer.serve(ADDRESSES)
        await asyncio.sleep(0.05)
        (_, first), (_, second) = site.written()
        assert (first.warm, first.links) == ([3, 5], GatewayAddress("a.test", 7000))
        assert second.warm == warm[:MOST_WARM]
        older = msgspec.json.decode(encode(first), type=OlderHeartbeat)
        assert (older.boot, older.state) == (1, "joining")

    run(scenario())


class OlderHeartbeat(Event, frozen=True, kw_only=True):
    """A reader from before these fields."""

    boot: int
    state: str


def test_the_largest_heartbeat_that_is_written_is_read() -> None:
    address = GatewayAddress("a" * 255, 65535)
    record = heartbeat(
        boot=(1 << 63) - 1,
        seq=(1 << 63) - 1,
        zone="\N{BRICK}" * 64,
        addresses=dict.fromkeys((*BEARERS, CONSOLE), address),
        relay=address,
        links=address,
        warm=[65_535] * MOST_WARM,
        starting=[65_535] * MOST_STARTING,
    )
    assert decode_heartbeat(b"a", encode(record)) == ("a", record)


def test_while_kafka_is_away_heartbeats_do_not_pile_up() -> None:
    async def scenario() -> None:
        site = Site()
        bus = site.bus()
        table, _ = await site.follow(bus)
        writer = site.writer(bus, "a")
        writer.join()
        writer.serve(ADDRESSES)
        await asyncio.sleep(1)
        bus.held_stores = {TOPIC}
        await asyncio.sleep(600)
        assert bus.in_flight == 1
        assert site.operational(table) == []
        writer.drain()
        assert bus.in_flight == 2, "a change of state waits for nothing"
        bus.held_stores = set()
        bus.release()
        await asyncio.sleep(0.05)
        assert [record.state for _, record in site.written()[-2:]] == ["up", "draining"]

    run(scenario())


def test_a_refused_heartbeat_is_counted_and_the_next_one_tried() -> None:
    async def scenario() -> None:
        site = Site()
        bus = site.bus()
        table, _ = await site.follow(bus)
        bus.refused[TOPIC] = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        writer = site.writer(bus, "a")
        writer.join()
        writer.serve(ADDRESSES)
        await asyncio.sleep(1)
        assert site.counts["heartbeats_refused"] >= 5
        assert site.written() == []
        bus.refused.clear()
        await asyncio.sleep(0.5)
        assert site.operational(table) == ["a"]

    run(scenario())


def test_gateways_beyond_the_limit_are_counted() -> None:
    async def scenario() -> None:
        site = Site()
        table, counts = await site.follow(site.bus(), limit=2)
        for number in range(5):
            site.append(b"%d" % number, encode(heartbeat()))
        await asyncio.sleep(0.05)
        assert (len(table), counts["members_forgotten"]) == (2, 3)

    run(scenario())


class HeartbeatBefore(Event, frozen=True, kw_only=True):
    """A heartbeat as gateways without a relay read it."""

    boot: int
    state: str


def test_where_gateways_relay_to_is_said_only_if_they_can() -> None:
    """G14: and gateways of an earlier version read such a record."""

    async def scenario() -> None:
        site = Site()
        writer = site.writer(site.bus(), "a")
        writer.serve(ADDRESSES)
        relay = GatewayAddress("a.inner", 7000)
        writer.serve(ADDRESSES, relay)
        await asyncio.sleep(0.1)
        without, with_relay = (record.value() or b"" for record in site.broker.partitions[TOPIC, 0])
        assert b"relay" not in without
        assert [record.relay for _, record in site.written()] == [UNSET, relay]
        assert decode(HeartbeatBefore, with_relay).state == "up"

    run(scenario())
