"""JSON files that other processes read."""

from pathlib import Path
from threading import Thread

import pytest

from schemas.readiness import read_json, write_json


def test_two_threads_may_write_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's thread and the application's own both report that a query has ended."""
    file, replace = tmp_path / "status" / "q.json", Path.replace
    other = Thread(target=write_json, args=(file, {"by": "the other thread"}))

    def replace_after_the_other(staged: Path, target: Path) -> Path:
        if other.ident is None:
            other.start()
            other.join()
        return replace(staged, target)

    monkeypatch.setattr(Path, "replace", replace_after_the_other)
    write_json(file, {"by": "this thread"})
    assert read_json(file) == {"by": "this thread"}
    assert [path.name for path in file.parent.iterdir()] == ["q.json"]
