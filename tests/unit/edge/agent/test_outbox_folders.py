"""Files are taken when they are complete, and once in the store they go (M16, M2)."""

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from edge.agent import outbox_folders
from edge.agent.envelope import File
from edge.agent.outbox_folders import OutboxFolders, is_complete, read
from edge.agent.settings import FoldersSettings
from edge.client.errors import MessageTooLarge, StoreFull

LIMIT = 100


class Mailroom:
    """Keeps what it is given, and raises `error` first."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, File]] = []
        self.error: Exception | None = None

    async def send_file(self, topic: str, file: File) -> None:
        if self.error is not None:
            raise self.error
        self.sent.append((topic, file))


def folders(directory: Path, mailroom: Any, **options: Any) -> OutboxFolders:
    return OutboxFolders(FoldersSettings(outboxes={str(directory): "@b"}, **options), "a", LIMIT, mailroom)


@pytest.mark.parametrize("name", [".a", "a.tmp", "a.PART", "a.partial", "a~"])
def test_partial_names(name: str) -> None:
    assert not is_complete(name)
    assert is_complete("a.txt")


def test_the_oldest_first_and_then_removed(tmp_path: Path) -> None:
    mailroom = Mailroom()
    one = folders(tmp_path, mailroom)
    for number, name in enumerate(("b", "a")):
        (tmp_path / name).write_bytes(name.encode())
        os.utime(tmp_path / name, (number, number))
    assert asyncio.run(one.scan()) == 2
    assert [(topic, file.name, file.content) for topic, file in mailroom.sent] == [("@b", "b", b"b"), ("@b", "a", b"a")]
    assert not list(tmp_path.iterdir())


def test_kept_ones_are_never_overwritten(tmp_path: Path) -> None:
    one = folders(tmp_path, Mailroom(), taken="keep")
    for content in (b"1", b"2"):
        (tmp_path / "a").write_bytes(content)
        asyncio.run(one.scan())
    assert {path.read_bytes() for path in (tmp_path / "sent").iterdir()} == {b"1", b"2"}


def test_killed_before_the_file_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is sent again, under the same id: the receiver recognises it. Another file of that name has another id."""
    mailroom = Mailroom()
    (tmp_path / "a").write_bytes(b"1")

    def kill(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", kill)
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(folders(tmp_path, mailroom).scan())
    asyncio.run(folders(tmp_path, mailroom).scan())
    (tmp_path / "a").write_bytes(b"1")
    asyncio.run(folders(tmp_path, mailroom).scan())
    first, second, third = (file.id for _, file in mailroom.sent)
    assert first == second != third


def test_a_full_store_and_a_file_that_is_too_large(tmp_path: Path) -> None:
    mailroom = Mailroom()
    one = folders(tmp_path, mailroom)
    (tmp_path / "a").write_bytes(b"1")
    mailroom.error = StoreFull("full")
    assert asyncio.run(one.scan()) == 0
    assert (tmp_path / "a").exists()
    mailroom.error = None
    (tmp_path / "b").write_bytes(b"x" * (LIMIT + 1))
    assert asyncio.run(one.scan()) == 1
    assert [path.name for path in (tmp_path / "refused").iterdir()] == ["b"]


def test_one_that_cannot_be_read_does_not_block_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mailroom = Mailroom()
    one = folders(tmp_path, mailroom)
    for number, name in enumerate(("a", "b", "c")):
        (tmp_path / name).write_bytes(name.encode())
        os.utime(tmp_path / name, (number, number))

    def read_or_not(path: Path, agent: str, message_bytes: int) -> File | None:
        if path.name == "b":
            raise PermissionError(errno.EACCES, "Permission denied")
        return read(path, agent, message_bytes)

    with monkeypatch.context() as patched:
        patched.setattr(outbox_folders, "read", read_or_not)
        assert asyncio.run(one.scan()) == 2
        assert asyncio.run(one.scan()) == 0
    assert caplog.text.count("Permission denied") == 1
    assert asyncio.run(one.scan()) == 1
    assert [file.name for _, file in mailroom.sent] == ["a", "c", "b"]


def test_one_that_cannot_be_removed_is_sent_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are sent, too."""
    mailroom = Mailroom()
    one = folders(tmp_path, mailroom)
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(name.encode())

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refuse)
        for _ in range(3):
            assert asyncio.run(one.scan()) == 0
    assert asyncio.run(one.scan()) == 2
    assert [file.name for _, file in mailroom.sent] == ["a", "b"]
    (tmp_path / "a").write_bytes(b"a")
    assert asyncio.run(one.scan()) == 1
    assert len(mailroom.sent) == 3


def test_what_vanishes_or_is_no_file(tmp_path: Path) -> None:
    assert read(tmp_path / "gone", "a", LIMIT) is None
    os.mkfifo(tmp_path / "pipe")
    assert read(tmp_path / "pipe", "a", LIMIT) is None
    (tmp_path / "large").write_bytes(b"x" * (LIMIT + 1))
    with pytest.raises(MessageTooLarge):
        read(tmp_path / "large", "a", LIMIT)
