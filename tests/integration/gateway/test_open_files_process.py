"""A process may open as many files as connections need, as far as the system allows."""

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
from structlog.testing import capture_logs

from gateway.host.open_files import allow_open_files
from schemas.settings import GatewayLimits, process_settings

ROOT = Path(__file__).parents[3]
HARD = 1000


def limits(connections: int) -> GatewayLimits:
    return msgspec.structs.replace(process_settings({}).gateway.limits, connections=connections)


def raised(connections: int) -> tuple[tuple[int, int], list[Any]]:
    """The limits after `allow_open_files`, and what it has said, in a process that may open 500 files, at most HARD:
    a hard limit that was lowered cannot be raised again."""
    argv = [sys.executable, "-m", "tests.integration.gateway.test_open_files_process", str(connections)]
    found, said = json.loads(subprocess.run(argv, check=True, stdout=subprocess.PIPE, cwd=ROOT).stdout)
    return tuple(found), said


def print_raised(connections: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (500, HARD))
    with capture_logs() as said:
        allow_open_files(limits(connections).open_files, f"gateway.limits.connections = {connections}")
    sys.stdout.write(json.dumps([resource.getrlimit(resource.RLIMIT_NOFILE), said]))


def test_the_process_may_open_what_its_connections_need() -> None:
    wanted = limits(200)
    found, said = raised(200)
    assert found == (wanted.open_files, HARD)
    assert wanted.open_files > wanted.connections
    assert said == []


def test_a_hard_limit_that_is_too_low_is_said_with_both_numbers_and_a_remedy() -> None:
    wanted = limits(HARD)
    found, said = raised(HARD)
    assert found == (HARD, HARD)
    (warning,) = said
    assert warning["log_level"] == "warning"
    for word in (f" {HARD} files", str(wanted.open_files), "gateway.limits.connections", "raise the hard limit"):
        assert word in warning["event"]


if __name__ == "__main__":
    print_raised(int(sys.argv[1]))
