"""Subscribing is instant, though a route takes effect later (issue 3)."""

import asyncio
from pathlib import Path

from mqtt.packets import Subscription
from tests.unit.gateway.shard.home_harness import LEAD_S, HomeHarness, turn
from tests.unit.gateway.shard.virtual_time import run


def test_a_thousand_fresh_topics_each_published_at_once(tmp_path: Path) -> None:
    """Issue 3: subscribe, then publish at once, 1,000 times: each message arrives once."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await harness.client("sender"), await harness.client("receiver")
        for n in range(1_000):
            await receiver.subscribe(f"fresh-{n}/x")
            sender.publish(f"fresh-{n}/x", b"%d" % n, n % 2 + 1)
            await turn(0.0731)  # 73 s in all: the reader ends and begins again, and sees routes take effect
        await turn(LEAD_S + 5)
        assert receiver.payloads == [b"%d" % n for n in range(1_000)]

    run(scenario())


def test_the_reader_does_not_end_between_beginning_and_the_route(tmp_path: Path) -> None:
    """A route that is long in being stored: the reader has begun for it, nobody else needs it, and it stays."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await harness.client("sender"), await harness.client("receiver")
        await turn(10)
        harness.bus.held_acks = {harness.topics.routes}
        waiting = asyncio.create_task(receiver.subscribe("a"))
        await turn(8)
        harness.bus.held_acks = set()
        harness.bus.release()
        await waiting
        sender.publish("a", b"one", 1)
        await turn(1)
        assert receiver.payloads == [b"one"]

    run(scenario())


def test_a_reader_that_begins_again_for_nobody_forgets_nothing(tmp_path: Path) -> None:
    """G8: what was done with stays so, or the next restart would read all again, of which exchanges are forgotten."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await harness.client("sender"), await harness.client("receiver")
        await receiver.subscribe("a")
        sender.publish("a", b"early", 2)
        await turn(LEAD_S + 10)
        await receiver.subscribe("b")
        await turn(2)  # a checkpoint notes that the reader reads
        reading = receiver.attached.home.catch_up
        done_ms = reading.done_ms
        assert done_ms > 0
        harness.spool.die, harness.spool.dies = harness.crash, "before"  # no other checkpoint follows
        await receiver.unsubscribe("b")
        for _ in range(3):
            await harness.restart()
            await receiver.connect()
            await turn(10)
            assert receiver.attached.home.catch_up.done_ms >= done_ms
        assert receiver.payloads == [b"early"]

    run(scenario())


def test_racing_subscribers_of_one_key_and_one_that_fails(tmp_path: Path) -> None:
    """One event for all of them; if it is refused, all hear of it and the next one tries again."""

    async def scenario() -> None:
        from confluent_kafka import KafkaError

        from gateway.errors import BusError

        harness = await HomeHarness(tmp_path).start()
        clients = [await harness.client(f"client-{n}") for n in range(8)]
        harness.bus.refused[harness.topics.routes] = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        results = await asyncio.gather(*(c.subscribe("a/1") for c in clients), return_exceptions=True)
        assert all(isinstance(result, BusError) for result in results)
        harness.bus.refused.clear()
        waiting = [asyncio.create_task(client.subscribe("a/b/1", "a/b/2")) for client in clients]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        shards = {client.attached.session.shard for client in clients}
        assert len(harness.broker.partitions[harness.topics.routes, 0]) == len(shards)
        clients[0].publish("a/b/1", b"one", 1)
        await turn()
        assert [client.payloads for client in clients[1:]] == [[b"one"]] * 7

    run(scenario())


def test_a_checkpoint_does_not_take_qos_0_from_a_client_that_is_about_to_get_it(tmp_path: Path) -> None:
    """Direct deliveries for others go to the spool at once; what waits for this client at QoS 0 stays, in order."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, archive = await harness.client("sender"), await harness.client("archive", mute=True)
        receiver = await harness.client("receiver")
        await archive.subscribe("a")
        await receiver.subscribe(Subscription("a", 0))
        link = receiver.link
        assert link is not None
        link.writable = False
        for n in range(3):
            sender.publish("a", b"%d" % n, 1)
        await turn(1)
        assert harness.spool_rows() == 3, "the archive's copies are durable"
        assert receiver.payloads == []
        link.writable = True
        receiver.attached.home.writable(receiver.attached.session, link)
        await turn()
        assert receiver.payloads == [b"0", b"1", b"2"]
        archive.answer_all()
        await turn(1)
        assert archive.payloads == [b"0", b"1", b"2"]
        assert harness.outcomes("receiver") == ["sent"] * 3
        assert harness.outcomes("archive") == ["delivered"] * 3
        assert harness.spool_rows() == 0

    run(scenario())
