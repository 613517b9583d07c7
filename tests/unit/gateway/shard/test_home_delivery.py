"""A message from a publisher to its recipients through a whole home (Q1, R4, R7, R8, M14, G8)."""

from pathlib import Path

import pytest

from gateway.shard.messages import Delivery, Message
from mqtt.codes import ReasonCode
from mqtt.packets import Subscription
from tests.unit.gateway.shard.home_harness import LEAD_S, HomeHarness, turn
from tests.unit.gateway.shard.virtual_time import run

each_qos = pytest.mark.parametrize("qos", [0, 1, 2])
effective = pytest.mark.parametrize("wait_s", [0.0, LEAD_S + 5], ids=["before the route", "by the route"])


@each_qos
@effective
def test_a_message_arrives_once_and_is_relinquished_once_done(tmp_path: Path, qos: int, wait_s: float) -> None:
    """Q1, R4, M14: two routers, one delivery; before its route is in effect as well as by it."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await harness.client("sender"), await harness.client("receiver")
        await receiver.subscribe("a/b/#")
        await turn(wait_s)
        sender.publish("a/b/c", b"one", qos)
        assert not sender.acknowledged
        await turn()
        assert [(got.topic, got.payload, got.qos) for got in receiver.got] == [("a/b/c", b"one", qos)]
        assert sender.acknowledged == ({b"one"} if qos else set())
        await turn(10)
        assert receiver.payloads == [b"one"]
        assert harness.relinquished() == harness.instructions()
        assert harness.completed() == set(harness.published())
        expected = "delivered" if qos else "sent"
        assert set(harness.outcomes("receiver")) == {expected}
        assert not harness.fatal

    run(scenario())


@each_qos
def test_what_is_too_large_for_a_client_is_dropped(tmp_path: Path, qos: int) -> None:
    """[MQTT-3.1.2-25]: and the ledger says so."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, small = await harness.client("sender"), await harness.client("small")
        await small.subscribe("a")
        await turn(LEAD_S + 5)
        link = small.link
        assert link is not None

        def refuse(message: Message, delivery: Delivery) -> bool:
            if delivery.qos:
                small.attached.home.undeliverable(small.attached.session, delivery)
            return False

        link.deliver = refuse  # type: ignore[method-assign]
        sender.publish("a", b"large", qos)
        await turn(1)
        assert harness.outcomes("small") == ["dropped"]
        assert harness.relinquished() == harness.instructions()

    run(scenario())


@pytest.mark.parametrize("first", ["routed", "everyone"])
def test_both_scopes_give_one_delivery_and_all_instructions_are_relinquished(tmp_path: Path, first: str) -> None:
    """M14, R4: one router decides by the routes, its peer for everyone; each decision is completed by itself."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await harness.client("sender"), await harness.client("receiver", mute=True)
        await receiver.subscribe("a/b")
        await turn(LEAD_S + 5)
        (harness.backup if first == "routed" else harness.active).stale = True
        sender.publish("a/b", b"one", 1)
        await turn(1)
        assert receiver.payloads == [b"one"]
        scopes = {scope for _id, scope, _number in harness.instructions()}
        assert scopes == {"routed", "everyone"}
        held_back = {i for i in harness.instructions() - harness.relinquished() if i[1] == "routed"}
        assert held_back, "the receiver is not done"
        receiver.answer_all()
        await turn(1)
        assert harness.relinquished() == harness.instructions()
        assert receiver.payloads == [b"one"]

    run(scenario())


def test_a_late_decision_of_the_other_scope_waits_for_the_recipient_in_the_spool(tmp_path: Path) -> None:
    """R4: never before the last recipient is done, also if the message is in the spool when the other copy comes."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await harness.client("sender"), await harness.client("receiver")
        await receiver.subscribe("a/b")
        await turn(LEAD_S + 5)
        receiver.lose()
        harness.backup.stale, harness.backup.delay_s = True, 20.0
        sender.publish("a/b", b"one", 1)
        await turn(30)
        mine = next(i for i in harness.instructions() if i[1] == "routed")
        everyone = {i for i in harness.instructions() if i[1] == "everyone"}
        assert len(everyone) == 2
        assert mine not in harness.relinquished()
        assert len(everyone & harness.relinquished()) == 1, "only the shard without recipients is done"
        await harness.restart()
        await receiver.connect()
        await turn(2)
        assert receiver.payloads == [b"one"]
        assert harness.relinquished() == harness.instructions()

    run(scenario())


def test_a_message_is_relinquished_with_its_last_recipient(tmp_path: Path) -> None:
    """R4, R7: of two recipients in a shard the slower one decides; offline ones too."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        receivers = [await harness.client(f"receiver-{n}") for n in range(6)]
        for receiver in receivers:
            await receiver.subscribe("a/b")
        await turn(LEAD_S + 5)
        receivers[0].lose()
        receivers[1].mute = True
        sender.publish("a/b", b"one", 2)
        for wait_s in (1, 20):  # from memory, and from the spool
            await turn(wait_s)
            done = harness.relinquished()
            shards = {r.attached.session.shard for r in receivers[:2]}
            assert len(harness.instructions() - done) == len(shards)
        receivers[1].mute = False
        receivers[1].answer_all()
        await receivers[0].connect()
        await turn(2)
        assert harness.relinquished() == harness.instructions()
        assert all(receiver.payloads == [b"one"] for receiver in receivers)

    run(scenario())


def test_a_message_nobody_wants_completes_at_once(tmp_path: Path) -> None:
    """R7."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        sender.publish("nobody/here", b"one", 1)
        sender.publish("@nobody", b"two", 1)
        await turn(1)
        assert harness.completed() == set(harness.published())

    run(scenario())


@each_qos
def test_an_inbox_needs_no_subscription(tmp_path: Path, qos: int) -> None:
    """R12, G9: `@client` reaches the client, and waits for it if its session does."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await harness.client("sender"), await harness.client("receiver")
        sender.publish("@receiver", b"online", qos)
        await turn()
        receiver.lose()
        sender.publish("@receiver", b"offline", qos)
        await turn(10)
        await receiver.connect()
        await turn(1)
        assert receiver.payloads == ([b"online", b"offline"] if qos else [b"online"])
        assert await receiver.subscribe("@receiver", "@sender") == [2, ReasonCode.NOT_AUTHORIZED]
        assert harness.relinquished() == harness.instructions()

    run(scenario())


def test_overlapping_subscriptions_give_one_message(tmp_path: Path) -> None:
    """MQTT 5.0, 3.3.4: the highest QoS, all identifiers; no local where asked."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        client = await harness.client("client")
        await client.subscribe(Subscription("a/#", 1), identifier=7)
        await client.subscribe(Subscription("a/+", 2), identifier=9)
        await client.subscribe(Subscription("a/b", 2, no_local=True), identifier=11)
        client.publish("a/b", b"one", 2)
        await turn()
        assert [(got.qos, sorted(got.identifiers)) for got in client.got] == [(2, [7, 9])]

    run(scenario())


def test_the_window_of_the_client_is_kept_and_order_with_it(tmp_path: Path) -> None:
    """MQTT 5.0, 4.9: never more unanswered than the client's Receive Maximum; also after reconnecting with less."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        receiver = await harness.client("receiver", receive_maximum=10, mute=True)
        await receiver.subscribe("a")
        sent = [b"%d" % n for n in range(100)]
        for n, payload in enumerate(sent):
            sender.publish("a", payload, n % 2 + 1)
        await turn(1)
        assert len(receiver.got) == receiver.most_in_flight == 10
        receiver.lose()
        receiver.receive_maximum, receiver.most_in_flight = 3, 0
        await receiver.connect()
        await turn(1)
        assert receiver.most_in_flight == 3
        for _ in range(400):
            receiver.answer_all()
            await turn(0.3)
        assert receiver.most_in_flight == 3
        assert list(dict.fromkeys(receiver.payloads)) == sent
        assert harness.relinquished() == harness.instructions()

    run(scenario())


def test_a_message_too_large_for_one_client_is_done_for_it_alone(tmp_path: Path) -> None:
    """[MQTT-3.1.2-25], R4: outcome `dropped`, at any QoS, and the others are still waited for."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        small, other = await harness.client("small-0"), await harness.client("other", mute=True)
        await small.subscribe(Subscription("a", 0))
        await other.subscribe(Subscription("a", 1))
        for client in (small, other):  # in one shard
            client.publish("none", b"", 0)
        await turn(LEAD_S + 5)
        link = small.link
        assert link is not None
        taken = []
        link.deliver = lambda message, delivery: taken.append(delivery)  # type: ignore[method-assign]
        sender.publish("a", b"large", 1)
        await turn()
        small.attached.home.undeliverable(small.attached.session, taken[0])
        await turn()
        if small.attached.session.shard == other.attached.session.shard:
            assert not harness.relinquished(b"large")
        other.answer_all()
        await turn(1)
        assert harness.relinquished() == harness.instructions()

    run(scenario())


def test_a_queue_that_is_full_drops_the_newest_and_says_so(tmp_path: Path) -> None:
    """R9: outcome `dropped`, counted; the message is done for that recipient."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path, queue_messages=5).start()
        sender, receiver = await harness.client("sender"), await harness.client("receiver")
        await receiver.subscribe("a")
        await turn(LEAD_S + 5)
        receiver.lose()
        for n in range(8):
            sender.publish("a", b"%d" % n, 1)
        await turn(20)
        assert harness.outcomes("receiver").count("dropped") == 3
        assert harness.node.counts["dropped_queue_full"] == 3
        await receiver.connect()
        await turn(2)
        assert receiver.payloads == [b"0", b"1", b"2", b"3", b"4"]
        assert harness.relinquished() == harness.instructions()
        for n in range(4):
            sender.publish("a", b"more %d" % n, 1)
        await turn(2)
        assert len(receiver.payloads) == 9, "the queue has room again"

    run(scenario())


def test_a_slow_client_loses_qos_0_but_not_its_room(tmp_path: Path) -> None:
    """QoS 0 that waits too long for a slow connection is dropped; the queue is not taken for full ever after."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path, queue_bytes=3_000).start()
        sender, receiver = await harness.client("sender"), await harness.client("receiver")
        await receiver.subscribe("a")
        await turn(LEAD_S + 5)
        for _ in range(5):
            link = receiver.link
            assert link is not None
            link.writable = False
            sender.publish("a", b"x" * 1_000, 0)
            sender.publish("a", b"y" * 1_000, 0)
            await turn(10)
            link.writable = True
            receiver.attached.home.writable(receiver.attached.session, link)
            await turn()
        assert receiver.got == []
        assert harness.node.counts["dropped_queue_full"] == 0
        sender.publish("a", b"z" * 1_000, 0)
        await turn()
        assert [payload[:1] for payload in receiver.payloads] == [b"z"]
        assert harness.relinquished() == harness.instructions()

    run(scenario())


@pytest.mark.parametrize("offline_s", [2, 60], ids=["in memory", "in the spool"])
def test_a_message_expires_where_it_waits(tmp_path: Path, offline_s: float) -> None:
    """MQTT 5.0, 3.3.2.3.3: not delivered after its time, outcome `expired`; what comes behind it is delivered."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await harness.client("sender"), await harness.client("receiver")
        await receiver.subscribe("a")
        await turn(LEAD_S + 5)
        receiver.lose()
        for n in range(1_200):
            sender.publish("a", b"%d" % n, 1, properties={"message_expiry_interval": 1})
        sender.publish("a", b"last", 1)
        await turn(offline_s)
        await receiver.connect()
        await turn(3)
        assert receiver.payloads == [b"last"]
        sender.publish("a", b"new", 1)
        await turn(3)
        assert receiver.payloads == [b"last", b"new"]
        assert harness.outcomes("receiver").count("expired") == 1_200
        assert harness.relinquished() == harness.instructions()

    run(scenario())


def test_qos0_is_not_dropped_because_the_session_log_is_slow(tmp_path: Path) -> None:
    """R9: the client takes all that it is sent; what is at QoS 2 in front waits for Kafka."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender", expiry_s=0)  # a checkpoint would wait for its window
        receiver = await harness.client("receiver")
        await receiver.subscribe("a")
        await turn(LEAD_S + 5)
        harness.bus.held_acks = {harness.topics.sessions}
        sender.publish("a", b"2", 2)
        await turn(0.02)
        sender.publish("a", b"0", 0)
        await turn(3 * harness.settings().gateway.spool_after_s)
        assert receiver.payloads == []
        harness.bus.held_acks = set()
        harness.bus.release()
        await turn(1)
        assert receiver.payloads == [b"2", b"0"]

    run(scenario())
