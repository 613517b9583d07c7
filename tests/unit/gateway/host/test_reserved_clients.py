"""Client ids that no client may have (R6, R11)."""

from pathlib import Path

import pytest

from gateway.shard.arrivals import REPLY_CLIENTS
from mqtt.codes import ReasonCode
from mqtt.packets import Connack
from tests.unit.gateway.host.test_host_connection import Wire, connect, hosted
from tests.unit.gateway.shard.home_harness import turn
from tests.unit.gateway.shard.virtual_time import run


@pytest.mark.parametrize(
    ("client", "reason"),
    [
        (f"{REPLY_CLIENTS}{'0' * 32}", ReasonCode.CLIENT_IDENTIFIER_NOT_VALID),
        (REPLY_CLIENTS, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID),
        (REPLY_CLIENTS[:-1], ReasonCode.SUCCESS),
        (f"a{REPLY_CLIENTS}", ReasonCode.SUCCESS),
    ],
)
def test_nobody_takes_over_an_inbox_for_replies(tmp_path: Path, client: str, reason: ReasonCode) -> None:
    """A responder knows the address."""

    async def scenario() -> None:
        harness, server = await hosted(tmp_path)
        wire = Wire(server).send(connect(client))
        await turn()
        answer = wire.received[0]
        assert isinstance(answer, Connack)
        assert answer.reason_code is reason
        assert (harness.home.session(client) is not None) == (reason is ReasonCode.SUCCESS)
        await server.stop()

    run(scenario())
