"""Late copies of an owner that stood still: homes drop them behind the fence of their sender's shard, and not before it
(G6, G8, Q7, Q8)."""

from pathlib import Path

import pytest

from tests.unit.gateway.shard.clustered import Clustered
from tests.unit.gateway.shard.home_harness import LEAD_S, turn
from tests.unit.gateway.shard.virtual_time import run


@pytest.mark.parametrize("where", ["before", "behind", "later"])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_late_copy_comes_once_at_qos_2(tmp_path: Path, where: str, qos: int) -> None:
    async def scenario() -> None:
        harness = await Clustered(tmp_path).start()
        sender, receiver = await harness.client(harness.names(0)[0]), await harness.client(harness.names(1)[0])
        await receiver.subscribe("a")
        await turn(LEAD_S + 5)
        sender.publish("a", b"first", qos)
        await turn(1)
        zombie = harness.cut_off(0)
        sender.publish("a", b"late", qos)
        await turn()
        harness.stand_still(zombie)
        wake = {where: lambda: harness.wake(zombie)}
        await harness.take_over(0, harness.gateways[2], wake.get("before", int), wake.get("behind", int))
        await harness.reconnect()
        await turn(1)
        if where == "later":
            harness.wake(zombie)
        await turn(20)
        assert receiver.payloads == [b"first", b"late"] if qos == 2 else [b"first", b"late", b"late"]
        assert harness.fenced() == (qos == 2 and where != "before")
        assert not harness.fatal

    run(scenario())


def test_who_takes_over_looks_for_publishes_where_the_owner_was(tmp_path: Path) -> None:
    """G8: whatever the taker has published to the same partition itself."""

    async def scenario() -> None:
        harness = await Clustered(tmp_path).start()
        sender, other = [await harness.client(harness.names(shard)[0]) for shard in (0, 1)]
        await other.subscribe("a")
        await turn(LEAD_S + 5)
        owner = harness.owner(0)
        assert owner is not None
        owner.bus.held_acks = {harness.topics.ingress}
        sender.publish("a", b"once", 2)
        await turn(0.2)
        other.publish("b", b"further", 1)
        await turn(0.2)
        owner.kill()
        await harness.take_over(0, harness.gateways[1])
        await harness.reconnect()
        await turn(5)
        assert other.payloads == [b"once"]

    run(scenario())
