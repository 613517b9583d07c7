"""Every command of the guides that reads the ledger, run as somebody would paste it; a run draws some of them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import draw
from tests.documented_ledger import write_ledger
from tests.documents import PAGES, ROOT, code_blocks

READING = re.compile(r"^waystation (query|journey|explain|report) ")


def commands() -> list[str]:
    """Lines of the blocks for a shell that read the ledger; each once, although comments differ."""
    blocks = [block for page in PAGES for block in code_blocks(page.read_text(), "sh")]
    lines = [line for block in blocks for line in block.splitlines()]
    reading = [line for line in lines if READING.match(line) or "| waystation query" in line]
    return list({re.sub(r"\s+#.*", "", line): line for line in reading}.values())


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("data")
    write_ledger(data)
    return data


@pytest.mark.parametrize("line", draw.some(commands(), 6, "commands of the guides"))
def test_a_command_is_pasted(data: Path, tmp_path: Path, line: str) -> None:
    """By a shell: quotes, pipes and comments are as they stand."""
    (tmp_path / "waystation").write_text(f'#!/bin/sh\nexec {sys.executable} -m jobs.cli.main "$@"\n')
    (tmp_path / "waystation").chmod(0o755)
    environment = os.environ | {
        "WAYSTATION_DATA": str(data), "PYTHONPATH": str(ROOT), "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }  # fmt: skip
    ended = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_there_are_some() -> None:
    assert len(commands()) > 8
