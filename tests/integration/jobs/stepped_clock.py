"""A wall clock that steps while processes run."""

import psutil
import pytest


def step_wall_clock(monkeypatch: pytest.MonkeyPatch, step_s: float) -> None:
    """Every create time is computed from the wall clock, so a step shifts it."""
    create_time = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: create_time(self) + step_s)
