"""The sender learns that the receiver of its conversation is gone (R6)."""

from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from gateway.access.acl import parse
from gateway.access.authorizer import Authorizer
from gateway.shard.rules import FOR_EVER, ClientRules
from schemas.envelope import Meta
from schemas.origin import SHARES_SENDER, origin_of
from tests.unit.gateway.shard.conversation_harness import holder, of, say, tells
from tests.unit.gateway.shard.home_client import Client
from tests.unit.gateway.shard.home_harness import LEAD_S, PARTITIONS, HomeHarness, turn
from tests.unit.gateway.shard.share_harness import NAME, with_members
from tests.unit.gateway.shard.virtual_time import run

ANSWERS = "answers/sender"


def ask(sender: Client, payload: bytes, topic: str = ANSWERS, qos: int = 1, conversation: str = "k") -> None:
    answered = of(conversation, response_topic=topic, correlation_data=b"c" + payload, message_expiry_interval=600)
    sender.publish("a/x", payload, qos, properties=answered)


async def begun(harness: HomeHarness, topic: str = ANSWERS) -> tuple[Client, Client, Client]:
    """A sender that listens to its answers, the member that has its conversation, and another one."""
    sender, members = await with_members(harness, "m0", "m1")
    if not topic.startswith("@"):
        await sender.subscribe(topic)
    ask(sender, b"0", topic)
    await turn(LEAD_S + 5)
    first = holder(members, b"0")
    [other] = [member for member in members if member is not first]
    return sender, first, other


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("topic", [ANSWERS, "@sender"])
def test_the_sender_is_told_once(tmp_path: Path, qos: int, topic: str) -> None:
    """R6: at its Response Topic, with its correlation data, whatever is sent to the new member again."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, first, other = await begun(harness, topic)
        await first.unsubscribe(NAME)
        ask(sender, b"1", topic, qos)
        ask(sender, b"2", topic, qos)
        await turn(2)
        assert other.payloads == [b"1", b"2"]
        [got], [told] = sender.got, sender.properties
        assert (got.topic, got.payload, got.qos, got.retain) == (topic, b"", 1, False)
        assert told == {
            "correlation_data": b"c1",
            "user_property": [("conversation", "k"), ("conversation-receiver", "gone")],
        }
        assert harness.node.counts["conversations_restarted"] == harness.node.counts["conversation_notices"] == 1
        await turn(30)
        assert harness.completed() == set(harness.published())

    run(scenario())


def test_what_the_ledger_sees_of_it(tmp_path: Path) -> None:
    """It is the platform's, lives as long as the message, and begins no conversation."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, first, _ = await begun(harness)
        await first.unsubscribe(NAME)
        ask(sender, b"1")
        await turn(2)
        ingress = [harness.broker.partitions[harness.topics.ingress, p] for p in range(PARTITIONS)]
        found = {}
        for record in (record for records in ingress for record in records):
            headers = record.headers() or []
            found[record.value()] = headers[1][1], Meta.decode(headers[2][1])
        source, meta = found[b""]
        assert source.decode() == SHARES_SENDER
        assert (meta.flags, meta.expires, meta.epoch) == ("p", found[b"1"][1].expires, None)
        assert origin_of(ANSWERS, meta.flags) == "platform"

    run(scenario())


def test_without_a_response_topic_nobody_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, first, other = await begun(harness)
        await first.unsubscribe(NAME)
        say(sender, "k", b"1")
        ask(sender, b"2")
        await turn(2)
        assert other.payloads == [b"1", b"2"]
        assert not sender.got
        assert harness.node.counts["conversations_restarted"] == 1

    run(scenario())


def rules(text: str) -> ClientRules:
    acl = parse(text, "acl.toml", default=False)
    return Authorizer(acl, Counter()).rules("", "sender", FOR_EVER)


@pytest.mark.parametrize(
    ("topic", "is_told"),
    [("answers/mine", True), ("alarms/all", False), ("@m9", False), ("@sender", True), ("$SYS/x", False)],
)
def test_the_platform_publishes_nothing_that_the_sender_may_not(tmp_path: Path, topic: str, is_told: bool) -> None:
    """R11, Q12: a Response Topic gives nobody the right to publish there; its own inbox is nobody else's."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        members = [await harness.client(name) for name in ("m0", "m1", "m9")]
        for member in members[:2]:
            await member.subscribe(NAME)
        await members[2].subscribe("answers/#", "alarms/#")
        allowed = rules('[[rules]]\npublish.allow = ["a/#", "answers/#"]\n')
        sender = await harness.client("sender", rules=allowed)
        await turn(LEAD_S + 5)
        ask(sender, b"0", topic)
        await turn(1)
        await holder(members[:2], b"0").unsubscribe(NAME)
        ask(sender, b"1", topic)
        await turn(2)
        assert {b"0", b"1"} <= sender.acknowledged
        told = [*sender.got, *members[2].got]
        assert [got.topic for got in told] == ([topic] if is_told else [])
        assert harness.node.counts["publish_not_authorized"] == 0

    run(scenario())


def test_a_home_that_is_killed_tells_nobody_twice(tmp_path: Path) -> None:
    """At most once: the member is told again, the sender is not."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, first, other = await begun(harness)
        await first.unsubscribe(NAME)
        other.mute = True
        ask(sender, b"1")
        await turn(2)
        await harness.restart()
        await sender.connect()
        await other.connect()
        await turn(2)
        assert tells(other) == [True, True]
        assert len(sender.got) == 1

    run(scenario())


def test_what_kafka_refuses_is_counted(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, first, other = await begun(harness)
        await first.unsubscribe(NAME)
        harness.bus.held_acks = {harness.topics.sessions}
        ask(sender, b"1")
        await turn(1)
        harness.bus.refused[harness.topics.ingress] = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
        harness.bus.held_acks = set()
        harness.bus.release()
        await turn(2)
        assert other.payloads == [b"1"]
        assert not sender.got
        assert harness.node.counts["conversation_notices_lost"] == 1
        assert not sender.refused

    run(scenario())
