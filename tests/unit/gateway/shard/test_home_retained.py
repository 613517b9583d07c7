"""Retained messages (MQTT 5.0, 3.3.1.3 and 3.8.3.1)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mqtt.codes import ReasonCode
from mqtt.packets import Subscribe, Subscription
from tests.unit.gateway.shard.home_client import Client
from tests.unit.gateway.shard.home_harness import LEAD_S, HomeHarness, turn
from tests.unit.gateway.shard.virtual_time import run


def test_a_retained_message_is_set_replaced_and_deleted(tmp_path: Path) -> None:
    """MQTT 5.0, 3.3.1.3; also over a crash."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")

        async def retained(name: str) -> list[tuple[bytes, bool]]:
            client = await harness.client(name)
            await client.subscribe("r/+")
            await turn()
            return [(got.payload, got.retain) for got in client.got]

        assert await retained("a") == []
        sender.publish("r/1", b"1", 1, retain=True)
        sender.publish("r/2", b"2", 2, retain=True)
        await turn()
        assert sorted(await retained("b")) == [(b"1", True), (b"2", True)]
        sender.publish("r/1", b"1 again", 1, retain=True)
        sender.publish("r/2", b"", 1, retain=True)
        sender.publish("r/1", b"not kept", 1)
        await turn()
        assert await retained("c") == [(b"1 again", True)]
        await harness.restart()
        assert await retained("d") == [(b"1 again", True)]

    run(scenario())


def test_what_is_acknowledged_as_retained_is_there_for_the_next_subscriber(tmp_path: Path) -> None:
    """MQTT 5.0, 3.3.1.3: though the fold of `retained` may lag."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, client = await harness.client("sender"), await harness.client("client")
        harness.bus.is_consuming = False
        sender.publish("r", b"1", 1, retain=True)
        await turn()
        assert sender.acknowledged == {b"1"}
        subscribing = asyncio.create_task(client.subscribe("r"))
        await turn(0.3)
        harness.bus.is_consuming = True
        harness.bus.release()
        await subscribing
        await turn(1)
        assert client.payloads == [b"1"]

    run(scenario())


def test_retain_handling_and_retain_as_published(tmp_path: Path) -> None:
    """MQTT 5.0, 3.8.3.1: 0 always, 1 if new, 2 never; live messages show RETAIN only where asked."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        sender.publish("r", b"1", 1, retain=True)
        await turn()
        for handling, expected in ((0, 2), (1, 1), (2, 0)):
            client = await harness.client(f"client-{handling}")
            for _ in range(2):
                await client.subscribe(Subscription("r", 1, retain_handling=handling))
                await turn()
            assert client.payloads == [b"1"] * expected
        plain, kept = await harness.client("plain"), await harness.client("kept")
        await plain.subscribe(Subscription("r", 1, retain_handling=2))
        await kept.subscribe(Subscription("r", 1, retain_handling=2, retain_as_published=True))
        sender.publish("r", b"2", 1, retain=True)
        await turn()
        assert [got.retain for got in plain.got] == [False]
        assert [got.retain for got in kept.got] == [True]

    run(scenario())


@pytest.mark.parametrize("delay_s", [0.001, 3.0])
def test_a_retained_message_does_not_come_live_as_well(tmp_path: Path, delay_s: float) -> None:
    """MQTT 5.0, 3.3.1.3: published just before or while the client subscribes, it comes once."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        harness.active.delay_s = harness.backup.delay_s = delay_s
        sender, client = await harness.client("sender"), await harness.client("client")
        for n in range(20):
            topic = f"r{n}/x"
            sender.publish(topic, b"%d" % n, 2, retain=True)
            for _ in range(n % 5):
                await asyncio.sleep(0)
            await client.subscribe(topic)
        await turn(10)
        assert sorted(client.payloads, key=int) == [b"%d" % n for n in range(20)]

    run(scenario())


@pytest.mark.parametrize("crashing", [False, True])
def test_what_was_acknowledged_before_does_not_come_live(tmp_path: Path, crashing: bool) -> None:
    """R8: the route is in effect for others, and routers lag: a new subscriber gets what is retained, and behind it
    neither what that has replaced nor what was cleared."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        for n in range(4):  # of both shards
            await (await harness.client(f"old-{n}")).subscribe("r/#")
        sender = await harness.client("sender")
        await turn(LEAD_S + 5)
        harness.active.delay_s = harness.backup.delay_s = 3.0
        for topic, payload in (("r/1", b"old"), ("r/2", b"cleared"), ("r/1", b"new"), ("r/2", b"")):
            sender.publish(topic, payload, 1, retain=True)
        await turn()
        assert sender.acknowledged == {b"old", b"cleared", b"new", b""}
        if crashing:
            await harness.restart()
            await sender.connect()
        late = [await harness.client(f"late-{n}") for n in range(4)]
        for client in late:
            await client.subscribe("r/#")
        sender.publish("r/3", b"live", 1)
        await turn(10)
        assert [client.payloads for client in late] == [[b"new", b"live"]] * 4

    run(scenario())


def test_what_is_on_its_way_to_kafka_while_somebody_subscribes_comes_once(tmp_path: Path) -> None:
    """MQTT 5.0, 3.3.1.3: `ingress` has it and `retained` not yet; it comes live or as retained."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        await (await harness.client("old")).subscribe("r")
        await turn(LEAD_S + 5)
        sender, late = await harness.client("sender"), await harness.client("late")
        harness.active.delay_s = harness.backup.delay_s = 3.0
        harness.bus.held_acks = {harness.topics.retained}
        sender.publish("r", b"one", 1, retain=True)
        await turn()
        subscribing = asyncio.create_task(late.subscribe("r"))
        await turn(1)
        harness.bus.held_acks = set()
        harness.bus.release()
        await subscribing
        await turn(10)
        assert late.payloads == [b"one"]

    run(scenario())


def test_each_sending_of_a_retained_message_is_told_apart(tmp_path: Path) -> None:
    """R4: on progress, from direct deliveries and from each other."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        client = await harness.client("client")
        await client.subscribe("r/1")
        sender.publish("r/1", b"1", 1, retain=True)
        await turn(1)
        await client.subscribe("r/1")
        await client.subscribe("r/+")
        await turn(1)
        events = [e for e in harness.events() if any(d.client == "client" for d in e.deliveries)]
        ways = [(e.number is not None, e.partition >= 0, e.offered_us is not None) for e in events]
        assert ways.count((False, False, True)) == 2
        assert set(ways) <= {(False, False, True), (False, True, False), (True, True, False)}
        offered = [e.offered_us for e in events if e.offered_us is not None]
        assert len(set(offered)) == len(offered)
        assert {e.origin for e in events} == {"client"}

    run(scenario())


async def with_routers_that_lag(directory: Path) -> tuple[Client, Client]:
    """A sender, and a client whose subscription to `r/#` is in effect."""
    harness = await HomeHarness(directory).start()
    sender, client = await harness.client("sender"), await harness.client("client")
    await client.subscribe("r/#")
    await turn(LEAD_S + 5)
    harness.active.delay_s = harness.backup.delay_s = 3.0
    return sender, client


def test_who_subscribes_again_ends_with_the_newest_value(tmp_path: Path) -> None:
    """3.8.4: the routers lag, so the older value comes behind the retained one; the newer one must follow it."""

    async def scenario() -> None:
        sender, client = await with_routers_that_lag(tmp_path)
        sender.publish("r/1", b"old", 1, retain=True)
        sender.publish("r/1", b"new", 1, retain=True)
        await turn(0.5)
        assert sender.acknowledged == {b"old", b"new"}
        client.lose()
        await client.connect()
        await client.subscribe("r/#")
        await turn(10)
        assert client.payloads[-1] == b"new"

    run(scenario())


def test_a_retained_message_does_not_follow_the_live_one_that_replaces_it(tmp_path: Path) -> None:
    """3.3.1.3: a topic gets another value while a client is sent thousands of retained messages. Kafka stores that on
    `ingress` before `retained`."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, client = await harness.client("sender"), await harness.client("client", expiry_s=0)
        for number in range(4_000):
            sender.publish(f"r/{number}", b"old", 0, retain=True)
        await turn(1)

        def answer(_codes: list[ReasonCode]) -> None:
            harness.bus.held_stores = {harness.topics.retained}
            sender.publish("r/3999", b"new", 0, retain=True)

        packet = Subscribe(1, [Subscription("r/#", 1)])
        await client.attached.home.subscribe(client.attached.session, packet, answer)
        await turn(1)
        assert [got.payload for got in client.got if got.topic == "r/3999"][-1] == b"new"
        assert len({got.topic for got in client.got}) == 4_000

    run(scenario())


def test_the_newest_value_is_the_last_whatever_the_routers_still_have(tmp_path: Path) -> None:
    """3.3.1.3: two values are stored while a client subscribes. It gets the second as the retained one, then the first
    live, and so the second once more."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        for n in range(4):  # of both shards
            await (await harness.client(f"old-{n}")).subscribe("r/#")
        sender, client = await harness.client("sender"), await harness.client("client", expiry_s=0)
        await turn(LEAD_S + 5)
        harness.active.delay_s = harness.backup.delay_s = 3.0
        harness.bus.is_consuming = False
        sender.publish("s", b"holds it up", 1, retain=True)
        subscribing = asyncio.create_task(client.subscribe("r/#"))
        await turn(0.5)
        sender.publish("r/1", b"first", 1, retain=True)
        sender.publish("r/1", b"second", 1, retain=True)
        await turn(0.5)
        harness.bus.is_consuming = True
        harness.bus.release()
        await subscribing
        await turn(10)
        assert client.payloads == [b"second", b"first", b"second"]

    run(scenario())


def test_a_retained_copy_at_qos_0_does_not_replace_the_live_one_at_qos_1(tmp_path: Path) -> None:
    """R4: an earlier subscription gets it; the connection is lost before either comes."""

    async def scenario() -> None:
        sender, client = await with_routers_that_lag(tmp_path)
        sender.publish("r/1", b"new", 1, retain=True)
        await turn(0.5)
        await client.subscribe(Subscription("r/1", 0))
        client.lose()
        await turn(10)
        await client.connect()
        await turn(10)
        assert [got.qos for got in client.got if got.payload == b"new"][-1] == 1

    run(scenario())


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("held", ["retained", "ingress"])
def test_what_is_acknowledged_after_a_kill_is_retained(tmp_path: Path, qos: int, held: str) -> None:
    """Q1, 3.3.1.3: Kafka had one of the two records when the gateway was killed, and the client sends it again."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        sender.publish("r", b"old", 1, retain=True)
        await turn(1)
        harness.bus.held_stores = {getattr(harness.topics, held)}
        sender.publish("r", b"new", qos, retain=True)
        await turn(1)
        assert sender.acknowledged == {b"old"}
        await harness.restart()
        await sender.connect()
        await turn(5)
        assert sender.acknowledged == {b"old", b"new"}
        stranger = await harness.client("stranger")
        await stranger.subscribe("r")
        await turn(1)
        assert stranger.payloads == [b"new"]

    run(scenario())


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_no_retained_copy_stands_alone_if_the_queue_is_full_later(tmp_path: Path, qos: int) -> None:
    """R8, 3.3.1.3: Kafka's client takes the copies, and has no capacity when the messages themselves are to go. They go
    later, in their order, and what follows them too."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await harness.client("sender"), await harness.client("receiver")
        await receiver.subscribe("#")
        await turn(LEAD_S + 5)
        harness.bus.held_acks = {harness.topics.retained}
        sender.publish("r", b"1", 2, retain=True)
        sender.publish("r", b"2", qos, retain=True)
        await turn()
        harness.bus.capacity, harness.bus.held_acks = 0, set()
        harness.bus.release()
        await turn()
        assert sender.acknowledged == set()
        sender.publish("s", b"3", 1)
        harness.bus.capacity = None
        await turn(5)
        assert not sender.refused
        assert receiver.payloads == [b"1", b"2", b"3"]
        assert sender.acknowledged | {b"2"} == {b"1", b"2", b"3"}
        late = await harness.client("late")
        await late.subscribe("r")
        await turn(1)
        assert late.payloads == [b"2"]
        assert not harness.fatal

    run(scenario())


@pytest.mark.parametrize("qos", [0, 1])
def test_nothing_is_retained_of_a_message_that_is_refused_at_once(tmp_path: Path, qos: int) -> None:
    """3.3.1.3: Kafka's client has no capacity for the message, and would have for its copy a moment later."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        await turn(5)
        copies = harness.broker.partitions[harness.topics.retained, 0]
        before, produce = len(copies), harness.bus.produce

        def produce_later(topic: str, *of: Any) -> bool:
            harness.bus.capacity = 0 if topic == harness.topics.ingress else None
            return produce(topic, *of)

        harness.bus.produce = produce_later  # type: ignore[method-assign]
        sender.publish("r", b"refused", qos, retain=True)
        await turn(1)
        assert len(sender.refused) == qos
        assert len(copies) == before

    run(scenario())
