"""An owner that has lost its shard ends no routes that the next one uses (Q7, R12; emqx#14248)."""

from pathlib import Path

import pytest

from gateway.shard.routes import ROUTE_LINGER_S
from schemas.events import RouteEvent, decode
from tests.unit.gateway.shard.clustered import Clustered
from tests.unit.gateway.shard.home_harness import LEAD_S, HomeHarness, turn
from tests.unit.gateway.shard.virtual_time import run


@pytest.mark.parametrize("knows", [False, True], ids=["cut off", "superseded"])
def test_a_route_that_the_next_owner_uses_stays(tmp_path: Path, knows: bool) -> None:
    """Its clients have left the earlier owner and subscribe at the next one. The earlier one sees that nobody uses the
    routes there, whether or not it knows that it has lost the shard; it reaches the broker after they have lingered."""

    async def scenario() -> None:
        harness = await Clustered(tmp_path).start()
        sender = await harness.client(harness.names(0)[0])
        receiver = await harness.client(harness.names(1)[0], expiry_s=0)
        await receiver.subscribe("a")
        await turn(LEAD_S + 5)
        zombie = harness.cut_off(1)
        if not knows:
            zombie.bus.held_follows = {harness.topics.sessions}
        receiver.lose()
        zombie.is_up = False
        await harness.take_over(1, harness.gateways[2])
        await harness.reconnect()
        await receiver.subscribe("a")
        await turn(2 * ROUTE_LINGER_S)
        harness.wake(zombie)
        await turn(LEAD_S + 5)
        for number in range(4):
            sender.publish("a", b"%d" % number, 1 + number % 2)
        await turn(20)
        assert receiver.payloads == [b"0", b"1", b"2", b"3"]
        assert not harness.fatal

    run(scenario())


@pytest.mark.parametrize("late_s", [0.0, 12.0], ids=["just behind the fences", "later"])
def test_a_drop_that_is_on_its_way_when_the_shard_is_lost_is_undone(tmp_path: Path, late_s: float) -> None:
    """The earlier owner may drop the route: the shard is its own then. Kafka stores that once the next owner has read
    the topic, and a client relies on the route. No message in between is missed."""

    async def scenario() -> None:
        harness = await Clustered(tmp_path).start()
        sender = await harness.client(harness.names(0)[0])
        receiver = await harness.client(harness.names(1)[0], expiry_s=0)
        await receiver.subscribe("a")
        await turn(LEAD_S + 5)
        receiver.lose()
        zombie = harness.owner(1)
        assert zombie is not None
        zombie.bus.held_stores = {harness.topics.routes}
        await turn(ROUTE_LINGER_S + 5)
        assert zombie.home.shards[1].routes.effective_ms("a") is None, "it has dropped the route"
        harness.cut_off(1)
        zombie.is_up = False
        await harness.take_over(1, harness.gateways[2])
        await harness.reconnect()
        await receiver.subscribe("a")
        await turn(late_s)
        harness.wake(zombie)
        for number in range(2 * int(LEAD_S) + 60):
            sender.publish("a", b"%d" % number, 1 + number % 2)
            await turn(1)
        assert receiver.payloads == [b"%d" % number for number in range(2 * int(LEAD_S) + 60)]
        [*events] = harness.broker.partitions[harness.topics.routes, 0]
        added = [e for e in events if e.key() == b"1:a"]
        assert [decode(RouteEvent, e.value() or b"").op for e in added] == ["add", "drop", "add"]
        assert not harness.fatal

    run(scenario())


def test_a_drop_of_which_nobody_knew_is_undone_at_the_next_start(tmp_path: Path) -> None:
    """The owner that would have undone it is killed first."""

    async def scenario() -> None:
        harness = await Clustered(tmp_path).start()
        sender = await harness.client(harness.names(0)[0])
        receiver = await harness.client(harness.names(1)[0])
        await receiver.subscribe("a")
        await turn(LEAD_S + 5)
        harness.drop_late(1, "a")
        owner = harness.owner(1)
        assert owner is not None
        owner.kill()
        await turn(5)
        await harness.take_over(1, harness.gateways[2])
        await harness.reconnect()
        for number in range(2 * int(LEAD_S) + 60):
            sender.publish("a", b"%d" % number, 1 + number % 2)
            await turn(1)
        assert receiver.payloads == [b"%d" % number for number in range(2 * int(LEAD_S) + 60)]
        assert not harness.fatal

    run(scenario())


def test_a_restart_adds_no_route_for_topics_of_the_gateway(tmp_path: Path) -> None:
    """They come by no route."""

    async def scenario() -> None:
        harness = await HomeHarness(tmp_path).start()
        receiver = await harness.client("receiver")
        await receiver.subscribe("$SYS/#")
        await receiver.subscribe("a")
        await turn(LEAD_S + 5)
        await harness.restart()
        await turn(5)
        written = [record.key() for record in harness.broker.partitions[harness.topics.routes, 0]]
        assert written == [f"{harness.shard_of('receiver').number}:a".encode()]
        assert not harness.fatal

    run(scenario())
