"""Open files: as many as connections need, as far as the system allows; what is missing is said."""

import resource

import msgspec
import pytest

from gateway.host.open_files import OpenFiles, decide
from jobs.cli.findings import open_files
from schemas.settings import GatewayLimits, process_settings

NONE, HARD = resource.RLIM_INFINITY, 1000


def limits(connections: int) -> GatewayLimits:
    return msgspec.structs.replace(process_settings({}).gateway.limits, connections=connections)


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


def test_doctor_shows_it() -> None:
    wanted = limits(10_000)
    assert open_files(wanted, NONE).remedy is None
    assert open_files(wanted, wanted.open_files).remedy is None
    finding = open_files(wanted, 4096)
    assert "4096" in finding.found
    assert str(wanted.open_files) in finding.found
    assert "gateway.limits.connections" in (finding.remedy or "")
