"""A process that dies releases its checkpoints."""

import subprocess
import sys
from pathlib import Path

import pytest

from jobs.errors import JobError
from jobs.runtime.application import lock_checkpoints

OTHERWISE = "do something else"


def test_who_is_killed_holds_nothing(tmp_path: Path) -> None:
    program = (
        "import sys; from jobs.runtime.application import lock_checkpoints\n"
        "held = lock_checkpoints(sys.argv[1], 'ledger', ''); print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(JobError):
            lock_checkpoints(str(tmp_path), "ledger", OTHERWISE)
        holder.kill()
    lock_checkpoints(str(tmp_path), "ledger", OTHERWISE).close()
