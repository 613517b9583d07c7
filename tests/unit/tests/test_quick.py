"""What concerns a change since the last commit, for `make check`."""

import subprocess
from pathlib import Path

import pytest

from tests import quick

NEW = "tests/unit/test_new.py"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A commit with two files."""
    for name in ("gateway/one.py", "gateway/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    for command in ("init -q", "add .", "-c user.name=a -c user.email=a@b.c commit -qm first"):
        subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)
    return tmp_path


def test_nothing_has_changed_since_the_last_commit(checkout: Path) -> None:
    assert quick.changed_modules(checkout) == frozenset()


def test_what_is_changed_new_or_gone_has_changed(checkout: Path) -> None:
    (checkout / "gateway/one.py").unlink()
    (checkout / "gateway/__init__.py").write_text("import os\n")
    (checkout / NEW).parent.mkdir(parents=True)
    (checkout / NEW).write_text("")
    (checkout / "notes with a blank.md").write_text("")
    assert quick.changed_modules(checkout) == {"gateway", "gateway.one", "tests.unit.test_new"}


def test_without_a_repository_nothing_is_known_to_have_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert quick.changed_modules(tmp_path) == frozenset()
    monkeypatch.setenv("PATH", "")
    assert quick.changed_modules(tmp_path) == frozenset()


def test_a_file_concerns_what_it_uses(request: pytest.FixtureRequest) -> None:
    for name in (__name__, "tests.quick", "pathlib"):
        assert quick.concerns(request.node, frozenset({name}))
    assert not quick.concerns(request.node, frozenset({"gateway.shard.home"}))
