"""Plain MQTT subscribers of `feeds/<name>/#` get the merged stream of both adapters (S3, S6)."""

from pathlib import Path

import pytest

from mqtt.codes import ReasonCode
from mqtt.packets import Subscription
from schemas.identity import shard_of
from tests.unit.gateway.shard.feed_harness import FEED, A, B, FeedHarness, number_of
from tests.unit.gateway.shard.home_client import Client
from tests.unit.gateway.shard.home_harness import LEAD_S, SHARDS, turn
from tests.unit.gateway.shard.two_gateways import TwoGateways
from tests.unit.gateway.shard.virtual_time import run


def sequences(client: Client) -> list[int]:
    return [int(number_of(payload).split()[1].split(".")[0]) for payload in client.payloads]


async def begun(directory: Path, *, waits: bool = True, **settings: object) -> tuple[FeedHarness, Client]:
    """A subscriber at QoS 2, by instructions unless it does not wait for the route."""
    harness = FeedHarness(directory, **settings)
    await harness.start()
    receiver = await harness.client("receiver")
    await receiver.subscribe(f"feeds/{FEED}/#")
    if waits:
        await turn(LEAD_S + 5)
    return harness, receiver


def check_all_is_done(harness: FeedHarness) -> None:
    """Every instruction is relinquished, nothing waits, and a restart reads nothing again (R4)."""
    assert not harness.fatal
    assert harness.held == 0
    assert harness.relinquished() == harness.instructions()
    for shard in harness.home.states:
        assert shard.restart == shard.position


@pytest.mark.parametrize("waits", [True, False], ids=["by route", "before the route is in effect"])
def test_each_number_comes_once_in_order(tmp_path: Path, waits: bool) -> None:
    """S3, S6: whichever adapter has it, which is ahead, and which fails; also right after SUBACK."""

    async def scenario() -> None:
        harness, receiver = await begun(tmp_path, waits=waits)
        for n in range(30):
            if n % 5 != 1 and n < 20:
                harness.copy(A, n)
            if n % 5 != 3:
                harness.copy(B, n)
            await turn(0.002)
        for n in range(30, 40):
            harness.copy(A, n)
        await turn(LEAD_S + 10)
        assert sequences(receiver) == [n for n in range(40) if n not in (23, 28)]
        assert harness.node.counts["feed_lost"] == 2
        await turn(5)
        check_all_is_done(harness)

    run(scenario())


def test_nothing_waits_for_an_adapter_that_is_not_there(tmp_path: Path) -> None:
    """S3: without a gap nothing waits; with one, for as long as the other feed may be silent."""

    async def scenario() -> None:
        harness, receiver = await begun(tmp_path)
        for n in range(5):
            harness.copy(A, n)
        await turn(0.01)
        assert sequences(receiver) == [0, 1, 2, 3, 4]
        harness.copy(A, 6)
        await turn(0.1)
        assert harness.held == 1
        await turn(1.1)
        assert sequences(receiver) == [0, 1, 2, 3, 4, 6]
        harness.copy(A, 8)
        await turn(0.1)  # it is known to be dead
        assert sequences(receiver)[-1] == 8
        harness.copy(B, 8)
        harness.copy(A, 10)
        await turn(0.5)  # it is alive again
        assert sequences(receiver)[-1] == 8
        harness.copy(B, 9)
        await turn(0.1)
        assert sequences(receiver)[-2:] == [9, 10]
        check_all_is_done(harness)

    run(scenario())


def test_a_gap_is_reported_and_what_comes_late_is_marked(tmp_path: Path) -> None:
    """S3: the user properties say what the stamps say, and which messages are late."""

    async def scenario() -> None:
        harness, receiver = await begun(tmp_path)
        for n in (0, 1, 3):
            harness.copy(A, n)
            harness.copy(B, n)
        await turn(0.2)
        assert sequences(receiver) == [0, 1, 3]
        harness.copy(B, 2)
        harness.copy(A, 4)
        await turn(0.2)
        assert sequences(receiver) == [0, 1, 3, 2, 4]
        stamps = [dict(properties["user_property"]) for properties in receiver.properties]
        assert [one["feed-sequence"] for one in stamps] == ["0", "1", "3", "2", "4"]
        assert stamps[3] == {
            "feed-sequence": "2",
            "feed-part": "0",
            "feed-read-us": "1002",
            "feed-adapter": "backup",
            "feed-late": "1",
        }
        assert ["feed-late" in one for one in stamps] == [False, False, False, True, False]
        assert harness.node.counts["feed_gaps"] == harness.node.counts["feed_lost"] == 1
        await turn(1)
        check_all_is_done(harness)

    run(scenario())


def test_late_messages_are_only_counted_if_so_configured(tmp_path: Path) -> None:
    """S3; and their instructions are relinquished all the same."""

    async def scenario() -> None:
        harness, receiver = await begun(tmp_path, delivers_late=False)
        for n in (0, 2):
            harness.copy(A, n)
            harness.copy(B, n)
        await turn(0.2)
        harness.copy(A, 1)
        await turn(1)
        assert sequences(receiver) == [0, 2]
        assert harness.node.counts["feed_late_dropped"] == 1
        check_all_is_done(harness)

    run(scenario())


def test_what_is_held_is_bounded(tmp_path: Path) -> None:
    """S3: beyond the limit the first gap is given up, at once."""

    async def scenario() -> None:
        harness, receiver = await begun(tmp_path, held_messages=3)
        harness.copy(A, 0)
        for n in range(2, 6):
            harness.copy(A, n)
        await turn(0.01)
        assert sequences(receiver) == [0, 2, 3, 4, 5]
        await turn(1)
        check_all_is_done(harness)

    run(scenario())


@pytest.mark.parametrize("again_s", [0.0, 200.0], ids=["at once", "after the route has ended"])
def test_what_nobody_asked_for_is_no_gap(tmp_path: Path, again_s: float) -> None:
    """S3: a shard that has had no subscriber goes on with what comes next, without waiting or reporting a gap."""

    async def scenario() -> None:
        harness, receiver = await begun(tmp_path)
        for n in range(3):
            harness.copy(A, n)
        await turn(0.1)
        await receiver.unsubscribe(f"feeds/{FEED}/#")
        await turn(again_s)
        for n in range(3, 50):
            harness.copy(A, n)
        await turn(1)
        await receiver.subscribe(f"feeds/{FEED}/#")
        harness.copy(A, 50)
        await turn(0.2)
        harness.copy(A, 51)
        await turn(0.2)
        assert sequences(receiver) == [0, 1, 2, 50, 51]
        assert harness.node.counts["feed_lost"] == harness.node.counts["feed_gaps"] == 0
        await turn(LEAD_S)
        harness.copy(A, 52)
        await turn(1)
        assert sequences(receiver)[-1] == 52
        check_all_is_done(harness)

    run(scenario())


def test_older_and_newer_subscriptions_get_each_number_once(tmp_path: Path) -> None:
    """S3: one filter comes by instruction while the route of another is not in effect yet; a session has both."""

    async def scenario() -> None:
        harness, receiver = await begun(tmp_path)
        other = await harness.client("other")
        for n in range(40):
            if n == 10:
                await other.subscribe("#")
                await receiver.subscribe("feeds/#")
            for slot in (A, B):
                if n % 7 != slot:
                    harness.copy(slot, n)
            await turn(1)
        assert sequences(receiver) == list(range(40))
        assert sequences(other) == list(range(10, 40))
        await turn(LEAD_S)
        check_all_is_done(harness)

    run(scenario())


def test_no_client_publishes_there(tmp_path: Path) -> None:
    """S2: only adapters do. A message without the stamps, by whoever writes to Kafka, is no copy."""

    async def scenario() -> None:
        harness, receiver = await begun(tmp_path)
        sender = await harness.client("sender")
        for topic in ("feeds", "feeds/flight/radar@0", "feeds/"):
            sender.publish(topic, b"forged", 1)
        sender.publish("feedsome/other", b"not refused", 1)
        await turn(0.1)
        assert sender.refused == [ReasonCode.TOPIC_NAME_INVALID] * 3
        assert sender.acknowledged == {b"not refused"}
        assert receiver.got == []

    run(scenario())


def test_a_feed_that_is_not_configured_is_quarantined(tmp_path: Path) -> None:
    """S3: with the reason."""

    async def scenario() -> None:
        harness, receiver = await begun(tmp_path)
        harness.environment["WAYSTATION_FEEDS__NAMES"] = "[]"
        await harness.restart()
        await receiver.connect()
        harness.copy(A, 0)
        await turn(0.1)
        assert receiver.got == []
        assert harness.node.counts["quarantined"] == 2

    run(scenario())


def test_a_feed_that_is_configured_no_more_is_let_go(tmp_path: Path) -> None:
    """S3: what is stored of it decides nothing, and keeps no position; configured again, it begins anew."""

    async def scenario() -> None:
        harness, receiver = await begun(tmp_path)
        for n in (0, 1, 3):
            harness.copy(A, n)
        await turn(0.1)
        assert harness.held == 1
        await harness.stop()
        harness.environment["WAYSTATION_FEEDS__NAMES"] = "[]"
        await harness.start()
        await turn(10)
        assert harness.node.counts["quarantined"] == 1, "what was held"
        assert harness.held == 0
        for shard in harness.home.states:
            written = harness.broker.partitions[harness.topics.egress, shard.number]
            assert not [one for one in written if one.offset() >= shard.reread_to], "a decision"
            assert shard.restart == shard.position
        await harness.stop()
        harness.environment["WAYSTATION_FEEDS__NAMES"] = f'["{FEED}"]'
        await harness.start()
        await receiver.connect()
        harness.copy(A, 9)
        await turn(0.01)
        assert sequences(receiver)[-1] == 9, "it waits for what was before"
        assert not harness.fatal

    run(scenario())


def test_an_epoch_ends_some_time_after_the_next_has_begun(tmp_path: Path) -> None:
    """S3: what the slower adapter brings of it is merged until then, and dropped afterwards."""

    async def scenario() -> None:
        harness, receiver = await begun(tmp_path)
        harness.copy(A, 7)
        harness.copy(A, 0, stream="radar@1")
        harness.copy(B, 8)
        await turn(0.2)
        assert sequences(receiver) == [7, 0, 8]
        await turn(6)
        harness.copy(B, 9)
        harness.copy(B, 1, stream="radar@1")
        await turn(1)
        assert sequences(receiver) == [7, 0, 8, 1]
        assert harness.node.counts["feed_expired"] == 1
        check_all_is_done(harness)
        await harness.restart()
        await receiver.connect()
        harness.copy(B, 10)
        harness.copy(B, 2, stream="radar@1")
        await turn(1)
        assert sequences(receiver) == [7, 0, 8, 1, 2]

    run(scenario())


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_quality_of_service_is_the_subscribers(tmp_path: Path, qos: int) -> None:
    """S3, Q1: of the lower of the two, as with any message."""

    async def scenario() -> None:
        harness = FeedHarness(tmp_path)
        await harness.start()
        receiver = await harness.client("receiver")
        await receiver.subscribe(Subscription(f"feeds/{FEED}/radar@0", qos))
        await turn(LEAD_S + 5)
        for n in range(3):
            harness.copy(B, n)
        await turn(1)
        assert [(got.qos, got.retain) for got in receiver.got] == [(qos, False)] * 3
        check_all_is_done(harness)

    run(scenario())


def test_a_share_group_gets_the_merged_stream(tmp_path: Path) -> None:
    """S3: each number goes to one member, also after the gateway was killed while something was missing."""

    async def scenario() -> None:
        harness = FeedHarness(tmp_path)
        await harness.start()
        members = [await harness.client(name, receive_maximum=2) for name in ("one", "two")]
        for member in members:
            await member.subscribe(f"$share/g/feeds/{FEED}/#")
        await turn(LEAD_S + 5)
        for n in range(12):
            harness.copy(A, n)
            if n != 3:
                harness.copy(B, n)
            await turn(0.01)
        harness.copy(A, 13)
        await turn(0.3)  # a checkpoint, while it is held
        await harness.restart()
        for member in members:
            await member.connect()
        await turn(1)
        harness.copy(B, 12)
        await turn(5)
        assert sorted(sequences(members[0]) + sequences(members[1])) == list(range(14))
        assert all(member.got for member in members)
        check_all_is_done(harness)

    run(scenario())


class TwoGatewaysWithFeed(FeedHarness, TwoGateways):
    """The feed, with two gateways."""


def test_a_shard_moves_while_something_is_missing(tmp_path: Path) -> None:
    """S3, R6: the next home holds what was held, and decides as the first would have."""

    async def scenario() -> None:
        harness = TwoGatewaysWithFeed(tmp_path)
        await harness.start()
        receiver = await harness.client("receiver")
        await receiver.subscribe(f"feeds/{FEED}/#")
        await turn(LEAD_S + 5)
        number = shard_of("receiver", SHARDS)
        for n in (0, 1, 3):
            harness.copy(A, n)
        harness.copy(B, 1)
        await turn(0.04)  # the gap is suspected
        source, target = harness.owner(number), harness.gateways[1 - number]
        assert source is not None
        await source.hand_over(number)
        await target.start_shard(number)
        await harness.reconnect()
        await turn(0.3)
        assert sequences(receiver) == [0, 1]
        harness.copy(B, 2)
        await turn(0.1)
        harness.copy(A, 5)
        await turn(2)  # the other feed is silent
        assert sequences(receiver) == [0, 1, 2, 3, 5]
        assert receiver.payloads == [payload for payload, _ in harness.merged(number)]
        assert harness.relinquished() == harness.instructions()
        assert not harness.fatal

    run(scenario())
