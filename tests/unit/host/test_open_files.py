"""Open files: as many as connections need, as far as the system allows; what is missing is said."""

import resource
from collections.abc import Iterator

import msgspec
import pytest
from structlog.testing import capture_logs

from gateway.host.open_files import OpenFiles, allow_open_files, decide
from jobs.cli.doctor import open_files
from schemas.settings import GatewayLimits, process_settings

NONE = resource.RLIM_INFINITY


def limits(connections: int) -> GatewayLimits:
    return msgspec.structs.replace(process_settings({}).gateway.limits, connections=connections)


@pytest.fixture
def few_files() -> Iterator[int]:
    """A soft limit below the hard one; the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == NONE or hard < 1000:
        pytest.skip(f"needs a hard limit of open files, of 1000 at least; it is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (500, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


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


def test_the_process_may_open_what_its_connections_need(few_files: int) -> None:
    wanted = limits(200)
    with capture_logs() as said:
        allow_open_files(wanted)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (wanted.open_files, few_files)
    assert wanted.open_files > wanted.connections
    assert said == []


def test_a_hard_limit_that_is_too_low_is_said_with_both_numbers_and_a_remedy(few_files: int) -> None:
    wanted = limits(few_files)
    with capture_logs() as said:
        allow_open_files(wanted)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (few_files, few_files)
    (warning,) = said
    assert warning["log_level"] == "warning"
    for word in (f" {few_files} files", str(wanted.open_files), "gateway.limits.connections", "raise the hard limit"):
        assert word in warning["event"]


def test_doctor_shows_it() -> None:
    wanted = limits(10_000)
    assert open_files(wanted, NONE).remedy is None
    assert open_files(wanted, wanted.open_files).remedy is None
    finding = open_files(wanted, 4096)
    assert "4096" in finding.found
    assert str(wanted.open_files) in finding.found
    assert "gateway.limits.connections" in (finding.remedy or "")
