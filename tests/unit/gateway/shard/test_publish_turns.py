"""What a client publishes keeps its order, also behind a message whose retained copy is stored first (R8)."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.shard.publish_turns import PublishTurns, Turn
from tests.unit.gateway.shard.clustered import Clustered
from tests.unit.gateway.shard.home_client import Client
from tests.unit.gateway.shard.home_harness import LEAD_S, turn
from tests.unit.gateway.shard.virtual_time import run


@given(st.lists(st.sampled_from(["publish", "wait", "end", "refuse"]), max_size=40), st.randoms(use_true_random=False))
def test_messages_go_in_their_order_each_once(steps: list[str], rng: object) -> None:
    turns, gone, refused = PublishTurns(), list[int](), set[int]()
    waiting: list[tuple[int, Turn]] = []

    def end(at: int, *, is_refused: bool) -> None:
        number, of = waiting.pop(at)
        if is_refused:
            refused.add(number)
            turns.end("client", of, lambda: None)
        else:
            turns.end("client", of, lambda: gone.append(number))

    for number, step in enumerate(steps):
        if step == "wait":
            waiting.append((number, turns.begin("client")))
        elif step in ("end", "refuse"):
            if waiting:
                end(rng.randrange(len(waiting)), is_refused=step == "refuse")  # type: ignore[attr-defined]
        elif turns.waits("client"):
            turns.follow("client", lambda number=number: gone.append(number))  # type: ignore[misc]
        else:
            gone.append(number)
        assert not turns.waits("another client")
    while waiting:
        end(len(waiting) - 1, is_refused=False)
    sent = [number for number, step in enumerate(steps) if step in ("publish", "wait") and number not in refused]
    assert gone == sent
    assert not turns.waits("client")


def test_what_goes_may_be_answered_at_once() -> None:
    """A message that begins to wait as another one goes stands behind all that wait already."""
    turns, gone = PublishTurns(), list[str]()
    first = turns.begin("client")
    second: list[Turn] = []

    def goes() -> None:
        gone.append("first")
        second.append(turns.begin("client"))
        turns.end("client", second[0], lambda: gone.append("last"))

    turns.follow("client", lambda: gone.append("next"))
    turns.end("client", first, goes)
    assert gone == ["first", "next", "last"]
    assert not turns.waits("client")


async def begin(directory: Path) -> tuple[Clustered, Client, Client]:
    """A sender, and a client whose subscription to `a` is in effect."""
    harness = await Clustered(directory).start()
    sender, client = await harness.client("sender"), await harness.client("client")
    await client.subscribe("a")
    await turn(LEAD_S + 5)
    return harness, sender, client


@pytest.mark.parametrize(("qos", "retain"), [(0, False), (1, False), (1, True), (2, False), (2, True)])
def test_a_retained_message_at_qos_2_is_not_overtaken(tmp_path: Path, qos: int, retain: bool) -> None:
    """Its retained copy is stored first."""

    async def scenario() -> None:
        _, sender, client = await begin(tmp_path)
        sender.publish("a", b"1", 2, retain=True)
        sender.publish("a", b"2", qos, retain=retain)
        await turn(5)
        assert client.payloads == [b"1", b"2"]

    run(scenario())


def test_nor_by_what_its_client_publishes_on_the_next_connection(tmp_path: Path) -> None:
    async def scenario() -> None:
        harness, sender, client = await begin(tmp_path)
        buses = [gateway.bus for gateway in harness.gateways]
        for bus in buses:
            bus.held_acks = {harness.topics.retained}
        sender.publish("a", b"1", 2, retain=True)
        sender.lose()
        await sender.connect()
        sender.publish("a", b"2", 1)
        await turn(1)
        assert client.payloads == []
        for bus in buses:
            bus.held_acks = set()
            bus.release()
        await turn(5)
        assert client.payloads[:2] == [b"1", b"2"]

    run(scenario())
