"""Sessions over connections: resuming, taking over, expiry, presence (G8, G9, R12)."""

import asyncio
from pathlib import Path

import pytest

from gateway.shard.arrivals import Arrival
from gateway.shard.shard_home import Attached
from mqtt.codes import ReasonCode
from schemas.session_log import WillRecord
from tests.unit.gateway.shard.home_client import ClientLink
from tests.unit.gateway.shard.home_harness import LEAD_S, HomeHarness, turn
from tests.unit.gateway.shard.virtual_time import run


@pytest.mark.parametrize("offline_s", [0.0, 1.0, 30.0])
def test_a_persistent_session_gets_what_it_missed_in_order(tmp_path: Path, offline_s: float) -> None:
    """G9, R8: more than a page of the spool, while more comes."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await harness.client("sender"), await harness.client("receiver", receive_maximum=20)
        await receiver.subscribe("a")
        await turn(LEAD_S + 5)
        sent = []

        def publish(n: int) -> None:
            sent.append(b"%d" % len(sent))
            for payload in sent[-1:]:
                sender.publish("a", payload, n % 2 + 1)

        for n in range(700):
            publish(n)
        await turn()
        for _ in range(3):
            receiver.lose()
            for n in range(700):
                publish(n)
            await turn(offline_s)
            await receiver.connect()
            assert receiver.present
            for n in range(100):
                publish(n)
                await turn(0.002)
        await turn(20)
        assert list(dict.fromkeys(receiver.payloads)) == sent
        twos = [got.payload for got in receiver.got if got.qos == 2]
        assert len(twos) == len(set(twos))
        assert harness.relinquished() == harness.instructions()
        assert not receiver.attached.session.put_back, "nothing is remembered for ever"

    run(scenario())


def test_a_client_that_comes_and_goes_at_any_moment_loses_nothing(tmp_path: Path) -> None:
    """G9: the moments between noting a row, committing it, and loading it again are no holes."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await harness.client("sender"), await harness.client("receiver", receive_maximum=7)
        await receiver.subscribe("a")
        sent = []
        for n in range(1_500):
            sent.append(b"%d" % n)
            sender.publish("a", sent[-1], n % 2 + 1)
            if n % 7 == 3:
                receiver.lose()
            if n % 7 == 5:
                await receiver.connect()
            if n % 3 == 0:
                await turn(0.083)
        await receiver.connect()
        await turn(60)
        assert list(dict.fromkeys(receiver.payloads)) == sent
        twos = [got.payload for got in receiver.got if got.qos == 2]
        assert len(twos) == len(set(twos))
        assert harness.relinquished() == harness.instructions()

    run(scenario())


def test_a_slow_client_with_a_backlog_gets_each_message_once(tmp_path: Path) -> None:
    """G8: what comes while the backlog is loaded goes to the spool itself, and is not loaded a second time."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await harness.client("sender"), await harness.client("receiver", receive_maximum=5)
        await receiver.subscribe("a")
        await turn(LEAD_S + 5)
        receiver.lose()
        sent = [b"%d" % n for n in range(1_400)]
        for payload in sent[:1_200]:
            sender.publish("a", payload, 2)
        await turn(10)
        receiver.mute = True
        await receiver.connect()
        for payload in sent[1_200:]:
            sender.publish("a", payload, 2)
        for _ in range(700):
            await turn(0.1)
            receiver.answer_all()
        receiver.mute = False
        receiver.answer_all()
        await turn(5)
        assert receiver.payloads == sent
        assert harness.relinquished() == harness.instructions()

    run(scenario())


def test_a_connection_is_taken_over(tmp_path: Path) -> None:
    """MQTT 5.0, 3.1.4; R12: the earlier one ends with 0x8E, its session goes on; it is reported lost once."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        client = await harness.client("client", will=WillRecord("wills/x", b"gone", 1, False, b"\0", 0, None))
        watcher = await harness.client("watcher")
        await watcher.subscribe("wills/#")
        await client.subscribe("a")
        first = client.link
        await client.connect()
        assert client.closed_by == ReasonCode.SESSION_TAKEN_OVER
        assert client.present
        assert client.link is not first
        watcher.publish("a", b"one", 1)
        await turn()
        assert client.payloads == [b"one"]
        assert watcher.payloads == [b"gone"], "the will of the connection that was taken over"
        assert [e.event for e in harness.presence("client")] == ["connected", "lost", "connected"]

    run(scenario())


def test_a_taken_over_session_lives_its_whole_time(tmp_path: Path) -> None:
    """G9: no timer of an earlier connection ends it before its time."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        client = await harness.client(
            "client", expiry_s=10, will=WillRecord("wills/x", b"gone", 1, False, b"\0", 10, None)
        )
        await turn(1)
        await client.connect()
        await turn(4)
        client.lose()
        await turn(9)
        assert not harness.ids_of(b"gone")
        await client.connect()
        assert client.present

    run(scenario())


def test_many_connections_at_once_leave_one_session_and_the_last_link(tmp_path: Path) -> None:
    """G5; MQTT 5.0, 3.1.4: whoever comes last has the session; earlier ones are told."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        other = await harness.client("other")
        harness.bus.held_acks = {harness.topics.sessions}
        links = [ClientLink(other) for _ in range(6)]
        ended: list[int] = []
        for n, link in enumerate(links):
            link.disconnect = lambda reason, n=n: ended.append(n)  # type: ignore[method-assign,misc]

        async def attach(n: int) -> Attached:
            await asyncio.sleep(n * 0.1)
            return await harness.home.attach(Arrival("same", n % 2 == 1, 100, None, 10, "", ""), links[n])

        tasks = [asyncio.create_task(attach(n)) for n in range(6)]
        await turn(0.35)  # four of them wait for one another, two come later
        harness.bus.held_acks = set()
        harness.bus.release()
        attached = await asyncio.gather(*tasks)
        assert ended == [0, 1, 2, 3, 4]
        session = attached[-1].session
        assert session.link is links[-1]
        assert harness.home.session("same") is session

    run(scenario())


def test_a_clean_start_gets_nothing_of_the_earlier_session(tmp_path: Path) -> None:
    """MQTT 5.0, 3.1.2.4; R4: what the earlier session still had to get ends, wherever it waits, also after a crash."""

    async def scenario() -> None:
        for wait_s, stored in ((0.0, 0), (1.0, 100), (30.0, 100)):
            directory = tmp_path / f"{wait_s:g}"
            directory.mkdir()
            harness = await HomeHarness(directory).start()
            sender, receiver = await harness.client("sender"), await harness.client("receiver")
            await receiver.subscribe("a")
            await turn(LEAD_S + 5)
            receiver.lose()
            for n in range(1_200):
                sender.publish("a", b"old %d" % n, n % 2 + 1)
            await turn(wait_s)
            await receiver.connect(clean_start=True)
            assert not receiver.present
            await receiver.subscribe("b")
            sender.publish("b", b"new", 1)
            receiver.lose()
            await turn(0.01)
            harness.crash(stored)
            await harness.start()
            await sender.connect()
            await receiver.connect()
            assert receiver.present
            await turn(30)
            sender.publish("b", b"newer", 1)
            await turn(1)
            assert receiver.payloads == [b"new", b"newer"] or (wait_s, receiver.payloads) == (0.0, [b"newer"])
            assert harness.relinquished() == harness.instructions()

    run(scenario())


def test_a_session_expires(tmp_path: Path) -> None:
    """G9, R4: after its time it is gone, with all it waited for; before, it is not."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await harness.client("sender"), await harness.client("receiver", expiry_s=60)
        await receiver.subscribe("a")
        receiver.lose()
        await turn(50)
        await receiver.connect()
        assert receiver.present
        receiver.lose()
        sender.publish("a", b"one", 1)
        await turn(50)
        assert harness.relinquished() != harness.instructions()
        await turn(11)
        assert harness.relinquished() == harness.instructions()
        assert set(harness.outcomes("receiver")) == {"ended"}
        await harness.restart()
        await receiver.connect()
        assert not receiver.present
        await turn(2)
        assert receiver.payloads == []

    run(scenario())


def test_an_expiry_goes_on_over_a_crash(tmp_path: Path) -> None:
    """G9."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        client = await harness.client("client", expiry_s=60)
        client.lose()
        await turn(40)
        await harness.restart()
        await turn(10)
        assert harness.home.session("client") is not None
        await turn(11)
        assert harness.home.session("client") is None

    run(scenario())


def test_disconnect_may_end_the_session(tmp_path: Path) -> None:
    """MQTT 5.0, 3.14.2.2.2."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        client = await harness.client("client")
        client.disconnect(expiry_s=0)
        await turn()
        await client.connect()
        assert not client.present

    run(scenario())


def test_subscribing_while_the_session_ends_leaves_nothing_behind(tmp_path: Path) -> None:
    """A SUBSCRIBE that is worked on when its session ends subscribes nobody, and not the client's next session."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, client = await harness.client("sender"), await harness.client("client", expiry_s=0)
        harness.bus.held_acks = {harness.topics.routes}
        waiting = asyncio.create_task(client.subscribe("a/1", "a/2", "b/1"))
        await turn(1)
        client.lose()
        client.expiry_s = 100
        await client.connect()
        harness.bus.held_acks = set()
        harness.bus.release()
        await waiting
        sender.publish("a/1", b"one", 1)
        await turn(2)
        await harness.restart()
        await sender.connect()
        await client.connect()
        assert client.present
        sender.publish("a/1", b"two", 1)
        await turn(LEAD_S + 90)
        sender.publish("a/1", b"three", 1)
        await turn(LEAD_S + 90)
        assert client.payloads == []
        sender.publish("a/1", b"four", 1)
        await turn(1)
        assert not harness.instructions(b"four"), "the routes are dropped again"
        assert harness.relinquished() == harness.instructions()
        assert not harness.fatal

    run(scenario())


def test_unsubscribing_ends_it_and_what_was_queued_stays(tmp_path: Path) -> None:
    """MQTT 5.0, 3.10.4."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, receiver = await harness.client("sender"), await harness.client("receiver")
        await receiver.subscribe("a", "b")
        sender.publish("a", b"one", 1)
        await turn()
        codes = await receiver.unsubscribe("a", "never")
        assert codes == [ReasonCode.SUCCESS, ReasonCode.NO_SUBSCRIPTION_EXISTED]
        for wait_s in (1, LEAD_S + 90):
            sender.publish("a", b"two", 1)
            await turn(wait_s)
            await harness.restart()
            await sender.connect()
            await receiver.connect()
        sender.publish("b", b"three", 1)
        await turn()
        assert receiver.payloads == [b"one", b"three"]
        await receiver.subscribe("a")
        sender.publish("a", b"four", 1)
        await turn()
        assert receiver.payloads == [b"one", b"three", b"four"]

    run(scenario())


def test_subscriptions_are_limited_also_within_one_packet(tmp_path: Path) -> None:
    """0x97 beyond the limit, for shared subscriptions too."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path, subscriptions=2).start()
        client = await harness.client("client")
        quota = ReasonCode.QUOTA_EXCEEDED
        assert await client.subscribe("a", "a", "b", "c") == [2, 2, 2, quota]
        assert await client.subscribe("a", "d") == [2, quota]
        assert await client.subscribe("$share/g/a") == [quota]

    run(scenario())
