"""Logging, where standard error cannot be written."""

import logging
import sys
from io import TextIOWrapper
from pathlib import Path

import pytest
import structlog

from schemas.logs import configure_logging
from schemas.settings import load_settings

BASE = Path(__file__).parents[3] / "conf" / "base.toml"
FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="only Linux has a device that is always full")
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_log_on_a_full_disk_ends_nothing_that_logs(
    monkeypatch: pytest.MonkeyPatch, logging_kept: None, form: str
) -> None:
    """Whatever logs may be the loop that keeps all else running, or the handling of an error."""
    with TextIOWrapper(FULL.open("wb", buffering=0), write_through=True) as full:
        monkeypatch.setattr(sys, "stderr", full)
        configure_logging(load_settings([BASE], {"WAYSTATION_LOG__FORMAT": form}).log)
        for number in range(1000):
            structlog.get_logger().error("something has failed", number=number)
            logging.getLogger("a library").error("something has failed: %d", number)
