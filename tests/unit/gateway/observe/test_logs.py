"""What is said of clients that come and go, and of libraries that speak through the standard library's logging."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.unit.gateway.observe.observed import ObservedHarness
from tests.unit.gateway.shard.home_harness import turn
from tests.unit.gateway.shard.virtual_time import run


@pytest.mark.parametrize("level", ["debug", "info"])
def test_one_line_when_a_client_connects_and_one_when_it_goes(tmp_path: Path, level: str) -> None:
    """R12: at the level of `gateway.connection_log`, with the same reason as presence."""

    async def scenario() -> None:
        with capture_logs() as said:
            harness = await ObservedHarness(tmp_path, {"connection_log": level}).start()
            client = await harness.client("c")
            client.lose("keep_alive_timeout")
            await turn()
            await harness.stop()
        lines = [line for line in said if line.get("client") == "c"]
        assert [line["event"] for line in lines] == ["client connected", "client lost"]
        assert {line["log_level"] for line in lines} == {level}
        assert (lines[0]["peer"], lines[1]["reason"]) == ("peer", "keep_alive_timeout")

    run(scenario())
