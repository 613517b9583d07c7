"""`waystation status --watch` as a process ends quietly at Ctrl-C."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from schemas.readiness import write_json


def test_the_command_ends_quietly_at_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "status").mkdir()
    write_json(tmp_path / "status" / "routes.json", {"query": "routes", "part": "ledger", "positions": {}, "at_ms": 0})
    command = [sys.executable, "-m", "jobs.cli.main", "--data", str(tmp_path), "status", "--watch", "--interval", "0.1"]
    environ = {**os.environ, "WAYSTATION_KAFKA__BOOTSTRAP": "127.0.0.1:1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stdout is not None
        while "routes" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in err
