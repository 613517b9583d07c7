"""R8: what one sender sends to one recipient comes in the order sent, whichever way: directly, by instruction, inbox.

For `route_lead` after a subscription its messages do not come by routers, while those of older ones do: however late
the routers are, and however often the home is killed meanwhile.
"""

import asyncio
from pathlib import Path

import pytest

from gateway.memory_bus import MemoryRecord
from gateway.shard.egress_flow import EgressFlow
from gateway.shard.messages import Message, PendingMessage
from gateway.shard.shard import Shard
from schemas.envelope import ROUTED, Instruction, Meta, ingress_headers
from tests.unit.gateway.shard.home_client import Client
from tests.unit.gateway.shard.home_harness import LEAD_S, HomeHarness, turn
from tests.unit.gateway.shard.virtual_time import run


async def with_old_and_new(harness: HomeHarness) -> tuple[Client, Client]:
    """A sender, and a receiver with an old subscription to x/1; the routers stop."""
    sender, receiver = await harness.client("sender"), await harness.client("receiver")
    await receiver.subscribe("x/1")
    await turn(LEAD_S + 5)
    set_routers(harness, stopped=True)
    return sender, receiver


def set_routers(harness: HomeHarness, *, stopped: bool) -> None:
    for router in (harness.active, harness.backup):
        router.stopped = stopped
        router.wake()


@pytest.mark.parametrize("first", ["x/1", "@receiver"])
def test_what_routers_have_not_brought_when_a_client_subscribes_comes_first(tmp_path: Path, first: str) -> None:
    """R8: also what was sent before the reader began."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await with_old_and_new(harness)
        sender.publish(first, b"one", 1)
        await turn(1)
        await receiver.subscribe("y/1")
        sender.publish("y/1", b"two", 1)
        await turn(5)
        assert receiver.payloads == []
        set_routers(harness, stopped=False)
        await turn()
        assert receiver.payloads == [b"one", b"two"]

    run(scenario())


@pytest.mark.parametrize("crashing", [False, True])
def test_a_long_outage_of_the_routers_holds_back_little_and_loses_nothing(tmp_path: Path, crashing: bool) -> None:
    """R8, Q1: memory is bounded while routers are away; the reader does not end before all is delivered."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path, held_back_messages=20).start()
        sender, receiver = await with_old_and_new(harness)
        await receiver.subscribe("y/1")
        sent = [b"%d" % n for n in range(400)]
        for n, payload in enumerate(sent):
            sender.publish("x/1" if n % 10 == 0 else "y/1", payload, n % 2 + 1)
            await turn(0.05)
            assert harness.held_back <= 20
        assert receiver.payloads == []
        await turn(LEAD_S + 100)
        if crashing:
            await harness.restart()
            await turn(10)
            assert harness.held_back <= 20
            await receiver.connect()
        late = await harness.client("late")
        await late.subscribe("y/1")
        if sender.link is None:
            await sender.connect()
        sender.publish("y/1", b"last", 1)
        set_routers(harness, stopped=False)
        await turn(5)
        assert receiver.payloads == [*sent, b"last"]
        assert late.payloads == [b"last"], "what was held back when it came is not for it"
        await turn(LEAD_S + 5)
        assert not harness.is_reading
        assert harness.relinquished() == harness.instructions()

    run(scenario())


def test_what_nobody_wants_any_more_is_not_remembered(tmp_path: Path) -> None:
    """A newer subscription leaves messages to an older one, and both end before routers bring them."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await with_old_and_new(harness)
        await receiver.subscribe("#")
        for n in range(3):
            sender.publish("x/1", b"%d" % n, 1)
        await turn(1)
        assert sum(len(shard.order.left) for shard in harness.home.states) == 3
        await receiver.unsubscribe("x/1", "#")
        set_routers(harness, stopped=False)
        await turn(5)
        assert receiver.payloads == []
        assert not any(shard.order.left for shard in harness.home.states)

    run(scenario())


@pytest.mark.parametrize("crashing", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_what_an_older_subscription_was_to_bring_comes_though_it_ends(
    tmp_path: Path, crashing: bool, again: bool
) -> None:
    """R8, Q1: a newer subscription leaves a message to an older one, which ends before routers bring it."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await with_old_and_new(harness)
        await receiver.subscribe("#")
        sender.publish("x/1", b"one", 1)
        await turn(1)
        assert receiver.payloads == [], "the older one's route is in effect"
        await receiver.unsubscribe("x/1")
        if again:
            await receiver.subscribe("x/1")
        sender.publish("x/1", b"two", 1)
        await turn(1)
        if crashing:
            await harness.restart()
            await receiver.connect()
            await turn(1)
        set_routers(harness, stopped=False)
        await turn(LEAD_S + 5)
        assert receiver.payloads == [b"one", b"two"]
        assert harness.relinquished() == harness.instructions()
        assert not any(shard.order.left for shard in harness.home.states)

    run(scenario())


def test_instructions_far_ahead_of_the_reader_wait_on_kafka(tmp_path: Path) -> None:
    """R8: what is parked in memory is bounded; unless direct deliveries wait, perhaps for what is still to come."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path, held_back_messages=20).start()
        harness.bus.is_consuming = False
        shard, place = harness.home.states[1], (harness.topics.egress, 1)
        flow = EgressFlow(harness.node, shard, harness.home.shards[1].spool.outage, asyncio.create_task)

        def is_read() -> bool:
            return place in harness.bus.reading

        for offset in range(9):
            shard.order.park(0, offset, MemoryRecord(place, b"a", b"x", []))
            flow.adjust(direct_deliveries_wait=False)
        await turn()
        assert is_read()
        shard.order.park(0, 9, MemoryRecord(place, b"a", b"x", []))
        flow.adjust(direct_deliveries_wait=False)
        await turn()
        assert not is_read()
        assert harness.node.counts["parked_full"] == 1
        flow.adjust(direct_deliveries_wait=True)
        await turn()
        assert is_read()
        flow.adjust(direct_deliveries_wait=False)
        await turn()
        assert not is_read(), "it is as full as before"
        for _ in range(4):
            shard.order.unpark(0)
            flow.adjust(direct_deliveries_wait=False)
        await turn()
        assert not is_read(), "not with every single one"
        shard.order.unpark(0)
        shard.received(2)
        flow.adjust(direct_deliveries_wait=False)
        await turn()
        assert harness.bus.reading[place] == 3

    run(scenario())


@pytest.mark.parametrize("end", ["unsubscribe", "end", "expire"])
def test_what_is_held_back_for_somebody_who_leaves_holds_up_nobody(tmp_path: Path, end: str) -> None:
    """R8: a subscription, or a session, that ends while direct deliveries for it wait."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await with_old_and_new(harness)
        await receiver.subscribe("y/1")
        sender.publish("x/1", b"one", 1)
        sender.publish("y/1", b"two", 1, properties={"message_expiry_interval": 10})
        sender.publish("y/1", b"three", 0, properties={"message_expiry_interval": 10})
        await turn(1)
        if end == "unsubscribe":
            await receiver.unsubscribe("y/1")
        elif end == "end":
            receiver.disconnect(expiry_s=0)
        await turn(20)
        assert (harness.held_back == 0) == (end != "expire")
        set_routers(harness, stopped=False)
        await turn(LEAD_S + 5)
        assert receiver.payloads == ([] if end == "end" else [b"one"])
        assert not harness.is_reading
        assert harness.relinquished() == harness.instructions()

    run(scenario())


@pytest.mark.parametrize("meta", [None, b"1;9;;;;"])
def test_a_record_nobody_can_read_holds_up_nobody(tmp_path: Path, meta: bytes | None) -> None:
    """R8: routers bring no instruction for a record without the envelope's headers, and one that is quarantined for a
    record whose headers cannot be read."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await with_old_and_new(harness)
        await receiver.subscribe("y/1")
        partition = sender.attached.publisher._partition
        headers = [("id", b"-")] if meta is None else [("id", b"-"), ("src", b"s"), ("meta", meta), ("props", b"\0")]
        harness.broker.append(MemoryRecord((harness.topics.ingress, partition), b"x/1", b"bad", headers))
        sender.publish("y/1", b"one", 1)
        await turn(1)
        assert receiver.payloads == ([b"one"] if meta is None else [])
        set_routers(harness, stopped=False)
        await turn(1)
        assert receiver.payloads == [b"one"]

    run(scenario())


def test_a_copy_nobody_can_read_leaves_the_message_to_the_other(tmp_path: Path) -> None:
    """R8, M14: routers write copies. One that is damaged is quarantined, and the message comes with the other, once."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        _sender, receiver = await with_old_and_new(harness)
        where = harness.topics.egress, receiver.attached.session.shard
        good = ingress_headers("id", "s", Meta(1, "", None, 0, None), b"\0")
        bad = [*good[:2], ("meta", b"1;9;;;;"), good[3]]
        for headers in (bad, good, bad, good):
            instruction = ("instr", Instruction(0, 1_000, 0, 1, int(harness.clock() * 1000)).encode())
            harness.broker.append(MemoryRecord(where, b"x/1", b"one", [*headers, instruction, ("router", b"active")]))
            await turn(1)
        assert receiver.payloads == [b"one"]
        assert len(harness.broker.partitions[harness.topics.quarantine, 0]) == 1
        assert harness.home._node.counts["copies_dropped"] == 2

    run(scenario())


def test_what_is_not_finished_comes_again_before_direct_deliveries() -> None:
    """R8: after a restart the windows say that it has come, but it is not in a queue again yet."""
    before = Shard(0)
    message = Message("id", "s", "x/1", b"", 1, False, None, b"\0", 1, 5, 0)
    before.received(3)
    before.order.copies.accept(ROUTED, 1, 5)
    before.order.expect(1, 5)
    assert not before.order.must_wait(1, 6, before.position)
    before.hold(PendingMessage(message, 0, 3, 0.0, []))
    before.order.park(0, 9, MemoryRecord(("egress", 0), b"", b"", None))
    before.order.expect(1, 6)
    after = Shard(0)
    after.restore(before.snapshot(), {}, {})
    assert after.order.must_wait(0, 1, after.position)
    after.received(3)
    assert not after.order.must_wait(0, 1, after.position)
    assert after.order.must_wait(1, 7, after.position), "the one that was expected still is"
    after.order.copies.accept(ROUTED, 1, 6)
    assert not after.order.must_wait(1, 7, after.position)


def test_an_instruction_of_either_scope_is_what_is_waited_for(tmp_path: Path) -> None:
    """R8, M14: a router with stale routes sends to everyone."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await with_old_and_new(harness)
        await receiver.subscribe("y/1")
        for topic, payload in (("x/1", b"one"), ("y/1", b"two"), ("x/1", b"three"), ("y/1", b"four")):
            sender.publish(topic, payload, 1)
        await turn(1)
        harness.active.stale = True
        harness.active.stopped = False
        harness.active.wake()
        await turn(1)
        assert receiver.payloads == [b"one", b"two", b"three", b"four"]

    run(scenario())


async def order_seen(tmp_path: Path, first: str, second: str) -> tuple[list[bytes], list[bytes]]:
    """What was sent to x/1 and y/1 in turn, and what came, while the subscription `second` takes effect."""
    harness = await HomeHarness(tmp_path).start()
    sender, receiver = await harness.client("sender"), await harness.client("receiver")
    await receiver.subscribe(first)
    await turn(LEAD_S + 5)
    await receiver.subscribe(second)
    sent = []
    for n in range(3_000):
        payload = b"%d" % n
        sender.publish(["x/1", "y/1"][n % 2], payload, n // 2 % 2 + 1)
        sent.append(payload)
        if n % 50 == 0:
            await turn(0.6)  # the route takes effect on the way
    await turn(1)
    assert harness.relinquished() == harness.instructions()
    return sent, receiver.payloads


def test_order_is_kept_when_a_route_takes_effect_in_mid_stream(tmp_path: Path) -> None:
    """R8: each message once and in order, across topics, while direct deliveries give way to instructions."""
    sent, got = run(order_seen(tmp_path, "other/#", "#"))
    assert got == sent


def test_order_is_kept_when_both_routes_are_in_effect(tmp_path: Path) -> None:
    """R8."""
    sent, got = run(order_seen(tmp_path, "#", "#"))
    assert got == sent


def test_order_is_kept_across_an_old_and_a_new_subscription(tmp_path: Path) -> None:
    """R8: for route_lead after a subscription its messages come by another way than those of older ones."""
    sent, got = run(order_seen(tmp_path, "x/1", "y/1"))
    assert sorted(got) == sorted(sent)
    assert got == sent
