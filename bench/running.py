"""An application as a process of its own, from ready to stopped."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from harness.processes import Program

PART = "bench"
READY_TIMEOUT_S = 300


@contextmanager
def running(
    data: Path, bootstrap: str, prefix: str, *argv: str, settings: Mapping[str, str] | None = None
) -> Iterator[Program]:
    """The module and arguments of `argv` over `data`, with `settings` as environment variables, as the part PART."""
    environ = os.environ | {
        "WAYSTATION_KAFKA__BOOTSTRAP": bootstrap,
        "WAYSTATION_KAFKA__PREFIX": prefix,
        "WAYSTATION_ROUTER__METRICS_PORT": "0",
        "WAYSTATION_LEDGER__METRICS_PORT": "0",
        # One role is one query here: its pauses are what is measured.
        "WAYSTATION_ROUTER__RELIEF": "false",
        **(settings or {}),
    }
    with Program(data, PART, *argv, environ=environ).running(READY_TIMEOUT_S) as program:
        yield program
