"""A home that has lost its shard promises nothing, and harms nobody (G6, G7, Q1, Q7; design "Fencing")."""

import asyncio
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import NotAdmitted, Outranked, ShardLost
from gateway.memory_bus import MemoryRecord
from gateway.shard.arrivals import Arrival
from gateway.shard.fenced_partition import FencedPartition
from gateway.shard.fences import write_fences
from gateway.shard.ingress_fences import FENCES_KEY
from gateway.shard.node import Node
from gateway.shard.publishing import Publisher
from mqtt.codes import ReasonCode
from mqtt.packets import Publish
from schemas.fences import FENCE_PREFIX, epoch_of, fence_key
from schemas.identity import shard_of
from schemas.leases import Claimant
from schemas.session_log import SessionKey, WillRecord
from tests.unit.gateway.shard.fenced_gateways import FencedGateways
from tests.unit.gateway.shard.home_client import ClientLink
from tests.unit.gateway.shard.home_harness import LEAD_S, PARTITIONS, SHARDS, turn
from tests.unit.gateway.shard.two_gateways import Gateway
from tests.unit.gateway.shard.virtual_time import run

WILL = WillRecord("wills/x", b"gone", 1, False, b"\0", 0, None, of_us=1)


def named(number: int, at: int = 0) -> str:
    """A client of a shard."""
    return [name for name in map("client{}".format, range(40)) if shard_of(name, SHARDS) == number][at]


def begun(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(work)


def last_of(harness: FencedGateways, topic: str) -> dict[bytes | None, MemoryRecord]:
    """The last record of each key of shard 0."""
    return {record.key(): record for record in harness.log(topic, 0)}


def unmended(harness: FencedGateways, topic: str) -> list[bytes]:
    """Keys of shard 0 whose last record is void."""
    reader = FencedPartition(0)
    for record in harness.log(topic, 0):
        reader.take(record)
    return reader.fences.unmended


def epochs_of(records: Iterable[MemoryRecord]) -> set[int]:
    return {epoch_of(record.headers()) for record in records}


def test_all_records_carry_the_epoch_behind_its_fence(tmp_path: Path) -> None:
    """G6: tombstones too, and commits of the spool."""

    async def scenario() -> None:
        harness = await FencedGateways(tmp_path).start()
        client = await harness.client(named(0))
        await client.subscribe("a/#")
        client.disconnect(expiry_s=0)
        await turn(5)
        for topic in (harness.topics.sessions, harness.topics.spool):
            assert set(harness.epochs(topic, 0)) == {1}
            assert harness.log(topic, 0)[0].key() == fence_key(1)
            assert sum((r.key() or b"").startswith(FENCE_PREFIX) for r in harness.log(topic, 0)) == 1
        assert any(r.value() is None for r in harness.log(harness.topics.sessions, 0))
        assert not harness.fatal

    run(scenario())


def test_pubrec_waits_for_a_barrier_and_puback_does_not(tmp_path: Path) -> None:
    """Q1, G6: one barrier for all messages that wait; the order of answers stays."""

    async def scenario() -> None:
        harness = await FencedGateways(tmp_path).start()
        one = harness.at(0)
        client = await harness.client(named(0))
        one.bus.held_follows = {harness.topics.sessions}
        client.publish("a", b"first", 1)
        for n in range(20):
            client.publish("a", b"%d" % n, 2)
        client.publish("a", b"behind", 1)
        before = len(harness.log(harness.topics.sessions, 0))
        await turn(5)
        assert len(harness.published()) == 22
        assert client.acknowledged == {b"first"}, "what is behind a PUBREC waits for it"
        assert len(harness.log(harness.topics.sessions, 0)) <= before + 2, (
            "one on its way, and what a checkpoint writes"
        )
        one.bus.held_follows = set()
        one.bus.release()
        await turn(5)
        assert client.acknowledged == {b"first", b"behind", *(b"%d" % n for n in range(20))}
        assert not harness.fatal

    run(scenario())


def test_a_repeated_publish_gets_no_pubrec_before_the_barrier(tmp_path: Path) -> None:
    """G8, Q1: whatever connection it comes on; nor is it published twice."""

    async def scenario() -> None:
        harness = await FencedGateways(tmp_path).start()
        one = harness.at(0)
        client = await harness.client(named(0))
        one.bus.held_follows = {harness.topics.sessions}
        packet_id = client.publish("a", b"x", 2)
        await turn(1)
        home, session = one.home.shards[0], client.attached.session
        again = Publisher(
            one.node, home.inbound, home.unsettled, client.name, session, client.link, promises=home.promises
        )
        again.publish(Publish("a", b"x", 2, False, True, packet_id, None))
        await turn(1)
        assert (len(harness.published()), client.acknowledged) == (1, set())
        one.bus.held_follows = set()
        one.bus.release()
        await turn(1)
        assert (len(harness.published()), client.acknowledged) == (1, {b"x"})
        assert again.in_flight == 0
        assert not session.inbound

    run(scenario())


def test_a_home_that_has_lost_its_shard_promises_nothing(tmp_path: Path) -> None:
    """Q1, Q7: what it had written and what it writes then; whoever waits is told, and the process goes on."""

    async def scenario() -> None:
        harness = await FencedGateways(tmp_path).start()
        one, two = harness.at(0), harness.at(1)
        client, other, _ = [await harness.client(named(0, n)) for n in (0, 1, 3)]
        one.cut_off()
        client.publish("z/x", b"qos2", 2)
        connecting = begun(one.home.attach(_arrival(named(0, 2)), ClientLink(client)))
        subscribing = begun(other.subscribe("b/#"))
        kicking = begun(one.home.kick(named(0, 3), end_session=True))
        await turn(1)
        await two.own(0, 2)
        one.come_back()
        await turn(5)
        assert one.lost == [0]
        for waiting in (connecting, subscribing, kicking):
            with pytest.raises(NotAdmitted) as refused:
                await asyncio.wait_for(waiting, 1)
            assert refused.value.reason is ReasonCode.USE_ANOTHER_SERVER
        assert client.acknowledged == set()
        with pytest.raises(ShardLost):
            await one.home.shards[0].writer.durable(one.home.shards[0].writer.barrier)
        with pytest.raises(ShardLost):
            await one.home.attach(_arrival(named(0, 4)), ClientLink(client))
        written = len(harness.log(harness.topics.sessions, 0))
        await one.home.shards[0].checkpoint(at_once=True)
        await asyncio.wait_for(one.home.abandon(0), 5)
        await turn(5)
        assert epochs_of(harness.log(harness.topics.sessions, 0)[written:]) <= {2}
        assert not harness.fatal
        await two.home.attach(_arrival(named(0, 1)), ClientLink(other))
        found = two.home.session(named(0, 1))
        assert found is not None
        assert "b/#" not in found.subscriptions

    run(scenario())


def _arrival(name: str) -> Arrival:
    return Arrival(name, False, 3600, None, 10, "peer", "mqtt5")


def test_void_records_change_nothing_and_are_written_again(tmp_path: Path) -> None:
    """G6: the stale home's subscription, end of a session and window stand behind the fence when the next home has
    read the log; compaction then keeps what counts."""

    async def scenario() -> None:
        harness = await FencedGateways(tmp_path).start(3)
        one, two = harness.at(0), harness.at(1)
        client = await harness.client(named(0))
        await client.subscribe("a/#")
        away = await harness.client(named(0, 1))
        await away.subscribe("b/#")
        away.lose()
        await turn(2)
        one.cut_off()
        stale = [begun(client.subscribe("stale/#")), begun(one.home.kick(named(0, 1), end_session=True))]
        await turn(1)
        await two.own(0, 2)
        found = two.home.session(named(0, 1))
        assert found is not None
        assert set(found.subscriptions) == {"b/#"}
        one.come_back()
        await turn(5)
        await asyncio.gather(*stale, return_exceptions=True)
        last = last_of(harness, harness.topics.sessions)
        assert epochs_of(last.values()) == {2}
        assert last[SessionKey(named(0, 1), "o").encode()].value() is not None
        assert last[fence_key(1)].value() is None, "it is not needed any more"
        harness.broker.compact(harness.topics.sessions, 0)
        harness.broker.compact(harness.topics.spool, 0)
        three = await harness.at(2).own(0, 3)
        assert {name: set(session.subscriptions) for name, session in three.sessions.items()} == {
            named(0): {"a/#"},
            named(0, 1): {"b/#"},
        }
        assert not harness.fatal

    run(scenario())


def test_void_records_behind_the_fence_are_mended_before_the_next_home_serves(tmp_path: Path) -> None:
    """G6: the stale records come between the new owner's fence and the end that it reads."""

    async def scenario() -> None:
        harness = await FencedGateways(tmp_path).start(3)
        one, two = harness.at(0), harness.at(1)
        client = await harness.client(named(0))
        await client.subscribe("a/#")
        await turn(2)
        one.cut_off()
        stale = begun(client.subscribe("stale/#"))
        gone = begun(one.home.kick(named(0), end_session=True))
        await turn(1)
        await write_fences(two.bus, harness.topics, {0: 2}, _claimant(two.node))
        one.come_back(reads=False)
        await turn(1)
        await two.own(0, 2)
        assert set(two.home.shards[0].sessions[named(0)].subscriptions) == {"a/#"}
        await turn(1)
        last = last_of(harness, harness.topics.sessions)
        for kind in "os":
            record = last[SessionKey(named(0), kind).encode()]
            assert (record.value() is not None, record.headers()) == (True, [("epoch", b"2")])
        stale.cancel()
        gone.cancel()
        assert not harness.fatal

    run(scenario())


def _claimant(node: Node) -> Claimant:
    return Claimant(node.settings.gateway.name, node.numbers.boot)


def test_the_same_epoch_of_another_outranks(tmp_path: Path) -> None:
    """G6: also a higher one; whoever has read its own fence behind it claims again. Nothing of it is left."""

    async def scenario() -> None:
        harness = await FencedGateways(tmp_path).start()
        two = harness.at(1)
        for earlier in (2, 3):
            await write_fences(harness.at(0).bus, harness.topics, {0: earlier}, _claimant(harness.at(0).node))
            with pytest.raises(Outranked) as outranked:
                await two.own(0, 2)
            assert (outranked.value.shard, outranked.value.epoch) == (0, 2)
        assert 0 not in two.home.shards
        await two.own(0, 4)
        await turn(2)
        assert harness.at(0).lost == [0]
        assert not harness.fatal

    run(scenario())


def test_a_higher_fence_behind_its_own_means_that_the_shard_is_lost(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await FencedGateways(tmp_path).start()
        one, two = harness.at(0), harness.at(1)
        one.cut_off()
        two.bus.held_acks = {harness.topics.spool}
        starting = begun(two.own(0, 2))
        await turn(1)
        one.come_back(reads=False)
        await write_fences(one.bus, harness.topics, {0: 3}, _claimant(one.node))
        two.bus.held_acks = set()
        two.bus.release()
        with pytest.raises(ShardLost):
            await starting

    run(scenario())


def test_a_stale_home_publishes_no_will_and_ends_no_session(tmp_path: Path) -> None:
    """G9, Q8: a will that is due, and a session whose time is over, wait until the log says whose the shard is."""

    async def scenario() -> None:
        harness = await FencedGateways(tmp_path).start()
        one, two = harness.at(0), harness.at(1)
        with_will = await harness.client(named(0), will=WILL, expiry_s=600)
        short = await harness.client(named(0, 1), expiry_s=30)
        await short.subscribe("b/#")
        await turn(2)
        one.cut_off()
        with_will.lose()
        short.lose()
        await turn(1)
        await two.own(0, 2)
        one.bus.held_stores = set()
        one.bus.release()
        await turn(60)
        on_ingress = [r for p in range(PARTITIONS) for r in harness.broker.partitions[harness.topics.ingress, p]]
        found = [record.value() for record in on_ingress if record.key() != FENCES_KEY]
        assert found == [b"gone"], "the next owner's"
        assert short.name in one.home.shards[0].sessions, "it does not know that its time is over"
        one.come_back()
        await turn(1)
        assert one.lost == [0]
        assert not harness.fatal

    run(scenario())


def test_a_commit_behind_the_fence_is_in_effect_nowhere(tmp_path: Path) -> None:
    """Q7, R4: neither in the stale home's file, nor in its positions; what it had put there the next owner makes
    undone, and numbers of its own are not committed by others' records."""

    async def scenario() -> None:
        harness = await FencedGateways(tmp_path).start(3)
        one, two = harness.at(0), harness.at(1)
        sender, receiver = await harness.client(named(1)), await harness.client(named(0), mute=True)
        await receiver.subscribe("a/#")
        await turn(LEAD_S + 5)
        for n in range(3):
            sender.publish("a/x", b"%d" % n, 1)
        await turn(30)
        file = one.spools.files[0].inline
        before = file.state()
        assert file.backlogs()
        one.bus.held_stores = {harness.topics.spool}
        for n in range(3, 6):
            sender.publish("a/x", b"%d" % n, 1)
        receiver.mute = False
        receiver.answer_all()
        await turn(30)
        await two.own(0, 2)
        one.bus.held_stores = set()
        one.bus.release()
        await turn(10)
        assert one.lost == [0]
        assert file.state() == before
        epochs = harness.epochs(harness.topics.spool, 0)
        assert 1 in epochs[epochs.index(2) :], "it has come behind the fence"
        await turn(200)
        assert unmended(harness, harness.topics.spool) == []
        assert last_of(harness, harness.topics.spool)[fence_key(1)].value() is None
        harness.broker.compact(harness.topics.spool, 0)
        three = await harness.at(2).own(0, 3)
        assert (await three.spool.contents()).backlogs == two.spools.files[0].inline.backlogs()
        assert not harness.fatal

    run(scenario())


def test_a_site_that_shares_no_more_goes_on_in_its_last_epoch(tmp_path: Path) -> None:
    """G6: what a gateway writes without others counts when they share shards again."""

    async def scenario() -> None:
        harness = await FencedGateways(tmp_path).start()
        client = await harness.client(named(0))
        await client.subscribe("a/#")
        await turn(2)
        harness.at(0).kill()
        two = harness.at(1)
        gateway = await Gateway(harness, tmp_path / "alone").start(0, 1)
        harness.gateways[:] = [gateway]
        await client.connect()
        assert client.present
        await client.subscribe("b/#")
        await turn(2)
        assert set(harness.epochs(harness.topics.sessions, 0)) == {1}
        gateway.kill()
        home = await two.own(0, 2)
        assert set(home.sessions[named(0)].subscriptions) == {"a/#", "b/#"}
        assert not harness.fatal

    run(scenario())
