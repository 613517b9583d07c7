"""Open files: as many as connections need, as far as the system allows; what is missing is said."""

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from gateway.host.open_files import OpenFiles, allow_open_files, decide
from jobs.cli.findings import open_files
from schemas.settings import GatewayLimits, process_settings

NONE, HARD = resource.RLIM_INFINITY, 1000


def limits(connections: int) -> GatewayLimits:
    return msgspec.structs.replace(process_settings({}).gateway.limits, connections=connections)


def raised(connections: int) -> tuple[tuple[int, int], list[Any]]:
    """The limits after `allow_open_files`, and what it has said, in a process that may open 500 files, at most HARD:
    a hard limit that was lowered cannot be raised again."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import test_open_files as t; t.print_raised(int(sys.argv[2]))"
    argv = [sys.executable, "-c", code, str(Path(__file__).parent), str(connections)]
    found, said = json.loads(subprocess.run(argv, check=True, stdout=subprocess.PIPE).stdout)
    return tuple(found), said


def print_raised(connections: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (500, HARD))
    with capture_logs() as said:
        allow_open_files(limits(connections))
    sys.stdout.write(json.dumps([resource.getrlimit(resource.RLIMIT_NOFILE), said]))


@pytest.mark.parametrize(
    ("needed", "soft", "hard", "decided"),
    [
        (10_500, 1024, 524_288, OpenFiles(10_500, True)),
        (10_500, 1024, NONE, OpenFiles(10_500, True)),
        (10_500, 1024, 4096, OpenFiles(4096, False)),
        (10_500, 65_536, 524_288, OpenFiles(65_536, True)),
        (10_500, NONE, NONE, OpenFiles(NONE, True)),
        (10_500, 10_500, 10_500, OpenFiles(10_500, True)),
    ],
)
def test_raised_to_what_is_needed_never_lowered(needed: int, soft: int, hard: int, decided: OpenFiles) -> None:
    assert decide(needed, soft, hard) == decided


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


def test_doctor_shows_it() -> None:
    wanted = limits(10_000)
    assert open_files(wanted, NONE).remedy is None
    assert open_files(wanted, wanted.open_files).remedy is None
    finding = open_files(wanted, 4096)
    assert "4096" in finding.found
    assert str(wanted.open_files) in finding.found
    assert "gateway.limits.connections" in (finding.remedy or "")
