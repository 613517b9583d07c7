"""A conversation whose member is gone goes on with another one, which is told so (R6: continuous semaphore)."""

from pathlib import Path

import pytest

from tests.unit.gateway.shard.conversation_harness import holder, logged, of, say, tells, with_settings
from tests.unit.gateway.shard.home_client import Client
from tests.unit.gateway.shard.home_harness import HomeHarness, turn
from tests.unit.gateway.shard.share_harness import NAME, spread, with_members
from tests.unit.gateway.shard.virtual_time import run

each_qos = pytest.mark.parametrize("qos", [0, 1, 2])
OFFLINE_S = 30


async def begun(harness: HomeHarness, qos: int = 1, **options: int) -> tuple[Client, Client, Client]:
    """A sender, the member that has its conversation, and another one."""
    sender, members = await with_members(harness, "m0", "m1", **options)
    say(sender, "k", b"0", qos=qos)
    await turn(1)
    first = holder(members, b"0")
    [other] = [member for member in members if member is not first]
    return sender, first, other


@each_qos
@pytest.mark.parametrize("how", ["leaves", "ends", "stays away"])
def test_another_member_goes_on_and_is_told(tmp_path: Path, qos: int, how: str) -> None:
    """R6: by its first message, and by no other."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, first, other = await begun(harness, qos)
        if how == "leaves":
            await first.unsubscribe(NAME)
        elif how == "ends":
            first.disconnect(expiry_s=0)
        else:
            first.lose()
        await turn(OFFLINE_S + 1)
        say(sender, "k", b"1", b"2", qos=qos)
        await turn(2)
        assert first.payloads == [b"0"]
        assert other.payloads == [b"1", b"2"]
        assert tells(other) == [True, False]
        assert tells(first) == [False]
        assert logged(harness)["sender", "k"].client == other.name
        if how == "stays away":
            await first.connect()
            say(sender, "k", b"3", qos=qos)
            await turn(2)
            assert (first.payloads, other.payloads[-1]) == ([b"0"], b"3")
        await turn(30)
        assert harness.relinquished() == harness.instructions()

    run(scenario())


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("returns", [True, False])
def test_messages_wait_for_a_member_without_connection(tmp_path: Path, qos: int, returns: bool) -> None:
    """`conversation_offline_s`: those of other conversations do not."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, first, other = await begun(harness, qos)
        first.lose()
        say(sender, "k", b"1", b"2", qos=qos)
        say(sender, "other", b"at once", qos=qos)
        await turn(OFFLINE_S - 2)
        assert other.payloads == [b"at once"]
        if returns:
            await first.connect()
        await turn(5)
        assert first.payloads == ([b"0", b"1", b"2"] if returns else [b"0"])
        assert other.payloads == ([b"at once"] if returns else [b"at once", b"1", b"2"])
        assert tells(other) == ([False] if returns else [False, True, False])

    run(scenario())


def test_what_it_had_not_acknowledged_goes_to_the_other_one_too(tmp_path: Path) -> None:
    """In order; what it was sent at QoS 2 stays with its session [MQTT-4.8.2-5]."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, first, other = await begun(harness)
        first.mute = True
        say(sender, "k", b"1", b"2")
        await turn(1)
        first.lose()
        await turn(OFFLINE_S + 2)
        assert (first.payloads, other.payloads) == ([b"0", b"1"], [b"1", b"2"])
        other.mute = True
        say(sender, "k", b"3", b"4", qos=2)
        await turn(1)
        other.lose()
        first.mute = False
        await first.connect()
        await turn(OFFLINE_S + 2)
        assert first.payloads == [b"0", b"1", b"4"]
        assert tells(first) == [False, False, True]
        other.mute = False
        await other.connect()
        await turn(2)
        assert other.payloads == [b"1", b"2", b"3"]
        await turn(30)
        assert harness.relinquished() == harness.instructions()

    run(scenario())


@pytest.mark.parametrize("qos", [1, 2])
def test_it_is_told_after_a_crash_too(tmp_path: Path, qos: int) -> None:
    """G7: as long as it has not acknowledged that message, and only then."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, first, other = await begun(harness, qos)
        await first.unsubscribe(NAME)
        other.mute = True
        say(sender, "k", b"1", qos=qos)
        await turn(1)
        await harness.restart()
        await sender.connect()
        await other.connect()
        await turn(2)
        assert tells(other) == [True, True]
        other.mute = False
        other.answer_all()
        await turn(2)
        await harness.restart()
        await sender.connect()
        await other.connect()
        say(sender, "k", b"2", qos=qos)
        await turn(2)
        assert other.payloads[-1] == b"2"
        assert tells(other)[-1] is False

    run(scenario())


def test_the_next_message_tells_it_if_the_first_has_expired(tmp_path: Path) -> None:
    """The choice was durable, but the member's window was full by then."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, first, other = await begun(harness)
        await first.unsubscribe(NAME)
        harness.bus.held_acks = {harness.topics.sessions}
        sender.publish("a/x", b"short", 1, properties=of("k", message_expiry_interval=5))
        say(sender, "k", b"1", b"2")
        await turn(1)
        other.lose()
        harness.bus.held_acks = set()
        harness.bus.release()
        await turn(10)
        await other.connect()
        await turn(2)
        assert other.payloads == [b"1", b"2"]
        assert tells(other) == [True, False]

    run(scenario())


def test_it_is_told_once_more_if_the_message_is_lost_with_the_home(tmp_path: Path) -> None:
    """At QoS 0 nothing brings it again."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, first, other = await begun(harness, 0)
        await first.unsubscribe(NAME)
        harness.bus.held_acks = {harness.topics.sessions}
        say(sender, "k", b"lost", qos=0)
        await turn(1)
        harness.crash(stored=1_000)
        await harness.start()
        await sender.connect()
        await other.connect()
        say(sender, "k", b"1", b"2", qos=0)
        await turn(2)
        assert other.payloads == [b"1", b"2"]
        assert tells(other) == [True, False]

    run(scenario())


def test_a_member_that_was_sent_nothing_is_no_loss(tmp_path: Path) -> None:
    """The other one is not told of it."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, members = await with_members(harness, "m0", "m1")
        harness.bus.held_acks = {harness.topics.sessions}
        say(sender, "k", b"0")
        await turn(0.2)
        [chosen] = [m for m in members if m.name == logged(harness)["sender", "k"].client]
        chosen.lose()
        await turn(OFFLINE_S + 1)
        harness.bus.held_acks = set()
        harness.bus.release()
        await turn(OFFLINE_S + 5)
        [other] = [member for member in members if member is not chosen]
        assert other.payloads == [b"0"]
        assert tells(other) == [False]

    run(scenario())


def test_without_a_wait_it_goes_on_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness = await with_settings(HomeHarness(tmp_path), conversation_offline_s=0).start()
        sender, first, other = await begun(harness)
        first.lose()
        say(sender, "k", b"1")
        await turn(1)
        assert spread([other]) == {b"1": 1}
        assert tells(other) == [True]

    run(scenario())


def test_a_home_that_starts_waits_for_members_anew(tmp_path: Path) -> None:
    """G7: a takeover is no reason to go to another one."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        sender, first, other = await begun(harness)
        first.lose()
        await turn(OFFLINE_S - 5)
        await harness.restart()
        await sender.connect()
        await other.connect()
        say(sender, "k", b"1")
        await turn(OFFLINE_S - 5)
        assert not other.payloads
        await first.connect()
        await turn(2)
        assert first.payloads == [b"0", b"1"]
        assert tells(first) == [False, False]

    run(scenario())
