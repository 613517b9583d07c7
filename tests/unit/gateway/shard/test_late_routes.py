"""An owner that has lost its shard ends no routes (Q7, R12; emqx#14248)."""

from pathlib import Path

import pytest

from gateway.shard.routes import ROUTE_LINGER_S
from tests.unit.gateway.shard.clustered import Clustered
from tests.unit.gateway.shard.home_harness import LEAD_S, turn
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
