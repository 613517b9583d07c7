"""A home that has lost its shard without knowing it completes no message that the next one still has (R4, G6)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.gateway.shard.fenced_gateways import FencedGateways
from tests.unit.gateway.shard.home_harness import LEAD_S, turn
from tests.unit.gateway.shard.test_fenced_homes import named
from tests.unit.gateway.shard.virtual_time import run


def reads_egress_only(harness: FencedGateways) -> None:
    """The first gateway learns nothing of the next owner, and reads what routers send to its shard."""
    harness.at(0).bus.held_follows = {harness.topics.sessions}


def is_cut_off(harness: FencedGateways) -> None:
    harness.at(0).cut_off()


@pytest.mark.parametrize("before", [reads_egress_only, is_cut_off])
def test_a_message_that_waits_at_the_next_home_is_not_complete(
    tmp_path: Path, before: Callable[[FencedGateways], None]
) -> None:
    """The old home knows one of its two recipients, who has it; the other one is known to the next home, and away."""

    async def scenario() -> None:
        harness = await FencedGateways(tmp_path).start()
        known, later, sender = named(0, 0), named(0, 1), named(0, 2)
        first = await harness.client(known)
        await first.subscribe("a/#")
        await turn(LEAD_S + 5)
        before(harness)
        await harness.at(1).own(0, 2)
        harness.at(0).is_up = False  # new connections come to the other one
        second = await harness.client(later)
        await second.subscribe("a/#")
        await turn(LEAD_S + 5)
        second.lose()
        (await harness.client(sender)).publish("a/x", b"hello", 1)
        await turn(3)
        harness.at(0).come_back()
        await turn(3)
        assert harness.at(0).lost == [0]
        hello = harness.ids_of(b"hello")
        assert len(hello) == 1
        assert not hello & harness.completed(), "it waits for a client that is away"
        await second.connect()
        await first.connect()
        await turn(3)
        assert second.payloads == [b"hello"]
        assert hello <= harness.completed()
        await harness.at(0).node.reporter.flush(0)  # nobody waits for what is never sent
        assert not harness.fatal

    run(scenario())
