"""`waystation demo --feeds`: the first part of a flight over adapters that are killed, as a user runs it (S2, S3)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from feeds.message import FEEDS
from jobs.demo.feed_report import MUST_BE_ZERO
from jobs.demo.feed_sample import MEMBER
from jobs.stack.state import read_state
from tests import draw
from tools.install_feed_samples import samples_directory

TIMEOUT_S = 400


@draw.long_test
@pytest.mark.timeout(TIMEOUT_S + 30)
def test_a_flight_on_two_lossy_ways_is_one_stream(tmp_path: Path, java_home: Path) -> None:
    """S2, S3: nothing is missing or twice, what both ways lost is reported, and the status says so."""
    if not (samples_directory(os.environ) / Path(MEMBER).name).exists():
        pytest.skip("the recording is not there: run `make samples`")
    file = tmp_path / "demo.json"
    command = [sys.executable, "-m", "jobs.cli.main", "--data", str(tmp_path / "data"), "demo", "--feeds"]
    options = ["--until", "09:03", "--seed", str(draw.SEED), "--json", str(file)]
    environment = {**os.environ, "JAVA_HOME": str(java_home), "WAYSTATION_STACK__START_TIMEOUT_S": "300"}
    done = subprocess.run([*command, *options], capture_output=True, text=True, env=environment, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nothing missing, nothing doubled" in done.stdout
    figures = json.loads(file.read_text())
    assert {name: figures[name] for name in MUST_BE_ZERO} == dict.fromkeys(MUST_BE_ZERO, 0)
    assert figures["kills"] >= len(FEEDS)
    assert figures["restarts"] == 1
    assert read_state(tmp_path / "data" / "demo") is None, "its stack has been stopped"
