"""What a client can tell after the gateway was killed: DUP, and how long its session lives (G8, G9)."""

from pathlib import Path

import pytest

from mqtt.packets import Publish, Subscription
from schemas.identity import shard_of
from tests.unit.gateway.shard.home_harness import LEAD_S, SHARDS, HomeHarness, turn
from tests.unit.gateway.shard.virtual_time import run


@pytest.mark.parametrize("wait_s", [0.0, LEAD_S + 5], ids=["direct deliveries", "by route"])
@pytest.mark.parametrize("aged", [False, True], ids=["from kafka", "from the spool"])
def test_qos_1_that_comes_again_after_a_crash_carries_dup(tmp_path: Path, wait_s: float, aged: bool) -> None:
    """G8; MQTT 5.0, 3.3.1.1: what may have been sent before says so; what cannot have been does not."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        receiver = await harness.client("receiver", mute=True, receive_maximum=2)
        away = await harness.client("away")
        for client in (receiver, away):
            await client.subscribe("a/b")
        await turn(wait_s)
        away.lose()
        await turn(5)
        for n in range(4):
            sender.publish("a/b", b"%d" % n, 1)
        await turn(10 if aged else 0.1)
        assert receiver.payloads == [b"0", b"1"]
        receiver.got.clear()
        receiver.mute = False
        await harness.restart()
        for client in (sender, receiver, away):
            await client.connect()
        await turn(5)
        sender.publish("a/b", b"new", 1)
        await turn(5)
        repeats = {got.payload: got.dup for got in receiver.got}
        assert list(repeats) == [b"0", b"1", b"2", b"3", b"new"]
        assert repeats[b"0"]
        assert repeats[b"1"]
        assert not repeats[b"new"]
        assert [(got.payload, got.dup) for got in away.got] == [
            (payload, False) for payload in (b"0", b"1", b"2", b"3", b"new")
        ]

    run(scenario())


def test_what_a_start_reads_does_not_grow_however_often_the_gateway_is_killed(tmp_path: Path) -> None:
    """Q1: it never lives as long as a message may wait in memory, and moves it to the spool all the same."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, away = await harness.client("sender"), await harness.client("away")
        await away.subscribe("a/b")
        await turn(LEAD_S + 5)
        away.lose()
        read = []
        for n in range(20):
            for m in range(10):
                sender.publish("a/b", b"%d %d" % (n, m), 1)
                await turn(0.2)
            await harness.restart()
            await sender.connect()
            read.append(harness.home.recovered.get("egress", 0))
        assert max(read[10:]) <= max(read[:5])
        await away.connect()
        await turn(2)
        assert away.payloads == [b"%d %d" % (n, m) for n in range(20) for m in range(10)]

    run(scenario())


def test_an_expiry_begins_once_however_often_the_gateway_is_killed(tmp_path: Path) -> None:
    """G9: whoever was connected at the first crash and never came back is gone after the session's time."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        await harness.client("client", expiry_s=60)
        for _ in range(4):
            await turn(19)
            await harness.restart()
        assert harness.home.session("client") is not None
        await turn(4)
        assert harness.home.session("client") is None

    run(scenario())


def test_a_message_expires_though_the_gateway_is_killed(tmp_path: Path) -> None:
    """G8: DUP does not keep alive what expired while the gateway was away, or waits for a client that is away."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await harness.client("sender"), await harness.client("receiver")
        await receiver.subscribe("a/b")
        await turn(LEAD_S + 5)
        receiver.lose()
        await turn(5)
        sender.publish("a/b", b"short", 1, properties={"message_expiry_interval": 10})
        sender.publish("a/b", b"long", 1, properties={"message_expiry_interval": 100})
        await turn(0.1)
        harness.crash()
        await turn(11)
        await harness.start()
        await turn(5)
        await receiver.connect()
        await turn(1)
        assert receiver.payloads == [b"long"]

    run(scenario())


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("retain_handling", [0, 1])
def test_retained_messages_that_suback_promises_survive_a_crash(tmp_path: Path, qos: int, retain_handling: int) -> None:
    """G8, Q1: killed right after SUBACK, before the client has taken them: it has its session, and asks no more."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender = await harness.client("sender")
        for n in range(3):
            sender.publish(f"a/{n}", b"%d" % n, qos, retain=True)
        await turn(1)
        receiver = await harness.client("receiver", mute=True, receive_maximum=1)
        await receiver.subscribe(Subscription("a/+", 2, retain_handling=retain_handling))
        harness.crash()
        receiver.mute = False
        taken = list(receiver.payloads)
        await harness.start()
        await receiver.connect()
        await turn(5)
        assert set(receiver.payloads) == {b"0", b"1", b"2"}
        assert len(receiver.payloads) == 3 or (qos == 1 and len(receiver.payloads) == 3 + len(taken))
        assert all(got.retain for got in receiver.got)
        await turn(10)
        assert harness.spool_rows() == 0
        assert not harness.fatal

    run(scenario())


def test_a_publish_of_an_earlier_session_is_never_taken_for_one_of_the_next(tmp_path: Path) -> None:
    """G8: whatever the clock says; else a packet id would count as in use, and its next message would be lost."""

    async def scenario() -> None:
        harness, ahead_s = await HomeHarness(tmp_path).start(), 0.0
        harness.node.clock = lambda: harness.clock() + ahead_s
        receiver, sender = await harness.client("receiver"), await harness.client("sender")
        await receiver.subscribe("a/b")
        await turn(LEAD_S + 5.1)  # between two checkpoints
        ahead_s = 100.0
        sender.attached.publisher.publish(Publish("a/b", b"of the earlier session", 2, packet_id=1))
        await turn()
        ahead_s = 0.0
        await sender.connect(clean_start=True)
        await harness.restart()
        for client in (receiver, sender):
            await client.connect()
        assert sender.publish("a/b", b"of the next", 2) == 1
        await turn(2)
        assert receiver.payloads == [b"of the earlier session", b"of the next"]

    run(scenario())


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("wait_s", [0.0, LEAD_S + 5], ids=["direct deliveries", "by route"])
def test_a_delivery_that_has_begun_ends_though_the_client_has_unsubscribed(
    tmp_path: Path, qos: int, wait_s: float
) -> None:
    """[MQTT-3.10.4-3], also across a crash. At QoS 2 the packet id would else be given to another message, which the
    client would take for a copy and lose."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await harness.client("sender"), await harness.client("receiver", mute=True)
        await receiver.subscribe(Subscription("a", qos), Subscription("b", qos))
        await turn(wait_s)
        sender.publish("a", b"begun", 2)
        await turn()
        assert receiver.payloads == [b"begun"]
        await receiver.unsubscribe("a")
        await harness.restart()
        for client in (sender, receiver):
            await client.connect()
        await turn()
        receiver.mute = False
        receiver.answer_all()
        await turn(LEAD_S + 10)
        sender.publish("b", b"another", 2)
        await turn()
        assert list(dict.fromkeys(receiver.payloads)) == [b"begun", b"another"]
        assert len(receiver.payloads) == (3 if qos == 1 else 2)
        assert harness.relinquished() == harness.instructions()
        assert harness.spool_rows() == 0

    run(scenario())


def test_what_was_sent_before_a_crash_keeps_its_packet_id_however_often_it_is_loaded(tmp_path: Path) -> None:
    """G8: its connection ends while the spool is read, and the message is dropped from memory and loaded again."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await harness.client("sender"), await harness.client("receiver", mute=True)
        sender.publish(receiver.inbox, b"one", 2)
        await turn(20)
        await harness.restart()
        await sender.connect()
        await receiver.connect()
        receiver.lose()
        await turn(1)
        sender.publish(receiver.inbox, b"two", 1)
        await turn(20)
        assert receiver.attached.session.backlog
        await receiver.connect()
        await turn(1)
        receiver.mute = False
        receiver.answer_all()
        await turn(1)
        assert receiver.payloads == [b"one", b"two"]

    run(scenario())


def test_what_kafka_has_deleted_meanwhile_is_not_waited_for(tmp_path: Path) -> None:
    """Q1: the gateway was away for longer than `egress` keeps records. The exchange of a message that is gone ends, its
    packet id is free, and no later start reads what was read already."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await harness.client("sender"), await harness.client("receiver", mute=True)
        await receiver.subscribe("a/b")
        await turn(LEAD_S + 5)
        sender.publish("a/b", b"gone", 2)
        await turn(2)  # a checkpoint has seen it, and the spool does not have it yet
        assert receiver.payloads == [b"gone"]
        harness.crash()
        shard = shard_of("receiver", SHARDS)
        harness.broker.delete(harness.topics.egress, shard)
        receiver.mute = False
        await harness.restart()
        for client in (sender, receiver):
            await client.connect()
        sender.publish("a/b", b"new", 2)
        await turn(20)
        assert receiver.payloads == [b"gone", b"new"]
        session = harness.home.session("receiver")
        assert session is not None
        assert not session.is_recovering
        await harness.restart()
        assert harness.home.recovered["egress"] == 0

    run(scenario())


@pytest.mark.parametrize("received", [0, 1])
@pytest.mark.parametrize("aged", [False, True])
def test_a_retained_message_that_was_sent_twice_at_qos_2_ends_twice(tmp_path: Path, received: int, aged: bool) -> None:
    """G8: two filters of a SUBSCRIBE match it, so there are two exchanges; both go on after a crash, or end."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await harness.client("sender"), await harness.client("receiver", mute=True)
        sender.publish("r/1", b"x", 2, retain=True)
        await turn(1)
        await receiver.subscribe("r/1", "r/+")
        await turn(10 if aged else 1)
        assert receiver.payloads == [b"x", b"x"]
        for word, packet_id in receiver._unanswered[:received]:
            receiver._say(word, packet_id)
        await turn(1)
        await harness.restart()
        receiver.mute = False
        await receiver.connect()
        await turn(30)
        assert receiver.payloads == [b"x", b"x"]
        assert not receiver._incoming
        session = harness.home.session("receiver")
        assert session is not None
        assert not session.in_flight
        assert not session.restored
        assert harness.spool_rows() == 0
        assert not harness.fatal

    run(scenario())
