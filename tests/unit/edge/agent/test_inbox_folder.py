"""Files that come are written once, also if the agent is killed at any step and the application removes them (M16)."""

from pathlib import Path
from typing import Any

import pytest

from edge.agent import inbox_folder
from edge.agent.envelope import File
from edge.agent.inbox_folder import InboxFolder
from edge.client.errors import DiskFull
from tests.unit.edge.agent.agent_harness import Clock

FILE = File("f" * 32, "a.bin", b"content\0")


def opened(directory: Path, remembered: int = 100) -> InboxFolder:
    return InboxFolder(
        directory / "in", directory / "list", remembered=remembered, log_entries=100, wall_s=Clock().wall_s
    )


def test_written_once(tmp_path: Path) -> None:
    inbox = opened(tmp_path)
    assert inbox.take(FILE)
    assert (tmp_path / "in" / FILE.id).read_bytes() == FILE.content
    (tmp_path / "in" / FILE.id).unlink()
    assert not inbox.take(FILE)
    assert not list((tmp_path / "in").iterdir())
    inbox.close()


class Killed(BaseException):
    """The process has ended."""


STEPS = ("before the content", "content", "id in the list", "renamed", "end in the list")


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """The platform gives it again, as it was not acknowledged; the application takes each file that it sees."""
    inbox = opened(tmp_path)
    seen: list[bytes] = []

    def kill(*_: Any) -> None:
        raise Killed

    def application() -> None:
        for path in (tmp_path / "in").glob("[!.]*"):
            seen.append(path.read_bytes())
            path.unlink()

    with monkeypatch.context() as patched:
        if step == "before the content":
            patched.setattr(inbox, "_write", kill)
        elif step == "content":
            patched.setattr(inbox.file, "transaction", _second_time(inbox.file.transaction, kill))
        elif step == "id in the list":
            patched.setattr(inbox, "_finish", kill)
        elif step == "renamed":
            patched.setattr(inbox_folder, "sync_directory", kill)
        if step != "end in the list":
            with pytest.raises(Killed):
                inbox.take(FILE)
        else:
            inbox.take(FILE)
    application()
    inbox.close()
    inbox = opened(tmp_path)
    application()
    inbox.take(FILE)
    application()
    inbox.take(FILE)
    application()
    inbox.close()
    assert seen == [FILE.content]


def test_a_power_cut_before_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M2: of the names in the folder those survive that were there when it was synced last."""
    inbox, folder = opened(tmp_path), tmp_path / "in"
    survivors: set[Path] = set()

    def sync(path: Path) -> None:
        assert path == folder
        survivors.clear()
        survivors.update(path.iterdir())

    def kill(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(inbox_folder, "sync_directory", sync)
        patched.setattr(inbox, "_finish", kill)
        with pytest.raises(Killed):
            inbox.take(FILE)
    inbox.close()
    for path in folder.iterdir():
        if path not in survivors:
            path.unlink()
    inbox = opened(tmp_path)
    inbox.take(FILE)
    inbox.close()
    assert (folder / FILE.id).read_bytes() == FILE.content


def _second_time(call: Any, kill: Any) -> Any:
    calls = []

    def counted() -> Any:
        calls.append(1)
        return call() if len(calls) == 1 else kill()

    return counted


def test_a_full_disk_is_no_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inbox = opened(tmp_path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        with pytest.raises(DiskFull, match="No space"):
            inbox.take(FILE)
    assert inbox.take(FILE)
    inbox.close()


def test_the_list_is_bounded(tmp_path: Path) -> None:
    inbox = opened(tmp_path, remembered=2)
    for number in range(4):
        inbox.take(File(f"{number:032x}", "", b""))
    assert inbox.take(File(f"{0:032x}", "", b""))
    assert not inbox.take(File(f"{3:032x}", "", b""))
    inbox.close()
