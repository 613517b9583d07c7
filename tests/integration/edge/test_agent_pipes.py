"""What `waystation agent …` prints may go into a pipe that ends (M20)."""

import subprocess
import sys

from tests.documents import ROOT

STEP = {"at_s": 0.0, "id": "1", "part": "mqtt", "event": "refused", "detail": "there is no route"}
LOG = """
import sys
from edge.cli import agent, main
agent._ask = lambda conf, command, **request: [{step!r}] * 10_000
sys.argv = ["waystation", "agent", "log"]
main.main()
"""


def test_a_pipe_that_ends_is_no_error() -> None:
    """`waystation agent log | head -1`: no traceback."""
    process = subprocess.Popen(
        [sys.executable, "-c", LOG.format(step=STEP)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout as stdout:
        assert b"refused" in stdout.readline()
    with process.stderr as stderr:
        assert stderr.read() == b""
    process.wait(60)
