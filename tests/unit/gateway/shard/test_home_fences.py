"""Late copies of an owner that stood still: homes drop them behind the fence of their sender's shard, and not before it
(G6, G8, Q7, Q8)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from gateway.errors import BusError
from gateway.memory_bus import MemoryRecord
from gateway.shard.ingress_fences import write_ingress_fences
from mqtt.codes import ReasonCode
from schemas.cluster_topics import FENCES_TOPIC
from schemas.envelope import Meta, ingress_headers
from schemas.events import RouteEvent, decode
from schemas.identity import new_message_id
from tests.draw import some
from tests.unit.gateway.shard.clustered import Clustered, nothing
from tests.unit.gateway.shard.home_client import Client
from tests.unit.gateway.shard.home_harness import LEAD_S, SHARDS, HomeHarness, turn
from tests.unit.gateway.shard.two_gateways import Either, Gateway
from tests.unit.gateway.shard.virtual_time import VirtualLoop, run


@pytest.mark.parametrize("where", ["before", "behind", "later"])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_late_copy_comes_once_at_qos_2(tmp_path: Path, where: str, qos: int) -> None:
    async def scenario() -> None:
        harness = await Clustered(tmp_path).start()
        sender, receiver = await harness.client(harness.names(0)[0]), await harness.client(harness.names(1)[0])
        await receiver.subscribe("a")
        await turn(LEAD_S + 5)
        sender.publish("a", b"first", qos)
        await turn(1)
        zombie = harness.cut_off(0)
        sender.publish("a", b"late", qos)
        await turn()
        harness.stand_still(zombie)
        wake = {where: lambda: harness.wake(zombie)}
        before, behind = wake.get("before", nothing), wake.get("behind", nothing)
        await harness.take_over(0, harness.gateways[2], before, behind)
        await harness.reconnect()
        await turn(1)
        if where == "later":
            harness.wake(zombie)
        await turn(20)
        assert receiver.payloads == [b"first", b"late"] if qos == 2 else [b"first", b"late", b"late"]
        assert harness.fenced() == (qos == 2 and where != "before")
        assert not harness.fatal

    run(scenario())


def test_who_takes_over_looks_for_publishes_where_the_owner_was(tmp_path: Path) -> None:
    """G8: whatever the taker has published to the same partition itself."""

    async def scenario() -> None:
        harness = await Clustered(tmp_path).start()
        sender, other = [await harness.client(harness.names(shard)[0]) for shard in (0, 1)]
        await other.subscribe("a")
        await turn(LEAD_S + 5)
        owner = harness.owner(0)
        assert owner is not None
        owner.bus.held_acks = {harness.topics.ingress}
        sender.publish("a", b"once", 2)
        await turn(0.2)
        other.publish("b", b"further", 1)
        await turn(0.2)
        owner.kill()
        await harness.take_over(0, harness.gateways[1])
        await harness.reconnect()
        await turn(5)
        assert other.payloads == [b"once"]

    run(scenario())


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("rounds", some(range(1, 90), 6, "rounds of a change of owner"))
def test_it_wakes_at_each_step_and_the_recipient_s_owner_dies(tmp_path: Path, partitions: int, rounds: int) -> None:
    """G6, G8: at QoS 2 each message comes once, in order, by its instruction or directly; all are complete."""

    async def scenario() -> None:
        harness = await Clustered(tmp_path, partitions).start()
        sender, receiver = [await harness.client(harness.names(shard)[0]) for shard in (0, 1)]
        await receiver.subscribe("a")
        await turn(LEAD_S + 5)
        sender.publish("a", b"0", 2)
        await receiver.subscribe("b")  # its route is not in effect: messages come directly
        zombie = harness.cut_off(0)
        for n in range(1, 9):
            sender.publish("ab"[n % 2], b"%d" % n, 2)
        await turn()
        harness.stand_still(zombie)
        loop, dies = asyncio.get_running_loop(), harness.gateways[1]
        assert isinstance(loop, VirtualLoop)

        def wake() -> None:
            harness.wake(zombie)
            loop.call_at_turn(loop.turns + rounds, dies.kill)

        loop.call_at_turn(loop.turns + rounds, wake)
        await harness.take_over(0, harness.gateways[2])
        await sender.connect()
        sender.publish("a", b"9", 2)
        await turn(1)
        dies.kill()
        await harness.settle()
        assert not harness.fatal
        assert receiver.payloads == [b"%d" % n for n in range(10)]
        assert harness.relinquished() == harness.instructions()
        assert harness.completed() == set(harness.published())
        assert harness.spool_rows() == 0

    run(scenario())


async def zombie_with(harness: Clustered, sender: Client, *payloads: bytes, **options: Any) -> Gateway:
    """The owner of shard 0 stands still with messages of a client at QoS 2 that Kafka has not."""
    zombie = harness.cut_off(0)
    for payload in payloads:
        sender.publish("a", payload, 2, **options)
    await turn()
    harness.stand_still(zombie)
    return zombie


@pytest.mark.parametrize("has_checkpoint", [True, False])
@pytest.mark.parametrize("is_direct", [True, False])
def test_the_recipient_s_next_owner_knows_the_fence(tmp_path: Path, has_checkpoint: bool, is_direct: bool) -> None:
    """Q7: also if no position that it reads from is before the fence."""

    async def scenario() -> None:
        harness = await Clustered(tmp_path).start()
        sender, receiver = [await harness.client(harness.names(shard)[0]) for shard in (0, 1)]
        if not is_direct:
            await receiver.subscribe("a")
            await turn(LEAD_S + 5)
        zombie = await zombie_with(harness, sender, b"late")
        await harness.take_over(0, harness.gateways[2])
        await turn(60 if has_checkpoint else 0.05)
        harness.gateways[1].kill()
        await harness.take_over(1, harness.gateways[2])
        await harness.reconnect()
        if is_direct:
            await receiver.subscribe("a")
        harness.wake(zombie)
        sender.publish("a", b"then", 2)
        await turn(60)
        assert receiver.payloads == ([b"then"] if is_direct else [b"late", b"then"])
        assert harness.fenced() == 1

    run(scenario())


def test_a_void_publish_is_none_for_the_owner_after_the_next(tmp_path: Path) -> None:
    """G8: its packet id is free, though neither the fence nor anything before it is read again."""

    async def scenario() -> None:
        harness = await Clustered(tmp_path).start()
        sender, receiver = [await harness.client(harness.names(shard)[0]) for shard in (0, 1)]
        await receiver.subscribe("a")
        await turn(LEAD_S + 5)
        zombie = await zombie_with(harness, sender, b"0", b"1")
        await harness.take_over(0, harness.gateways[2])
        await harness.reconnect()
        await turn(60)
        harness.wake(zombie)
        harness.gateways[2].kill()
        await harness.take_over(0, harness.gateways[1])
        await harness.reconnect()
        for n in range(2, 5):
            sender.publish("a", b"%d" % n, 2)
        await turn(5)
        assert receiver.payloads == [b"%d" % n for n in range(5)]

    run(scenario())


def test_a_shard_that_starts_for_the_first_time_knows_earlier_fences(tmp_path: Path) -> None:
    """Q8: it had no route for them, and no reader."""

    async def scenario() -> None:
        harness = Clustered(tmp_path)
        harness.home = Either(harness.gateways)  # type: ignore[assignment]
        harness.is_up = True
        for _ in range(3):
            await harness.empty()
        await harness.take_over(0, harness.gateways[0])
        sender = await harness.client(harness.names(0)[0])
        inbox = "@" + harness.names(1)[0]
        zombie = harness.cut_off(0)
        sender.publish(inbox, b"late", 2)
        await turn()
        harness.stand_still(zombie)
        await harness.take_over(0, harness.gateways[2])
        await harness.reconnect()
        harness.wake(zombie)
        await harness.take_over(1, harness.gateways[1])
        await harness.client(inbox[1:])
        await turn(5)
        assert harness.fenced() == 1
        assert not harness.fatal

    run(scenario())


def test_each_shard_keeps_its_route_for_fences(tmp_path: Path) -> None:
    """It is written once, whoever has the shard, and never dropped; whoever reads meanwhile is read no more then."""

    async def scenario() -> None:
        harness = await Clustered(tmp_path).start()
        assert all(home.catch_up.is_reading for g in harness.gateways for home in g.home.shards.values())
        await turn(LEAD_S + 5)
        harness.gateways[0].kill()
        await harness.take_over(0, harness.gateways[1])
        await turn(300)
        assert not any(home.catch_up.is_reading for home in harness.gateways[1].home.shards.values())
        records = harness.broker.partitions[harness.topics.routes, 0]
        events = [decode(RouteEvent, record.value() or b"") for record in records]
        assert [(e.op, e.shard) for e in events if e.route_key == FENCES_TOPIC] == [("add", 0), ("add", 1)]
        assert harness.relinquished() == harness.instructions()
        assert harness.completed() == set(harness.published())

    run(scenario())


def test_without_a_cluster_there_are_no_fences(tmp_path: Path) -> None:
    """No route, no reader, no epoch."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        client = await harness.client("c")
        await turn(5)
        client.publish("a", b"x", 2, retain=True)
        await turn(5)
        assert not harness.is_reading
        assert not harness.broker.partitions[harness.topics.routes, 0]
        [[record]] = [r for (topic, _), r in harness.broker.partitions.items() if topic == harness.topics.ingress and r]
        assert Meta.decode((record.headers() or [])[2][1]).epoch is None
        raw = harness.home.states[0].snapshot()
        assert b"fences" not in raw

    run(scenario())


def test_nobody_else_publishes_or_subscribes_there(tmp_path: Path) -> None:
    """Nobody can forge a fence, or read who owns what."""

    async def scenario() -> None:
        harness = await Clustered(tmp_path).start()
        client = await harness.client(harness.names(0)[0])
        written = harness.fences()
        client.publish(FENCES_TOPIC, b"x", 1)
        await turn()
        assert client.refused == [ReasonCode.TOPIC_NAME_INVALID]
        assert harness.fences() == written
        filters = ("$cluster/#", "$cluster", FENCES_TOPIC, f"$share/g/{FENCES_TOPIC}")
        assert await client.subscribe(*filters) == [ReasonCode.NOT_AUTHORIZED] * 4
        await client.subscribe("#")
        await turn(LEAD_S + 5)
        await harness.take_over(1, harness.gateways[2])
        await turn(5)
        assert client.payloads == []

    run(scenario())


@pytest.mark.parametrize("value", [b"", b"{}", b'{"v":2,"gateway":"g","boot":1,"epochs":[]}', b"\xff", b"[[0,1]]"])
@pytest.mark.parametrize("shard", [-1, SHARDS, 1 << 63])
def test_a_malformed_fence_is_quarantined_and_relinquished(tmp_path: Path, value: bytes, shard: int) -> None:
    async def scenario() -> None:
        harness = await Clustered(tmp_path).start()
        await turn(LEAD_S + 5)
        headers = ingress_headers(new_message_id(), "x", Meta(1, "", None, 1, None), b"\0")
        epochs = b'{"v":1,"gateway":"g","boot":1,"epochs":[[%d,7]]}' % shard
        for raw in (value, epochs):
            harness.broker.append(MemoryRecord((harness.topics.ingress, 0), FENCES_TOPIC.encode(), raw, headers))
        await turn(5)
        assert len(harness.broker.partitions[harness.topics.quarantine, 0]) == 2 * SHARDS
        assert harness.relinquished() == harness.instructions()
        assert not harness.fatal
        harness.gateways[0].kill()
        await harness.take_over(0, harness.gateways[1])

    run(scenario())


@pytest.mark.parametrize("name", ["ingress", "retained"])
def test_fences_are_written_once_kafka_has_them(tmp_path: Path, name: str) -> None:
    """Q8: nobody serves before; what Kafka refuses is an error."""

    async def scenario() -> None:
        harness = await Clustered(tmp_path, 2).start()
        gateway, topic = harness.gateways[2], getattr(harness.topics, name)
        gateway.bus.held_acks = {topic}
        writing = asyncio.create_task(write_ingress_fences(gateway.node, {0: 7, 1: 8}))
        await turn(1)
        assert not writing.done()
        gateway.bus.held_acks = set()
        gateway.bus.release()
        await writing
        assert harness.fences() == 2 * (SHARDS + 1)
        gateway.bus.refused = {topic: KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)}
        with pytest.raises(BusError, match=f"cannot write a fence to partition 0 of {name}"):
            await write_ingress_fences(gateway.node, {0: 9})
        await turn()
        assert not harness.fatal

    run(scenario())
