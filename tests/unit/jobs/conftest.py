"""The command line, run within the test."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.cli.main import main

Run = Callable[..., int]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run `waystation --data <tmp> …`; its exit status. Tables are as wide as they are in a pipe."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def one(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["waystation", "--data", str(tmp_path), *arguments])
        try:
            main()
        except SystemExit as ended:
            return int(ended.code or 0)
        return 0

    return one
