"""Two gateway processes of one site that were given the same name (G4, G14)."""

import os
import signal
from pathlib import Path

import pytest

from harness.processes import STOP_S, Gateway
from jobs.stack.process import wait_until
from tests.conftest import LocalBroker


@pytest.mark.timeout(180)
def test_the_one_that_serves_goes_on_unless_it_stood_still(
    broker: LocalBroker, unique_prefix: str, tmp_path: Path
) -> None:
    """Each says why it ends, also that which was replaced while it stood still."""
    broker.topics(unique_prefix)
    names = {"WAYSTATION_GATEWAY__NAME": "gw", "WAYSTATION_GATEWAY__CLUSTER__ENABLED": "true"}
    first, second = (Gateway(tmp_path / of, broker.bootstrap, unique_prefix, **names) for of in ("first", "second"))
    for gateway in (first, second):
        gateway.data.mkdir()
    try:
        first.start()
        second.launch()
        assert wait_until(lambda: second.ended() or "gateway ready" in second.log(), STOP_S)
        assert second.process.exit_code == 1
        assert "a gateway with the name gw is running already" in second.log()
        assert not first.ended()
        os.killpg(first.pid, signal.SIGSTOP)
        second.start()
        os.killpg(first.pid, signal.SIGCONT)
        assert wait_until(first.ended, STOP_S)
        assert first.process.exit_code == 1
        assert "another process has started as the gateway gw" in first.log()
        assert not second.ended()
    finally:
        for gateway in (first, second):
            if hasattr(gateway, "process"):
                gateway.kill()
