"""A session belongs to whom its client was authenticated as, and keeps only what the rules allow (R11)."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from gateway.access.acl import parse
from gateway.access.authorizer import Authorizer
from gateway.errors import NotAdmitted
from gateway.shard.rules import EVERYTHING, Everything
from mqtt.codes import ReasonCode
from tests.unit.gateway.shard.home_client import Client
from tests.unit.gateway.shard.home_harness import HomeHarness, turn
from tests.unit.gateway.shard.virtual_time import run

ALICE, BOB = Everything("alice"), Everything("bob")


async def refused(client: Client, *, clean_start: bool) -> None:
    with pytest.raises(NotAdmitted) as raised:
        await client.connect(clean_start=clean_start)
    assert raised.value.reason is ReasonCode.NOT_AUTHORIZED


@pytest.mark.parametrize("clean_start", [False, True])
@pytest.mark.parametrize("expiry_s", [0, 3600])
def test_nobody_else_takes_a_session(tmp_path: Path, clean_start: bool, expiry_s: int) -> None:
    """R11: connected, offline, after a crash; not to resume it, and not to end it."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        alice = await harness.client("c", rules=ALICE, expiry_s=expiry_s)
        await alice.subscribe("a")
        bob, nobody = Client(harness, "c", rules=BOB), Client(harness, "c", rules=EVERYTHING)
        for other in (bob, nobody):
            await refused(other, clean_start=clean_start)
        assert alice.link is not None
        if not expiry_s:
            alice.lose()
            await turn()
            await bob.connect()  # it is over: the client id is free
            assert not bob.present
            return
        alice.lose()
        for other in (bob, nobody):
            await refused(other, clean_start=clean_start)
        await harness.restart()
        for other in (bob, nobody):
            await refused(other, clean_start=clean_start)
        await alice.connect()
        assert alice.present
        assert {event.user for event in harness.presence("c")} == {"alice"}
        assert harness.node.counts["not_admitted_other_user"] == 2
        assert not harness.fatal

    run(scenario())


def test_a_session_of_nobody_is_taken_up_by_whoever_has_its_client_id(tmp_path: Path) -> None:
    """R11: as before there were users, so that they can be introduced; from then on it is theirs."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        client = await harness.client("c")
        await client.subscribe("a")
        client.lose()
        alice = Client(harness, "c", rules=ALICE)
        await alice.connect()
        assert alice.present
        await turn()
        alice.lose()
        await turn()
        await harness.restart()
        await refused(Client(harness, "c", rules=BOB), clean_start=False)
        assert [event.user for event in harness.presence("c")] == ["", "", "alice", "alice"]

    run(scenario())


def test_what_is_forbidden_meanwhile_ends_before_anything_is_delivered(tmp_path: Path) -> None:
    """R11: rules that changed while the gateway was down count for a session that is resumed."""

    async def scenario() -> None:
        def allowing(*filters: str) -> Authorizer:
            return Authorizer(parse(f"[[rules]]\nsubscribe.allow = {list(filters)}\n", "acl", default=False), Counter())

        harness = await HomeHarness(tmp_path).start()
        client = await harness.client("c", rules=allowing("a", "b").rules("alice", "c", 0.0))
        sender = await harness.client("sender")
        assert await client.subscribe("a", "b", "d") == [2, 2, ReasonCode.NOT_AUTHORIZED]
        client.lose()
        await harness.restart()
        client.rules = allowing("b").rules("alice", "c", 0.0)
        await client.connect()
        assert client.present
        await sender.connect()
        for topic in ("a", "b"):
            sender.publish(topic, topic.encode())
        await turn(1)
        assert client.payloads == [b"b"]
        assert harness.node.counts["subscriptions_ended_by_rule"] == 1
        client.lose()
        await harness.restart()
        assert set(harness.home.session("c").subscriptions) == {"b"}  # type: ignore[union-attr]
        assert not harness.fatal

    run(scenario())


def test_a_subscription_under_way_when_the_rules_change_ends_too(tmp_path: Path) -> None:
    """R11: the answer to SUBSCRIBE may have been decided by the rules before."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        authorizer = Authorizer(parse("[[rules]]\nsubscribe.allow = ['a']\n", "acl", default=False), Counter())
        authorizer.changed = harness.home.rules_changed
        client = await harness.client("c", rules=authorizer.rules("alice", "c", 0.0))
        harness.bus.held_acks = {harness.topics.sessions}
        task = asyncio.ensure_future(client.subscribe("a"))
        await turn()
        authorizer.replace(parse("", "acl", default=False))
        await turn()
        harness.bus.held_acks = set()
        harness.bus.release()
        await task
        await turn()
        assert harness.home.session("c").subscriptions == {}  # type: ignore[union-attr]
        assert not harness.fatal

    run(scenario())
