"""The gateway that is measured."""

from pathlib import Path

from bench.gateway import LEAD_S, environment_of
from schemas.settings import process_settings


def test_it_has_settings_that_are_allowed(tmp_path: Path) -> None:
    """Times of routes depend on each other: those that are changed for a short run must still fit the defaults."""
    settings = process_settings(environment_of(tmp_path, "localhost:1"))
    assert settings.router.route_lead_s == LEAD_S
    assert settings.gateway.mqtt_port == 0
