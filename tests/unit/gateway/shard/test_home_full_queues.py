"""A session whose queue is full: what is dropped, by each choice, in memory and in the spool (R9, G9)."""

from pathlib import Path

import pytest

from mqtt.codes import ReasonCode
from tests.unit.gateway.shard.home_client import Client
from tests.unit.gateway.shard.home_harness import LEAD_S, HomeHarness, turn
from tests.unit.gateway.shard.virtual_time import run


async def meeting(
    tmp_path: Path, receive_maximum: int = 65_535, **limits: int | str
) -> tuple[HomeHarness, Client, Client]:
    """A sender, and a receiver whose route is in effect."""
    harness = await HomeHarness(tmp_path, **limits).start()
    sender = await harness.client("sender")
    receiver = await harness.client("receiver", receive_maximum=receive_maximum)
    await receiver.subscribe("a")
    await turn(LEAD_S + 5)
    return harness, sender, receiver


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, end)]


async def send(sender: Client, payloads: list[bytes], qos: int, pause_s: float = 0.0) -> None:
    for payload in payloads:
        sender.publish("a", payload, qos)
        if pause_s:
            await turn(pause_s)


def dropped(harness: HomeHarness, client: str) -> list[bytes]:
    """Payloads that have the outcome `dropped` for a client, in the order of `ingress`."""
    by_id = {
        (record.headers() or [])[0][1].decode(): record.value() or b""
        for p in (0, 1)
        for record in harness.broker.partitions[harness.topics.ingress, p]
    }
    ids = {e.id for e in harness.events() for d in e.deliveries if (d.client, d.outcome) == (client, "dropped")}
    return [payload for message_id, payload in by_id.items() if message_id in ids]


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("pause_s", [0.0, 1.0], ids=["at once", "into the spool"])
def test_the_oldest_make_room(tmp_path: Path, qos: int, pause_s: float) -> None:
    """G9: the newest are delivered, in order; the others have the outcome `dropped`, each once."""

    async def scenario() -> None:
        harness, sender, receiver = await meeting(tmp_path, queue_messages=5, queue_full="drop_oldest")
        receiver.lose()
        await send(sender, numbers(0, 30), qos, pause_s)
        await turn(20)
        session = receiver.attached.session
        assert session.queued == 5
        assert not session.dropping
        assert dropped(harness, "receiver") == numbers(0, 25)
        assert harness.outcomes("receiver").count("dropped") == 25
        assert harness.node.counts["dropped_queue_full"] == 25
        await receiver.connect()
        await turn(5)
        assert receiver.payloads == numbers(25, 30)
        assert harness.relinquished() == harness.instructions()
        assert (session.queued, session.queued_bytes) == (0, 0)
        assert not session.dropped
        assert harness.spool_rows() == 0
        assert not harness.fatal

    run(scenario())


@pytest.mark.parametrize("spooled", [False, True])
def test_the_oldest_make_room_for_bytes(tmp_path: Path, spooled: bool) -> None:
    """G9: as many as needed; what is larger than the whole queue is dropped itself."""

    async def scenario() -> None:
        harness, sender, receiver = await meeting(tmp_path, queue_bytes=1_000, queue_full="drop_oldest")
        receiver.lose()
        await send(sender, [b"%d" % n * 100 for n in range(9)], 1)
        await turn(20 if spooled else 1)
        await send(sender, [b"a" * 350, b"b" * 1_001], 1)
        await turn(20)
        assert [payload[:1] for payload in dropped(harness, "receiver")] == [b"0", b"1", b"2", b"b"]
        await receiver.connect()
        await turn(5)
        assert [payload[:1] for payload in receiver.payloads] == [*numbers(3, 9), b"a"]
        assert harness.relinquished() == harness.instructions()
        assert receiver.attached.session.queued_bytes == 0

    run(scenario())


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("offline_s", [0.0, 20.0])
def test_what_was_sent_stays(tmp_path: Path, qos: int, offline_s: float) -> None:
    """G8: exchanges in flight are brought to their end, also those that wait for a new connection or in the spool."""

    async def scenario() -> None:
        harness, sender, receiver = await meeting(tmp_path, 3, queue_messages=4, queue_full="drop_oldest")
        receiver.mute = True
        await send(sender, numbers(0, 10), qos)
        await turn(1)
        assert receiver.payloads == numbers(0, 3)
        if offline_s:
            receiver.lose()
            await turn(offline_s)
            receiver.receive_maximum = 2  # one of them has to wait, at the head
            await receiver.connect()
            await send(sender, numbers(10, 20), qos)
            await turn(1)
        receiver.mute = False
        receiver.answer_all()
        await turn(20)
        last = 20 if offline_s else 10
        assert set(numbers(0, 3)).isdisjoint(dropped(harness, "receiver"))
        assert list(dict.fromkeys(receiver.payloads)) == [
            payload for payload in numbers(0, last) if payload not in dropped(harness, "receiver")
        ]
        assert receiver.payloads[-1] == b"%d" % (last - 1)
        assert harness.relinquished() == harness.instructions()

    run(scenario())


def test_qos_0_gives_way_itself(tmp_path: Path) -> None:
    """A QoS 0 message takes no room from others."""

    async def scenario() -> None:
        harness, sender, receiver = await meeting(tmp_path, 1, queue_messages=3, queue_full="drop_oldest")
        receiver.mute = True
        await send(sender, numbers(0, 4), 1)
        await turn()
        sender.publish("a", b"light", 0)
        await turn()
        assert dropped(harness, "receiver") == [b"light"]
        assert harness.node.counts["dropped_queue_full"] == 1
        receiver.mute = False
        receiver.answer_all()
        await turn(1)
        assert receiver.payloads == numbers(0, 4)

    run(scenario())


def test_a_slow_client_is_told_and_its_session_stays(tmp_path: Path) -> None:
    """R9: DISCONNECT 0x97; what does not fit is dropped as it comes; the client finds what waits."""

    async def scenario() -> None:
        harness, sender, receiver = await meeting(tmp_path, 1, queue_messages=3, queue_full="disconnect")
        receiver.mute = True
        await send(sender, numbers(0, 4), 2)
        await turn()
        assert receiver.closed_by is None
        await send(sender, numbers(4, 7), 2)
        await turn()
        assert receiver.closed_by is ReasonCode.QUOTA_EXCEEDED
        last = harness.presence("receiver")[-1]
        assert (last.event, last.reason) == ("lost", "quota_exceeded")
        await turn(1)
        assert dropped(harness, "receiver") == numbers(4, 7)
        receiver.mute = False
        await receiver.connect()
        assert receiver.present
        await turn(1)
        assert list(dict.fromkeys(receiver.payloads)) == numbers(0, 4)
        assert harness.relinquished() == harness.instructions()

    run(scenario())


def test_a_session_that_ends_with_its_connection_ends_when_it_is_too_slow(tmp_path: Path) -> None:
    """R9: others that get the same message are not disturbed."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path, queue_messages=2, queue_full="disconnect").start()
        sender = await harness.client("sender")
        slow = await harness.client("slow", expiry_s=0, receive_maximum=1, mute=True)
        quick = await harness.client("quick")
        for client in (slow, quick):
            await client.subscribe("a")
        await turn(LEAD_S + 5)
        await send(sender, numbers(0, 20), 1)
        await turn(1)
        assert slow.closed_by is ReasonCode.QUOTA_EXCEEDED
        assert harness.home.session("slow") is None
        assert quick.payloads == numbers(0, 20)
        assert harness.relinquished() == harness.instructions()
        assert not harness.fatal

    run(scenario())


def test_what_was_dropped_does_not_come_back(tmp_path: Path) -> None:
    """Q2, G9: crashed right after the outcome is there, before any commit of the receiver's spool."""

    async def scenario() -> None:
        harness, sender, receiver = await meeting(tmp_path, queue_messages=5, queue_full="drop_oldest")
        receiver.lose()
        await send(sender, numbers(0, 5), 1)
        await turn(20)
        await send(sender, numbers(5, 8), 1)
        while len(receiver.attached.session.dropping) < 3:
            await turn(0.001)
        assert dropped(harness, "receiver") == []
        harness.spool.dies, harness.spool.dying = "before", receiver.attached.home.number
        await turn(5)
        assert not harness.is_up
        assert dropped(harness, "receiver") == numbers(0, 3)
        await harness.start()
        await receiver.connect()
        await turn(30)
        assert receiver.payloads == numbers(3, 8)
        assert set(harness.outcomes("receiver")) == {"dropped", "delivered"}
        assert harness.outcomes("receiver").count("delivered") == 5
        assert harness.relinquished() == harness.instructions()
        session = receiver.attached.session
        assert not any((session.dropped, session.dropped_before))

    run(scenario())


def test_a_restart_makes_no_queue_fuller(tmp_path: Path) -> None:
    """G9: what waits in the spool counts as before, in messages and in bytes."""

    async def scenario() -> None:
        harness, sender, receiver = await meeting(tmp_path, queue_bytes=200, queue_full="drop_oldest")
        receiver.lose()
        await send(sender, numbers(10, 50), 1)
        await turn(20)
        await harness.restart()
        await sender.connect()
        await send(sender, numbers(50, 60), 1)
        await turn(20)
        assert dropped(harness, "receiver") == []
        await send(sender, numbers(60, 65), 1)
        await turn(20)
        assert dropped(harness, "receiver") == numbers(10, 15)
        await receiver.connect()
        await turn(5)
        assert receiver.payloads == numbers(15, 65)
        assert harness.relinquished() == harness.instructions()

    run(scenario())


def test_a_lower_limit_drops_nothing_that_waits_already(tmp_path: Path) -> None:
    """G9: it is for what comes."""

    async def scenario() -> None:
        harness, sender, receiver = await meeting(tmp_path, queue_messages=10)
        receiver.lose()
        await send(sender, numbers(0, 10), 1)
        await turn(20)
        harness.limits["queue_messages"] = 3
        await harness.restart()
        await receiver.connect()
        await turn(5)
        assert receiver.payloads == numbers(0, 10)

    run(scenario())


def test_nothing_is_sent_behind_a_drop_that_is_not_durable(tmp_path: Path) -> None:
    """R8: a crash could bring the dropped message again, behind what follows it."""

    async def scenario() -> None:
        harness, sender, receiver = await meeting(tmp_path, 1, queue_messages=1, queue_full="drop_oldest")
        receiver.mute = True
        harness.bus.held_acks = {harness.topics.sessions}
        await send(sender, numbers(0, 3), 1)
        await turn(0.1)
        receiver.mute = False
        receiver.answer_all()
        await turn(0.1)
        assert receiver.payloads == [b"0"]
        harness.bus.held_acks = set()
        harness.bus.release()
        await turn(0.1)
        assert receiver.payloads == [b"0", b"2"]

    run(scenario())


@pytest.mark.parametrize("most", [5, 800], ids=["in memory", "in the spool too"])
@pytest.mark.parametrize("qos", [1, 2])
def test_what_has_expired_makes_room_though_the_client_is_connected(tmp_path: Path, qos: int, most: int) -> None:
    """G9: the client answers nothing, and its window is full. New messages do not give way to expired ones; what it was
    sent stays."""

    async def scenario() -> None:
        harness, sender, receiver = await meeting(tmp_path, 1, queue_messages=most, queue_full="drop_newest")
        receiver.mute = True
        sender.publish("a", b"first", qos)
        await turn(1)
        receiver.lose()
        for payload in numbers(0, most - 1):
            sender.publish("a", payload, qos, properties={"message_expiry_interval": 60})
        await turn(20)
        await receiver.connect()
        await turn(60)
        assert receiver.attached.session.queued == 0
        assert harness.outcomes("receiver") == ["expired"] * (most - 1)
        sender.publish("a", b"new", qos)
        await turn(1)
        receiver.mute = False
        receiver.answer_all()
        await turn(20)
        assert list(dict.fromkeys(receiver.payloads)) == [b"first", b"new"]
        assert (receiver.attached.session.queued, receiver.attached.session.queued_bytes) == (0, 0)
        assert harness.spool_rows() == 0
        assert harness.relinquished() == harness.instructions()

    run(scenario())


def test_what_one_client_was_sent_does_not_hide_what_has_expired_of_others(tmp_path: Path) -> None:
    """G9: a client has more expired messages in hand than are looked at in one go, and acknowledges none."""

    async def scenario() -> None:
        harness, sender, receiver = await meeting(tmp_path)
        away = await harness.client("offline")
        assert away.attached.home is receiver.attached.home
        await away.subscribe("b")
        await turn(LEAD_S + 5)
        away.lose()
        receiver.mute = True
        lifetime = {"message_expiry_interval": 30}
        for payload in numbers(0, 1_001):
            sender.publish("a", payload, 1, properties=lifetime)
        await turn(1)
        sender.publish("b", b"expires", 1, properties=lifetime)
        await turn(60)
        assert harness.outcomes("offline") == ["expired"]
        assert harness.outcomes("receiver") == []

    run(scenario())
