"""pip takes over where uv fails."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tools import install


class Commands:
    """Notes commands instead of running them; those that contain one of `failing` fail."""

    def __init__(self, *failing: str) -> None:
        self.failing = failing
        self.lines: list[str] = []

    def __call__(self, command: Sequence[str], environ: Mapping[str, str]) -> int:
        line = " ".join(command).replace(str(Path(sys.executable).parent) + "/", "")
        self.lines.append(line)
        return int(any(part in line for part in self.failing))

    def installers(self) -> Iterator[str]:
        for line in self.lines:
            if "ensurepip" in line:  # where an environment has no pip
                continue
            yield "uv" if line.startswith("uv ") else "pip"


@pytest.mark.parametrize(
    ("failing", "status", "installers"),
    [
        ((), 0, ["pip", "uv", "uv"]),  # pip installs uv
        (("uv==",), 0, ["pip", "pip", "pip"]),
        (("uv pip",), 0, ["pip", "uv", "pip", "pip"]),
        (("-e .[",), 1, ["pip", "uv", "uv", "pip", "pip"]),
    ],
)
def test_pip_takes_over_where_uv_fails(failing: Sequence[str], status: int, installers: list[str]) -> None:
    commands, said = Commands(*failing), list[str]()
    assert install.install(("demo",), False, os.environ, commands, said.append) == status
    assert list(commands.installers()) == installers
    assert any("pip, which takes" in line for line in said) == (installers[1:] != ["uv", "uv"])
