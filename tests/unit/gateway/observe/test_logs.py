"""What is said of clients that come and go, and of libraries that speak through the standard library's logging."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.unit.gateway.home.home_harness import turn
from tests.unit.gateway.home.virtual_time import run
from tests.unit.gateway.observe.observed import ObservedHarness

LIBRARIES = """
import logging
from schemas.logs import configure_logging
from schemas.settings import LogSettings
configure_logging(
    LogSettings(level="debug", format="json", slow_batch_triggers=3.0, lag_records=100, progress_every_s=0)
)
logging.getLogger("websockets.server").debug("< BINARY secret-payload")
logging.getLogger("aiohttp.server").info("secret-header")
logging.getLogger("librdkafka").warning("%s", "a broker is down")
"""


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


def test_libraries_are_heard_from_warnings_up_in_the_same_form() -> None:
    """At debug level some of them write what they carry."""
    done = subprocess.run([sys.executable, "-c", LIBRARIES], check=True, capture_output=True, text=True)
    (line,) = [json.loads(line) for line in done.stderr.splitlines()]
    assert (line["event"], line["level"], line["logger"]) == ("a broker is down", "warning", "librdkafka")
