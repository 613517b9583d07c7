"""What `make check` leaves out: never all tests of a file, and none that are named."""

import subprocess
import sys
from pathlib import Path


def test_of_each_file_a_test_is_run(tmp_path: Path) -> None:
    """A directory without a repository, where no file concerns a change."""
    (tmp_path / "test_many.py").write_text(
        "import pytest\n@pytest.mark.parametrize('n', range(25))\ndef test_it(n):\n    pass\n"
    )
    (tmp_path / "test_one.py").write_text("def test_it():\n    pass\n")
    assert "4 passed, 22 deselected" in run(tmp_path, ".")
    assert "26 passed" in run(tmp_path, ".", is_quick="0")
    assert "1 passed" in run(tmp_path, "test_many.py::test_it[7]")


def run(directory: Path, *arguments: str, is_quick: str = "1") -> str:
    root = Path(__file__).parents[3]
    environment = {"PYTHONPATH": str(root), "QUICK": is_quick, "GIT_CEILING_DIRECTORIES": str(directory.parent)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.draw", "-p", "tests.quick", *arguments]
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=True).stdout
