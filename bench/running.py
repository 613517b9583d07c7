"""An application as a process of its own, from ready to stopped."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from schemas.readiness import ready_file

PART = "bench"
READY_TIMEOUT_S = 300


@contextmanager
def running(
    data: Path, bootstrap: str, prefix: str, *argv: str, settings: Mapping[str, str] | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """The module and arguments of `argv` over `data`, with `settings` as environment variables, as the part PART."""
    ready = ready_file(data, PART)
    ready.unlink(missing_ok=True)
    environ = os.environ | {
        "WAYSTATION_DATA": str(data),
        "WAYSTATION_PART": PART,
        "WAYSTATION_KAFKA__BOOTSTRAP": bootstrap,
        "WAYSTATION_KAFKA__PREFIX": prefix,
        "WAYSTATION_ROUTER__METRICS_PORT": "0",
        "WAYSTATION_LEDGER__METRICS_PORT": "0",
        # One role is one query here: its pauses are what is measured.
        "WAYSTATION_ROUTER__RELIEF": "false",
        **(settings or {}),
    }
    with (data / "bench.log").open("ab") as log:
        process = subprocess.Popen([sys.executable, "-m", *argv], env=environ, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{argv} did not start: {(data / 'bench.log').read_text()[-2000:]}")
            time.sleep(0.2)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
